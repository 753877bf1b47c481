package claim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// defaultMost is how many keys an instance holds at most by default.
const defaultMost = 10_000

// ownedKey is a key that this instance holds, as far as it knows.
type ownedKey struct {
	Claim
	ready  time.Duration // when, on this host's clock
	inStep bool
}

// holder is what this instance holds of a space, and how it claims and releases.
// One goroutine owns it.
type holder struct {
	space   string
	table   KeyTable
	most    int // keys
	clock   lease.Clock
	log     *slog.Logger
	keys    map[string]*ownedKey
	surplus int // keys to release, because others lack them

	claimAt       time.Duration // when to claim without being woken
	leftForOthers bool          // the last claim left keys to members with fewer
	mismatches    int           // times in a row that the store's count and ours differed
	compareAt     time.Duration // when to compare the keys themselves, because a request was not answered; 0: no need
}

func newHolder(k *lease.Keeper, t KeyTable, space string, most int, log *slog.Logger) holder {
	return holder{space: space, table: t, most: most, clock: k.Clock(), keys: map[string]*ownedKey{},
		log: log.With("space", space, "instance", k.Instance().Label())}
}

// joinAndClaim renews the membership, computes the fair share, and claims keys.
func (h *holder) joinAndClaim(ctx context.Context, session string, asleep bool) {
	h.claimAt, h.leftForOthers = h.clock.Now()+PollInterval, false
	share, err := callStore(ctx, func(ctx context.Context) (Share, error) {
		return h.table.Join(ctx, Member{Space: h.space, Session: session, Asleep: asleep})
	})
	if err != nil {
		h.logStoreError("joining", err)
		return
	}
	h.reconcile(ctx, session, share)
	h.surplus = share.Surplus()
	room := min(MaxKeys, h.most-len(h.keys))
	if room <= 0 {
		return
	}
	claims, err := callStore(ctx, func(ctx context.Context) ([]Claim, error) {
		return h.table.ClaimKeys(ctx, ClaimRequest{Space: h.space, Session: session, Limit: room, Fresh: share.Fresh(room), Linger: Linger})
	})
	if err != nil {
		h.logStoreError("claiming keys", err)
		h.doubt()
		return
	}
	h.leftForOthers = share.Free && len(claims) < room
	for _, c := range claims {
		h.keys[c.Key] = &ownedKey{Claim: c, ready: h.clock.Now()}
	}
}

// doubt has the keys compared a while after a request to claim or to release some was
// not answered. A lost claim and a lost release leave the counts equal, and a key that
// this instance holds without knowing it is nobody's while its session lives.
func (h *holder) doubt() { h.compareAt = h.clock.Now() + 2*PollInterval }

// reconcile releases keys that the store gave to this session in an answer that was
// lost (no other instance may claim them while the session lives), and forgets keys
// that the session no longer has. It acts only the second time in a row that the
// counts differ, or a while after a failure, because a request that timed out here may
// still be applied there.
func (h *holder) reconcile(ctx context.Context, session string, s Share) {
	if h.mismatches++; s.Mine == len(h.keys) {
		h.mismatches = 0
	}
	if doubtful := h.compareAt != 0 && h.clock.Now() >= h.compareAt; h.mismatches < 2 && !doubtful {
		return
	}
	var back []Claim
	ours := map[string]bool{}
	for after, more := "", true; more; {
		rows, err := callStore(ctx, func(ctx context.Context) ([]Row, error) {
			return h.table.List(ctx, Query{Space: h.space, Session: session, After: after})
		})
		if err != nil {
			h.logStoreError("listing own keys", err)
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
	h.compareAt = 0
	h.release(ctx, session, back)
}

func (h *holder) release(ctx context.Context, session string, back []Claim) {
	for part := range slices.Chunk(back, MaxKeys) {
		_, err := callStore(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h.table.Release(ctx, h.space, session, part)
		})
		if err != nil {
			h.logStoreError("releasing keys", err)
			h.doubt()
			return // still ours: the next round retries
		}
		for _, c := range part {
			if k := h.keys[c.Key]; k != nil && k.Term == c.Term {
				delete(h.keys, c.Key)
			}
		}
	}
}

func (h *holder) logStoreError(doing string, err error) {
	if errors.Is(err, lease.ErrLapsed) {
		h.log.Debug("the session has lapsed", "doing", doing)
		return
	}
	h.log.Warn("request to the store failed; trying again", "doing", doing, "err", err)
}

// callStore bounds one request to the store.
func callStore[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f(ctx)
}
