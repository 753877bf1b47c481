package claims

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Backend is the store of sessions under a [Memory].
type Backend interface {
	lease.Store
	lease.Roster
	history.Log
	// Wake tells all who watch the store of a change that is not one of leases.
	Wake(c lease.Change)
}

// Memory is a table of claims in memory on a store of sessions. It also implements
// that store, whose Watch reports the changes of both.
type Memory struct {
	Backend
	now func() time.Time

	mu     sync.Mutex
	spaces map[string]*realm
}

type realm struct {
	keys    map[string]*Key
	members map[string]bool // by session: whether it is asleep
}

// Key is the row of a key.
type Key struct {
	Key         string
	Term        int64
	Session     string // "" when free
	Holder      lease.Instance
	Since       time.Time
	Idle        bool
	Ready       time.Time // when not idle
	Offered     time.Time // when it was offered again during its step; zero: not offered
	InStep      bool
	Until       time.Time // until when the step protects the key
	Interrupted bool
	Blocked     bool // cannot be claimed
}

// NewMemory returns an empty table. Its clock is now, and should be the
// backend's; nil is time.Now.
func NewMemory(b Backend, now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{Backend: b, now: now, spaces: map[string]*realm{}}
}

// Claims returns the table of claims.
func (m *Memory) Claims() claim.KeyTable { return table{m} }

// Step is one atomic operation on a [Memory].
type Step struct {
	Now  time.Time
	m    *Memory
	ctx  context.Context
	live map[string]lease.Session
}

// Do runs one operation. It must not fail after it has changed something.
func (m *Memory) Do(ctx context.Context, op func(*Step) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	sessions, err := m.Sessions(ctx)
	if err != nil {
		return err
	}
	s := &Step{Now: m.now(), m: m, ctx: ctx, live: map[string]lease.Session{}}
	for _, n := range sessions {
		s.live[n.ID] = n
	}
	return op(s)
}

// IsLive reports whether a session is live.
func (s *Step) IsLive(session string) bool {
	_, ok := s.live[session]
	return ok
}

func (s *Step) requireLive(session string) error {
	if !s.IsLive(session) {
		return fmt.Errorf("session %s: %w", session, lease.ErrLapsed)
	}
	return nil
}

// Keys returns all rows of a space by key, to read only.
func (s *Step) Keys(name string) map[string]*Key { return maps.Clone(s.space(name).keys) }

// Key returns the row of a key, or nil.
func (s *Step) Key(name, key string) *Key { return s.space(name).keys[key] }

// Forget deletes all rows of a space.
func (s *Step) Forget(name string) { delete(s.m.spaces, name) }

// Members returns the live members and whether each is asleep.
func (s *Step) Members(name string) map[lease.Instance]bool {
	out := map[lease.Instance]bool{}
	for id, asleep := range s.space(name).members {
		if n, ok := s.live[id]; ok {
			out[n.Instance] = asleep
		}
	}
	return out
}

func (s *Step) space(name string) *realm {
	sp := s.m.spaces[name]
	if sp == nil {
		sp = &realm{keys: map[string]*Key{}, members: map[string]bool{}}
		s.m.spaces[name] = sp
	}
	return sp
}

// HeldKey returns the row of a key if the session holds it under the term, otherwise nil.
func (s *Step) HeldKey(name, session string, key string, term int64) *Key {
	k := s.space(name).keys[key]
	if k == nil || session == "" || k.Session != session || k.Term != term {
		return nil
	}
	return k
}

// Offer creates a key or makes it ready at a time, unless it is ready sooner.
func (s *Step) Offer(name, key string, at time.Time) {
	sp := s.space(name)
	k := sp.keys[key]
	if k == nil {
		k = &Key{Key: key, Since: s.Now, Idle: true}
		sp.keys[key] = k
	}
	switch {
	case k.InStep && (k.Offered.IsZero() || at.Before(k.Offered)):
		k.Offered = at
	case !k.InStep && (k.Idle || at.Before(k.Ready)):
		k.Idle, k.Ready = false, at
	}
	s.wakeIfReady(name, k)
}

// StartStep starts a step that protects the key for hold.
func (s *Step) StartStep(k *Key, hold time.Duration) {
	k.InStep, k.Until, k.Offered = true, s.Now.Add(hold), time.Time{}
}

// FinishStep ends a step.
func (s *Step) FinishStep(k *Key) { k.InStep, k.Interrupted = false, false }

// ReleaseKey releases a key. A key that is ready counts as ready from now on.
func (s *Step) ReleaseKey(name string, k *Key) {
	if s.isReady(k) {
		k.Ready = s.Now
	}
	k.Interrupted = k.Interrupted || k.InStep
	k.InStep, k.Session, k.Holder, k.Since = false, "", lease.Instance{}, s.Now
	s.wakeIfReady(name, k)
}

// wakeIfReady wakes sleeping members if the key is free and ready.
func (s *Step) wakeIfReady(name string, k *Key) {
	if k.Session != "" || !s.isReady(k) {
		return
	}
	slept := false
	for id, asleep := range s.space(name).members {
		slept = slept || asleep && s.IsLive(id)
		s.space(name).members[id] = false
	}
	if slept {
		s.m.Wake(lease.Change{Lease: claim.WakeID(name), Free: true})
	}
}

func (s *Step) isReady(k *Key) bool { return !k.Idle && !k.Blocked && !k.Ready.After(s.Now) }

// isClaimable reports whether ClaimKeys may hand out the key.
func (s *Step) isClaimable(k *Key) bool { return s.Row(k).IsFree() && s.isReady(k) }

// Row returns a key as the table lists it.
func (s *Step) Row(k *Key) claim.Row {
	r := claim.Row{
		Key: k.Key, Term: k.Term, Session: k.Session, Holder: k.Holder, Since: k.Since, Idle: k.Idle,
		Lapsed: k.Session != "" && !s.IsLive(k.Session), InStep: k.InStep, Interrupted: k.Interrupted,
	}
	if !k.Idle {
		r.In = k.Ready.Sub(s.Now)
	}
	if k.InStep {
		r.Hold = k.Until.Sub(s.Now)
	}
	return r
}

// RecordEvent appends an event to the history.
func (s *Step) RecordEvent(e history.Event) error { return s.m.Append(s.ctx, e) }
