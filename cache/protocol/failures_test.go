package protocol

import (
	"fmt"
	"testing"
	"time"
)

// lonePeer is a peer without others, whose origin has nothing.
func lonePeer() (m *Machine, now Now) {
	now = Now{Boot: time.Hour, Wall: 1_000_000}
	self := memberNamed("A")
	return New(now, Setup{
		Self: self.URL, Members: Members{self}, Incarnation: 1,
		Timings: Timings{}.WithDefaults(), MaxWaiting: 100, Table: newMemoryTable(), Rand: func() float64 { return 0.5 },
	}), now
}

// requestNth asks for a key, and returns how it was refused.
func requestNth(m *Machine, now Now, i int) (refused *Refuse) {
	for _, e := range m.Step(now, Get{Key: fmt.Sprint("key-", i), Until: now.Boot + time.Minute, Token: Token(i + 1)}) {
		switch e := e.(type) {
		case Refuse:
			refused = &e
		case Raise:
			m.Step(now, Raised{To: e.To})
		}
	}
	return refused
}

// fail ends the fetch of a key.
func fail(t *testing.T, m *Machine, now Now, i int) {
	t.Helper()
	k := m.keys[fmt.Sprint("key-", i)]
	if k == nil || k.state != Fetching {
		t.Fatalf("key %d is not fetched", i)
	}
	m.Step(now, Fetched{Key: k.name, Term: k.term, Err: "not found"})
}

// TestFailuresAreBounded: requests for keys that do not exist neither fill the memory nor keep others from theirs.
func TestFailuresAreBounded(t *testing.T) {
	const more = 1000
	m, now := lonePeer()
	for i := range maxFailures { // as fail leaves them
		k := m.key(fmt.Sprint("key-", i))
		k.failure = failure{term: 1, text: "not found", count: 1, until: now.Boot + time.Second}
		m.schedule(k)
	}
	for i := range more {
		requestNth(m, now, maxFailures+i)
		fail(t, m, now, maxFailures+i)
	}
	m.Step(now, Tick{})
	if len(m.keys) != maxFailures || m.failures.Len() != maxFailures || len(m.timers) != maxFailures {
		t.Errorf("%d keys are remembered, %d of them failures, and %d timers", len(m.keys), m.failures.Len(), len(m.timers))
	}
	if m.keys[fmt.Sprint("key-", more-1)] != nil || m.keys[fmt.Sprint("key-", more)] == nil {
		t.Error("it is not the oldest that are forgotten")
	}
	if r := requestNth(m, now, maxFailures); r == nil || r.Reason != OriginFailed {
		t.Errorf("during the back-off: %+v", r)
	}
	if requestNth(m, now, 0) != nil || m.keys["key-0"].state != Fetching {
		t.Error("a key whose failure is forgotten is not fetched")
	}
	m.Step(Now{now.Boot + time.Hour, now.Wall}, Tick{}) // key 0 is given up
	m.Step(Now{now.Boot + 3*time.Hour, now.Wall}, Tick{})
	if len(m.keys)+len(m.timers)+m.failures.Len() != 0 {
		t.Errorf("three hours later: %d keys, %d timers, %d failures", len(m.keys), len(m.timers), m.failures.Len())
	}
}

// TestActiveKeysAreBounded: beyond so many keys that are fetched, no other is begun, and failures do not count.
func TestActiveKeysAreBounded(t *testing.T) {
	m, now := lonePeer()
	requestNth(m, now, 0)
	requestNth(m, now, 1)
	for i := range maxActive - 2 {
		m.key(fmt.Sprint("other-", i)).wanted = true
	}
	if r := requestNth(m, now, 2); r == nil || r.Reason != Overloaded || len(m.keys) != maxActive {
		t.Errorf("with %d keys: %+v", len(m.keys), r)
	}
	m.setup.Table.Put("key-3", Entry{Term: 1, Expire: 1})
	if r := requestNth(m, now, 3); r != nil || m.keys["key-3"] != nil {
		t.Errorf("a key of which there is an old copy: %+v", r)
	}
	if r := requestNth(m, now, 0); r != nil {
		t.Errorf("a key that is fetched: %+v", r)
	}
	fail(t, m, now, 1)
	if r := requestNth(m, now, 2); r != nil {
		t.Errorf("when one has failed: %+v", r)
	}
}
