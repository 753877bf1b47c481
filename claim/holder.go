package claim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// defaultMost is how many keys an instance holds at most when nothing else is said.
const defaultMost = 10_000

// owned is a key that this instance claims, as far as it knows.
type owned struct {
	Claim
	ready  time.Duration // when, on this host's clock
	inStep bool
	tries  int // failed steps in a row
}

// holder is this instance's part in a space: what it claims, and how it gets and
// gives that. One goroutine owns it.
type holder struct {
	space string
	table Table
	most  int // keys
	clock lease.Clock
	log   *slog.Logger
	keys  map[string]*owned
	shed  int // keys that others lack

	lookAt time.Duration // when to look for keys that nobody told us of
	lain   bool          // keys were left to those who have less, at the last look
	odd    int           // times in a row that the store counted other keys than are known
}

func newHolder(k *lease.Keeper, t Table, space string, most int, log *slog.Logger) holder {
	return holder{space: space, table: t, most: most, clock: k.Clock(), keys: map[string]*owned{},
		log: log.With("space", space, "instance", k.Instance().Label())}
}

// look renews the membership, strikes fair shares, and takes keys.
func (h *holder) look(ctx context.Context, session string, asleep bool) {
	h.lookAt, h.lain = h.clock.Now()+LookEvery, false
	share, err := request(ctx, func(ctx context.Context) (Share, error) {
		return h.table.Join(ctx, Member{Space: h.space, Session: session, Asleep: asleep})
	})
	if err != nil {
		h.trouble("joining", err)
		return
	}
	h.compare(ctx, session, share)
	h.shed = share.Surplus()
	room := min(MaxKeys, h.most-len(h.keys))
	if room <= 0 {
		return
	}
	claims, err := request(ctx, func(ctx context.Context) ([]Claim, error) {
		return h.table.Take(ctx, Want{Space: h.space, Session: session, Most: room, Fresh: share.Fresh(room), Linger: Linger})
	})
	if err != nil {
		h.trouble("taking keys", err)
		return
	}
	h.lain = share.Free && len(claims) < room
	for _, c := range claims {
		h.keys[c.Key] = &owned{Claim: c, ready: h.clock.Now()}
	}
}

// compare gives back keys that the store has given to this session in an answer
// that never came, because nobody else may take them while the session lives, and forgets
// those that it has no more. It does so only the second time that the numbers
// differ, because a request that was given up may still be carried out.
func (h *holder) compare(ctx context.Context, session string, s Share) {
	if h.odd++; s.Mine == len(h.keys) {
		h.odd = 0
	}
	if h.odd < 2 {
		return
	}
	var back []Claim
	ours := map[string]bool{}
	for after, more := "", true; more; {
		rows, err := request(ctx, func(ctx context.Context) ([]Row, error) {
			return h.table.List(ctx, Query{Space: h.space, Session: session, After: after})
		})
		if err != nil {
			h.trouble("listing own keys", err)
			return
		}
		for _, r := range rows {
			after = r.Key
			if k := h.keys[r.Key]; k == nil || k.Term != r.Term {
				back = append(back, Claim{Key: r.Key, Term: r.Term})
			} else {
				ours[r.Key] = true
			}
		}
		more = len(rows) == MaxKeys
	}
	for key, k := range h.keys {
		if !ours[key] && !k.inStep {
			delete(h.keys, key)
		}
	}
	h.release(ctx, session, back)
}

func (h *holder) release(ctx context.Context, session string, back []Claim) {
	for part := range slices.Chunk(back, MaxKeys) {
		_, err := request(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h.table.Release(ctx, h.space, session, part)
		})
		if err != nil {
			h.trouble("giving keys back", err)
			return // still ours: the next round tries again
		}
		for _, c := range part {
			if k := h.keys[c.Key]; k != nil && k.Term == c.Term {
				delete(h.keys, c.Key)
			}
		}
	}
}

func (h *holder) trouble(doing string, err error) {
	if errors.Is(err, lease.ErrLapsed) {
		h.log.Debug("the session does not live", "doing", doing)
		return
	}
	h.log.Warn("the store did not do it; trying again", "doing", doing, "err", err)
}

// request bounds one request to the store. It is made also while stopping.
func request[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return f(ctx)
}
