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

// Backend is the store of sessions that a [Memory] stands on.
type Backend interface {
	lease.Store
	lease.Roster
	history.Log
}

// Memory is a table of claims in memory, on a store of sessions. It is that
// store as well, so that its Watch brings the changes of both.
type Memory struct {
	Backend
	now func() time.Time

	mu       sync.Mutex
	spaces   map[string]*realm
	watchers map[int]func(lease.Change)
	nextW    int
}

type realm struct {
	keys    map[string]*Key
	members map[string]bool // by session: whether it is asleep
}

// Key is the row of a key.
type Key struct {
	Key         string
	Term        int64
	Session     string // "" is nobody
	Holder      lease.Instance
	Since       time.Time
	Idle        bool
	Ready       time.Time // when not idle
	Offered     time.Time // to be ready, since its step began; zero is not
	InStep      bool
	Until       time.Time // how long the step keeps others from the key
	Interrupted bool
	Blocked     bool // not taken while it is free
}

// NewMemory returns an empty table. Its clock is now, and should be the
// backend's; nil is time.Now.
func NewMemory(b Backend, now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{Backend: b, now: now, spaces: map[string]*realm{}, watchers: map[int]func(lease.Change){}}
}

// Claims is the table of claims.
func (m *Memory) Claims() claim.KeyTable { return table{m} }

// Watch implements [lease.Store].
func (m *Memory) Watch(ctx context.Context, wake func(lease.Change)) error {
	m.mu.Lock()
	n := m.nextW
	m.nextW++
	m.watchers[n] = wake
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.watchers, n)
		m.mu.Unlock()
	}()
	return m.Backend.Watch(ctx, wake)
}

// Step is one operation on a [Memory], of which nobody sees a part.
type Step struct {
	Now  time.Time
	m    *Memory
	ctx  context.Context
	live map[string]lease.Session
}

// Do carries one operation out. It must not fail once it has changed something.
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

// Live tells whether a session lives.
func (s *Step) Live(session string) bool {
	_, ok := s.live[session]
	return ok
}

func (s *Step) needs(session string) error {
	if !s.Live(session) {
		return fmt.Errorf("session %s: %w", session, lease.ErrLapsed)
	}
	return nil
}

// Keys are all rows of a space, to be looked at, by key.
func (s *Step) Keys(name string) map[string]*Key { return maps.Clone(s.space(name).keys) }

// Key is the row of a key, and nil if there is none.
func (s *Step) Key(name, key string) *Key { return s.space(name).keys[key] }

// Members are those who joined and live, and whether they are asleep.
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

// Held is the row of a key if the session holds it under the term, and nil
// otherwise.
func (s *Step) Held(name, session string, key string, term int64) *Key {
	k := s.space(name).keys[key]
	if k == nil || session == "" || k.Session != session || k.Term != term {
		return nil
	}
	return k
}

// Offer makes a key ready, if it is not ready sooner, and creates it.
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
	s.wakeIf(name, k)
}

// Begin begins a step.
func (s *Step) Begin(k *Key, hold time.Duration) {
	k.InStep, k.Until, k.Offered = true, s.Now.Add(hold), time.Time{}
}

// Finish ends a step.
func (s *Step) Finish(k *Key) { k.InStep, k.Interrupted = false, false }

// Free gives a key back. If it is ready, it is so from now on.
func (s *Step) Free(name string, k *Key) {
	if s.ready(k) {
		k.Ready = s.Now
	}
	k.Interrupted = k.Interrupted || k.InStep
	k.InStep, k.Session, k.Holder, k.Since = false, "", lease.Instance{}, s.Now
	s.wakeIf(name, k)
}

// wakeIf wakes those who sleep, if the key is free and ready.
func (s *Step) wakeIf(name string, k *Key) {
	if k.Session != "" || !s.ready(k) {
		return
	}
	slept := false
	for id, asleep := range s.space(name).members {
		slept = slept || asleep && s.Live(id)
		s.space(name).members[id] = false
	}
	if slept {
		for _, wake := range s.m.watchers {
			wake(lease.Change{Lease: claim.WakeID(name), Free: true})
		}
	}
}

func (s *Step) ready(k *Key) bool { return !k.Idle && !k.Blocked && !k.Ready.After(s.Now) }

// free is the rule of claim.Row.IsFree and claim.KeyTable.ClaimKeys.
func (s *Step) free(k *Key) bool { return s.Row(k).IsFree() && s.ready(k) }

// Row is a key as a table shows it.
func (s *Step) Row(k *Key) claim.Row {
	r := claim.Row{
		Key: k.Key, Term: k.Term, Session: k.Session, Holder: k.Holder, Since: k.Since, Idle: k.Idle,
		Lapsed: k.Session != "" && !s.Live(k.Session), InStep: k.InStep, Interrupted: k.Interrupted,
	}
	if !k.Idle {
		r.In = k.Ready.Sub(s.Now)
	}
	if k.InStep {
		r.Hold = k.Until.Sub(s.Now)
	}
	return r
}

// Event records what changed hands.
func (s *Step) Event(e history.Event) error { return s.m.Append(s.ctx, e) }
