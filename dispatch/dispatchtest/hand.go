package dispatchtest

import (
	"context"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// hand delivers by hand, without a dispatcher or a target.
type hand struct {
	store   Store
	session string
	// answer is what becomes of an assignment; nil: it is committed.
	answer func(dispatch.Assignment) dispatch.Result
}

// work takes a few keys and delivers until they are given back. It tells
// whether there was anything to do.
func (h *hand) work(ctx context.Context, name string) (busy bool, err error) {
	claims, err := h.store.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: dispatch.Space(name), Session: h.session, Limit: 2, Fresh: 2})
	if err != nil || len(claims) == 0 {
		return false, err
	}
	var results []dispatch.Result
	for len(claims) > 0 || len(results) > 0 {
		t, err := h.store.Queue().Exchange(ctx, dispatch.Exchange{Queue: name, Session: h.session, Results: results, Begin: claims, Window: window})
		if err != nil {
			return true, err
		}
		results, claims = nil, nil
		for _, a := range t.Begun {
			r := done(a)
			if h.answer != nil {
				r = h.answer(a)
			}
			results = append(results, r)
			if r.After == dispatch.Next || r.After == dispatch.Hold {
				claims = append(claims, claimOf(a))
			}
		}
	}
	return true, nil
}
