package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// Join implements [lease.Roster].
func (s *Store) Join(_ context.Context, id lease.ID, session string) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if _, err := s.alive(session, now); err != nil {
		return lease.Lease{}, err
	}
	if !slices.Contains(s.waiting[id], session) {
		s.waiting[id] = append(s.waiting[id], session)
	}
	return s.showTo(session, id, now), nil
}

// Leave implements [lease.Roster].
func (s *Store) Leave(_ context.Context, id lease.ID, session string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(id, session)
	return nil
}

func (s *Store) leave(id lease.ID, session string) {
	s.waiting[id] = slices.DeleteFunc(s.waiting[id], func(w string) bool { return w == session })
	if len(s.waiting[id]) == 0 {
		delete(s.waiting, id)
	}
}

// Waiters implements [lease.Roster].
func (s *Store) Waiters(_ context.Context, space string) ([]lease.Waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var out []lease.Waiter
	for id, waiting := range s.waiting {
		for _, w := range waiting {
			if n, err := s.alive(w, now); err == nil && id.Space == space {
				out = append(out, lease.Waiter{Lease: id, Session: n.show(now)})
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Lease.Key < out[j].Lease.Key })
	return out, nil
}

// RequestRelease implements [lease.Roster].
func (s *Store) RequestRelease(_ context.Context, id lease.ID, successor, who string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.leases[id]
	if r == nil || !s.show(id, now).Held() {
		return fmt.Errorf("%s: %w", id, lease.ErrNotHeld)
	}
	r.Asked, r.AskedFor = true, successor
	s.record(now, history.Event{
		Part: id.Space, Subject: id.Key, From: r.Holder.Label(), To: r.Holder.Label(),
		Term: r.Term, Reason: lease.ReleaseRequestedReason(successor, who), Duration: now.Sub(r.Since),
	}, lease.Change{Lease: id, Term: r.Term})
	return nil
}

// Sessions implements [lease.Roster].
func (s *Store) Sessions(context.Context) ([]lease.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var out []lease.Session
	for id := range s.sessions {
		if n, err := s.alive(id, now); err == nil {
			out = append(out, n.show(now))
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].Started.Before(out[j].Started) || out[i].Started.Equal(out[j].Started) && out[i].ID < out[j].ID
	})
	return out, nil
}

// Forget implements [lease.Roster].
func (s *Store) Forget(_ context.Context, f lease.ForgetRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.show(f.Lease, now)
	if err := f.Permits(l); err != nil {
		return err
	}
	if old := s.sessions[l.Session]; old != nil {
		old.Ended = true // or a clock that is stepped back would let it renew, and trust a lease that is gone
	}
	delete(s.leases, f.Lease)
	delete(s.states, f.Lease)
	s.leases[lease.ID{}] = &row{Term: max(l.Term, s.forgottenTerm())}
	s.record(now, history.Event{Part: l.Space, Subject: l.Key, Term: l.Term, Reason: f.Reason()}, lease.Change{Lease: l.ID, Term: l.Term, Free: true})
	return nil
}

// forgottenTerm is the greatest term of a lease that was forgotten: that of the lease without a name, which nobody can hold.
func (s *Store) forgottenTerm() int64 {
	if r := s.leases[lease.ID{}]; r != nil {
		return r.Term
	}
	return 0
}

// Spaces implements [lease.Roster].
func (s *Store) Spaces(context.Context) ([]lease.SpaceCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for id := range s.leases {
		if id.Space != "" {
			counts[id.Space]++
		}
	}
	out := make([]lease.SpaceCount, 0, len(counts))
	for _, space := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, lease.SpaceCount{Space: space, Leases: counts[space]})
	}
	return out, nil
}

func (n *session) show(now time.Time) lease.Session {
	shown := n.Session
	shown.Remaining = n.Deadline.Sub(now)
	return shown
}

// Append implements [history.Log].
func (s *Store) Append(_ context.Context, e history.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(s.now(), e, lease.Change{})
	return nil
}

// Read implements [history.Log].
func (s *Store) Read(_ context.Context, q history.Query) ([]history.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []history.Event
	for _, e := range s.events {
		if e.ID > q.After && (q.Before == 0 || e.ID < q.Before) &&
			(q.Part == "" || e.Part == q.Part) && (q.Subject == "" || e.Subject == q.Subject) {
			out = append(out, e)
		}
	}
	limit := q.PageSize()
	if q.Newest {
		return out[max(0, len(out)-limit):], nil
	}
	return out[:min(len(out), limit)], nil
}

// Trim implements [history.Log].
func (s *Store) Trim(_ context.Context, keep int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop := max(0, len(s.events)-max(0, keep))
	s.events = slices.Clone(s.events[drop:])
	return int64(drop), nil
}

// Inspect implements [store.Admin].
func (s *Store) Inspect(context.Context) (store.Info, error) {
	return store.Info{Kind: "memory", Location: "memory:", Server: "in this process", Schema: 1, Wanted: 1, Now: s.now().Round(time.Microsecond), Notifies: true}, nil
}

// Migrate implements [store.Admin].
func (s *Store) Migrate(context.Context) (from, to int, err error) { return 1, 1, nil }

// Close implements [store.Admin].
func (s *Store) Close() error { return nil }
