package claims

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/history"
)

// table is the claim.KeyTable of a [Memory].
type table struct{ m *Memory }

func (t table) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	return t.m.Do(ctx, func(s *Step) error {
		for _, key := range keys {
			s.Offer(space, key, s.Now.Add(in))
		}
		return nil
	})
}

func (t table) Withdraw(ctx context.Context, space string, keys []string) error {
	return t.m.Do(ctx, func(s *Step) error {
		for _, key := range keys {
			delete(s.space(space).keys, key)
		}
		return nil
	})
}

func (t table) Join(ctx context.Context, m claim.Member) (share claim.Share, err error) {
	err = t.m.Do(ctx, func(s *Step) error {
		if err := s.requireLive(m.Session); err != nil {
			return err
		}
		sp := s.space(m.Space)
		sp.members[m.Session] = m.Asleep
		held := map[string]int{}
		for id := range sp.members {
			if s.IsLive(id) {
				held[id] = 0
			} else {
				delete(sp.members, id)
			}
		}
		for _, k := range sp.keys {
			if _, member := held[k.Session]; member {
				held[k.Session]++
				share.Held++
			}
			share.Free = share.Free || s.isClaimable(k)
		}
		share.Members, share.Mine = len(held), held[m.Session]
		share.Least = slices.Min(slices.Collect(maps.Values(held)))
		return nil
	})
	return share, err
}

func (t table) ClaimKeys(ctx context.Context, w claim.ClaimRequest) (taken []claim.Claim, err error) {
	err = t.m.Do(ctx, func(s *Step) error {
		if err := s.requireLive(w.Session); err != nil {
			return err
		}
		me := s.live[w.Session].Instance
		takeovers := map[string]history.Event{} // by the session that lost the keys
		fresh := w.Fresh
		for _, k := range s.inClaimOrder(w.Space) {
			if len(taken) == w.Limit {
				break
			}
			if !s.isClaimable(k) {
				continue
			}
			if k.Session == "" && s.isFresh(k, w.Linger) {
				if fresh == 0 {
					continue
				}
				fresh--
			}
			term := max(k.Term+1, s.Now.UnixMilli())
			if k.Session != "" {
				takeovers[k.Session] = history.Event{
					Part: "claim", Subject: w.Space, From: k.Holder.Label(), To: me.Label(),
					Term: max(takeovers[k.Session].Term, term), Reason: history.Lapsed,
				}
			}
			k.Interrupted = k.Interrupted || k.InStep
			k.Term, k.Session, k.Holder, k.Since, k.InStep = term, w.Session, me, s.Now, false
			taken = append(taken, claim.Claim{Key: k.Key, Term: term, Interrupted: k.Interrupted})
		}
		for _, session := range slices.Sorted(maps.Keys(takeovers)) {
			if err := s.RecordEvent(takeovers[session]); err != nil {
				return err
			}
		}
		return nil
	})
	return taken, err
}

// isFresh reports whether the key became free or ready less than linger ago.
func (s *Step) isFresh(k *Key, linger time.Duration) bool { return s.Now.Sub(k.Ready) < linger }

// inClaimOrder returns all keys, those first that somebody holds: of them only what a lapsed session has is claimed.
func (s *Step) inClaimOrder(name string) []*Key {
	return slices.SortedFunc(maps.Values(s.space(name).keys), func(a, b *Key) int {
		switch {
		case a.Session != "" && b.Session == "":
			return -1
		case a.Session == "" && b.Session != "":
			return 1
		}
		return cmp.Or(a.Ready.Compare(b.Ready), cmp.Compare(a.Key, b.Key))
	})
}

func (t table) StartSteps(ctx context.Context, space, session string, hold time.Duration, claims []claim.Claim) (begun []claim.Claim, err error) {
	err = t.m.Do(ctx, func(s *Step) error {
		if err := s.requireLive(session); err != nil {
			return err
		}
		for _, c := range claims {
			if k := s.HeldKey(space, session, c.Key, c.Term); k != nil && !k.InStep {
				s.StartStep(k, hold)
				begun = append(begun, c)
			}
		}
		return nil
	})
	return begun, err
}

func (t table) FinishSteps(ctx context.Context, space, session string, done []claim.StepResult) (accepted []string, err error) {
	err = t.m.Do(ctx, func(s *Step) error {
		for _, d := range done {
			k := s.HeldKey(space, session, d.Key, d.Term)
			if k == nil {
				continue
			}
			s.FinishStep(k)
			k.Idle, k.Ready = d.Idle, s.Now.Add(d.In)
			if at := k.Offered; !at.IsZero() && (k.Idle || at.Before(k.Ready)) {
				k.Idle, k.Ready = false, at
			}
			k.Offered = time.Time{}
			if d.Release {
				s.ReleaseKey(space, k)
			}
			accepted = append(accepted, d.Key)
		}
		return nil
	})
	return accepted, err
}

func (t table) Release(ctx context.Context, space, session string, claims []claim.Claim) error {
	return t.m.Do(ctx, func(s *Step) error {
		for _, c := range claims {
			if k := s.HeldKey(space, session, c.Key, c.Term); k != nil {
				s.ReleaseKey(space, k)
			}
		}
		return nil
	})
}

func (t table) List(ctx context.Context, q claim.Query) (rows []claim.Row, err error) {
	err = t.m.Do(ctx, func(s *Step) error {
		keys := s.space(q.Space).keys
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			wanted := key > q.After && (q.Session == "" || q.Session == keys[key].Session)
			if wanted && len(rows) < q.PageSize() {
				rows = append(rows, s.Row(keys[key]))
			}
		}
		return nil
	})
	return rows, err
}
