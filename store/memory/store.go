package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/internal/memstore/queues"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Store    = (*Store)(nil)
	_ store.Queues   = (*Store)(nil)
	_ store.Monitors = (*Store)(nil)
)

// forgetAfter is how long a session that is over is remembered, so that whoever
// looks can tell an ended session from one that never was.
const forgetAfter = 24 * time.Hour

// Store is a store in memory. Its methods hold one lock, and never across
// anything that waits.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	sessions map[string]*session
	leases   map[lease.ID]*row
	states   map[lease.ID]lease.State
	waiting  map[lease.ID][]string // session ids in the order in which they joined
	events   []history.Event
	lastID   int64
	watchers map[int]func(lease.Change)
	nextW    int
	shards   shards
	tokens   []access.Token
	jobs     map[string]*jobRow

	queues *queues.Memory
	checks *checks.Memory
}

// The rows of sessions, leases, nodes, failover locks and commands are written as JSON by [Snapshot.Encode]. SableDB keeps that, so
// that their tags must stay.

type session struct {
	lease.Session
	Deadline time.Time `json:"deadline"`
}

type row struct {
	ID        lease.ID       `json:"id"`
	Term      int64          `json:"term"`
	Session   string         `json:"session,omitempty"`
	Holder    lease.Instance `json:"holder,omitzero"`
	Since     time.Time      `json:"since"`
	Successor string         `json:"successor,omitempty"`
	Reserved  time.Time      `json:"reserved,omitzero"`
	Asked     bool           `json:"asked,omitempty"`
	AskedFor  string         `json:"asked_for,omitempty"`
	Places    int            `json:"places,omitempty"`
}

// New returns an empty store whose clock is now; nil is time.Now.
func New(now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	s := &Store{
		now: now, sessions: map[string]*session{}, leases: map[lease.ID]*row{}, states: map[lease.ID]lease.State{},
		waiting: map[lease.ID][]string{}, watchers: map[int]func(lease.Change){},
		shards: newShards(), jobs: map[string]*jobRow{},
	}
	s.queues = queues.NewMemory(s, now)
	s.checks = checks.NewMemory(checks.Options{Clock: now, Sessions: s, History: s, Queues: s.queues.QueueAdmin()})
	return s
}

// Claims implements [store.Queues].
func (s *Store) Claims() claim.KeyTable { return s.queues.Claims() }

// Queue implements [store.Queues].
func (s *Store) Queue() dispatch.Queue { return s.queues.Queue() }

// QueueAdmin implements [store.Queues].
func (s *Store) QueueAdmin() dispatch.Admin { return s.queues.QueueAdmin() }

// Monitor implements [store.Monitors].
func (s *Store) Monitor() monitor.Store { return monitor.Validated(s.checks) }

// StartSession implements [lease.Store].
func (s *Store) StartSession(_ context.Context, n lease.Session) (lease.Renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if _, used := s.sessions[n.ID]; used {
		return lease.Renewal{}, fmt.Errorf("session %s was used before: %w", n.ID, lease.ErrLapsed)
	}
	s.forget(now)
	n.Seq, n.Started, n.Ended = 1, now, false
	s.sessions[n.ID] = &session{Session: n, Deadline: now.Add(n.Timing.Timeout)}
	return lease.Renewal{Seq: 1}, nil
}

// forget drops sessions that have been over for long and hold nothing.
func (s *Store) forget(now time.Time) {
	holding := map[string]bool{}
	for _, r := range s.leases {
		holding[r.Session] = true
	}
	for id, old := range s.sessions {
		if now.Sub(old.Deadline) > forgetAfter && !holding[id] {
			delete(s.sessions, id)
			for of := range s.waiting {
				s.leave(of, id)
			}
		}
	}
}

// RenewSession implements [lease.Store].
func (s *Store) RenewSession(_ context.Context, id string) (lease.Renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	n, err := s.alive(id, now)
	if err != nil {
		if known := s.sessions[id]; known != nil {
			known.Ended = true
		}
		return lease.Renewal{}, err
	}
	n.Seq++
	n.Deadline = now.Add(n.Timing.Timeout)
	r := lease.Renewal{Seq: n.Seq}
	for _, l := range s.leases {
		if l.Session == id && l.Asked {
			r.Changes += l.Term
		}
	}
	for of, waiting := range s.waiting {
		if slices.Contains(waiting, id) {
			r.Waits = append(r.Waits, s.showTo(id, of, now))
		}
	}
	return r, nil
}

func (s *Store) alive(id string, now time.Time) (*session, error) {
	n := s.sessions[id]
	if n == nil || !n.alive(now) {
		return nil, fmt.Errorf("session %s: %w", id, lease.ErrLapsed)
	}
	return n, nil
}

func (n *session) alive(now time.Time) bool { return !n.Ended && now.Before(n.Deadline) }

// EndSession implements [lease.Store].
func (s *Store) EndSession(_ context.Context, id, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil {
		return nil
	}
	now := s.now()
	if !n.Ended {
		n.Ended, n.Deadline = true, now
	}
	for _, r := range s.leases {
		if r.Session == id {
			s.free(r, now, lease.TruncateReason(reason), "", time.Time{})
		}
	}
	for of := range s.waiting {
		s.leave(of, id)
	}
	return nil
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(_ context.Context, c lease.Expectation) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquire(c, func(lease.Lease) error { return nil })
}

// acquire acquires a lease unless also, which gets it as it will be, returns an error.
func (s *Store) acquire(c lease.Expectation, also func(lease.Lease) error) (lease.Lease, error) {
	now := s.now()
	me, err := s.alive(c.Session, now)
	if err != nil {
		return lease.Lease{}, err
	}
	current := s.showTo(c.Session, c.Lease, now)
	if current.Session == c.Session {
		return current, also(current)
	}
	reason, ok := c.Permits(current, me.Instance)
	if !ok {
		return current, fmt.Errorf("%s: %w", c.Lease, lease.ErrHeld)
	}
	r := s.leases[c.Lease]
	if r == nil {
		r = &row{ID: c.Lease, Since: now, Term: s.forgottenTerm()}
	}
	term := max(r.Term+1, now.UnixMilli())
	if err := also(lease.Lease{ID: c.Lease, Term: term, Session: c.Session, Holder: me.Instance}); err != nil {
		return lease.Lease{}, err
	}
	s.leases[c.Lease] = r
	from, vacant := "", now.Sub(r.Since)
	if old := s.sessions[r.Session]; old != nil {
		vacant = max(0, now.Sub(old.Deadline))
		old.Ended = true
	}
	if reason == history.Lapsed {
		from = r.Holder.Label()
	}
	*r = row{ID: c.Lease, Term: term, Session: c.Session, Holder: me.Instance, Since: now, Places: c.Places}
	s.leave(c.Lease, c.Session)
	s.record(now, history.Event{
		Part: c.Lease.Space, Subject: c.Lease.Key, From: from, To: me.Instance.Label(),
		Term: r.Term, Reason: reason, Duration: vacant,
	}, lease.Change{Lease: c.Lease, Term: r.Term})
	return s.show(c.Lease, now), nil
}

// Release implements [lease.Store].
func (s *Store) Release(_ context.Context, h lease.ReleaseRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release(h)
}

func (s *Store) release(h lease.ReleaseRequest) error {
	r := s.leases[h.Lease]
	if r == nil || r.Session != h.Session || r.Term != h.Term || h.Session == "" {
		return fmt.Errorf("%s under term %d: %w", h.Lease, h.Term, lease.ErrNotHeld)
	}
	now := s.now()
	s.free(r, now, lease.TruncateReason(h.Reason), h.Successor, now.Add(h.Reserve))
	return nil
}

func (s *Store) free(r *row, now time.Time, reason, successor string, reserved time.Time) {
	e := history.Event{
		Part: r.ID.Space, Subject: r.ID.Key, From: r.Holder.Label(),
		Term: r.Term, Reason: reason, Duration: now.Sub(r.Since),
	}
	*r = row{ID: r.ID, Term: r.Term, Since: now, Successor: successor, Reserved: reserved}
	s.record(now, e, lease.Change{Lease: r.ID, Term: r.Term, Free: true, Successor: successor})
}

// WriteState implements [lease.StateStore].
func (s *Store) WriteState(_ context.Context, id lease.ID, term int64, data []byte) error {
	if err := lease.ValidateState(data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.leases[id]; r == nil || r.Session == "" || r.Term != term {
		return fmt.Errorf("%s under term %d: %w", id, term, lease.ErrNotHeld)
	}
	s.states[id] = lease.State{Data: slices.Clone(data), Term: term}
	return nil
}

// ReadState implements [lease.StateStore].
func (s *Store) ReadState(_ context.Context, id lease.ID) (lease.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[id]
	state.Data = slices.Clone(state.Data)
	return state, nil
}

// Get implements [lease.Store].
func (s *Store) Get(_ context.Context, id lease.ID) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.show(id, s.now()), nil
}

// List implements [lease.Store].
func (s *Store) List(_ context.Context, space, after string, limit int) ([]lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []lease.Lease
	for id := range s.leases {
		if id.Space == space && id.Key > after {
			out = append(out, s.show(id, s.now()))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out[:min(len(out), lease.ListLimit(limit))], nil
}

func (s *Store) show(id lease.ID, now time.Time) lease.Lease { return s.showTo("", id, now) }

// showTo shows the lease to a session, which may wait for it.
func (s *Store) showTo(session string, id lease.ID, now time.Time) lease.Lease {
	l := lease.Lease{ID: id}
	for _, w := range s.waiting[id] {
		if w == session {
			break
		}
		if n := s.sessions[w]; n != nil && n.alive(now) {
			l.Waiting++
		}
	}
	r := s.leases[id]
	if r == nil {
		return l
	}
	l.Term, l.Session, l.Since, l.Age = r.Term, r.Session, r.Since, now.Sub(r.Since)
	l.Successor, l.ReleaseRequested, l.RequestedSuccessor = r.Successor, r.Asked, r.AskedFor
	if r.Successor != "" {
		l.Reserved = max(0, r.Reserved.Sub(now))
	}
	if r.Session != "" {
		l.Holder, l.Places = r.Holder, r.Places
	}
	if n := s.sessions[r.Session]; n != nil {
		l.Timing, l.Seq, l.Remaining, l.Ended = n.Timing, n.Seq, n.Deadline.Sub(now), n.Ended
	}
	return l
}

// Watch implements [lease.Store].
func (s *Store) Watch(ctx context.Context, wake func(lease.Change)) error {
	s.mu.Lock()
	n := s.nextW
	s.nextW++
	s.watchers[n] = wake
	wake(lease.Change{})
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watchers, n)
	s.mu.Unlock()
	return nil
}

// Wake tells all who watch of a change that is not one of leases.
func (s *Store) Wake(c lease.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake(c)
}

func (s *Store) wake(c lease.Change) {
	for _, wake := range s.watchers {
		wake(c)
	}
}

func (s *Store) record(now time.Time, e history.Event, c lease.Change) {
	s.lastID++
	e.ID, e.At = s.lastID, now
	s.events = append(s.events, e)
	s.wake(c)
	if c.Lease.Space == shard.Space {
		s.shards.tell(c.Lease.Key)
	}
}
