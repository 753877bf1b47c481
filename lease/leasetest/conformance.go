package leasetest

import (
	"context"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// Harness is one empty store under test.
type Harness struct {
	// Open returns another handle on the same store, as another process would
	// have it. The harness closes it when the test ends.
	Open func(t *testing.T) store.Store
	// Step moves the store's clock by d, which may be negative. Between steps
	// the clock may run on or stand still.
	Step func(t *testing.T, d time.Duration)
}

// Run puts a store through the suite; newHarness returns an empty one for each test.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	for name, test := range map[string]func(*bench){
		"session/start renew end":               testSession,
		"session/lapses at T and stays lapsed":  testSessionLapse,
		"acquire/first claim decides":           testFirstClaim,
		"acquire/held is refused and shown":     testHeldIsShown,
		"acquire/lapsed by the store's clock":   testTakeover,
		"acquire/only what was seen":            testSeen,
		"acquire/waited needs no clock":         testWaited,
		"acquire/own session must live":         testOwnSession,
		"acquire/takeover ends the old session": testTakeoverEnds,
		"acquire/one of many":                   testOneOfMany,
		"acquire/types are independent":         testIndependent,
		"acquire/says of how many places":       testPlaces,
		"term/never falls":                      testTerm,
		"release/only by the holder":            testRelease,
		"release/kept for a successor":          testSuccessor,
		"end/releases everything":               testEndSession,
		"state/only the holder writes":          testState,
		"read/get and list":                     testList,
		"read/hostile text is only data":        testHostileText,
		"roster/waiters":                        testWaiters,
		"roster/ask":                            testAsk,
		"roster/sessions":                       testSessions,
		"roster/forget":                         testForget,
		"roster/forget only who is gone":        testForgetRefused,
		"roster/spaces":                         testSpaces,
		"history/every change is an event":      testEvents,
		"history/read and trim":                 testHistoryRead,
		"watch/wakes other handles":             testWatch,
		"watch/renewals change nothing":         testChanges,
		"call/an ended context is no success":   testContext,
		"admin/inspect and migrate":             testAdmin,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			test(&bench{T: t, ctx: Amply(t), h: h, Store: h.Open(t)})
		})
	}
}

// The timing of the suite's sessions. The clock is stepped, never waited for;
// slack is what a store whose clock runs on may be off by.
var timing = lease.Timing{Interval: time.Minute, Timeout: 5 * time.Minute}

const slack = 30 * time.Second

// Amply is a context for what a busy machine may take long for: calls without a deadline get
// one of seconds from the stores.
func Amply(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// bench is one test with its store.
type bench struct {
	*testing.T
	store.Store
	ctx context.Context
	h   *Harness
}

func role(key string) lease.ID { return lease.ID{Space: "role", Key: key} }

// session starts a session for a new instance of that name.
func (b *bench) session(name string) lease.Session {
	b.Helper()
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:80"), Timing: timing}
	r, err := b.StartSession(b.ctx, s)
	if err != nil {
		b.Fatalf("StartSession(%s): %v", name, err)
	}
	s.Seq = r.Seq
	return s
}

func (b *bench) get(id lease.ID) lease.Lease {
	b.Helper()
	l, err := b.Get(b.ctx, id)
	if err != nil {
		b.Fatalf("Get(%s): %v", id, err)
	}
	return l
}

// claim tries to take the lease as it stands now.
func (b *bench) claim(id lease.ID, s lease.Session, waited bool) (lease.Lease, error) {
	b.Helper()
	return b.Acquire(b.ctx, lease.Expectation{Lease: id, Session: s.ID, Seen: b.get(id).Seen(), Waited: waited})
}

// take takes a lease that must be there to be taken.
func (b *bench) take(id lease.ID, s lease.Session) lease.Lease {
	b.Helper()
	l, err := b.claim(id, s, false)
	if err != nil {
		b.Fatalf("Acquire(%s) for %s: %v", id, s.Instance.Name, err)
	}
	if l.Session != s.ID || l.ID != id || l.Term == 0 {
		b.Fatalf("Acquire(%s) for %s succeeded with %+v", id, s.Instance.Name, l)
	}
	return l
}

func (b *bench) release(l lease.Lease, successor string) {
	b.Helper()
	err := b.Release(b.ctx, lease.ReleaseRequest{Lease: l.ID, Session: l.Session, Term: l.Term, Successor: successor, Reserve: timing.Timeout, Reason: "test"})
	if err != nil {
		b.Fatalf("Release(%s): %v", l.ID, err)
	}
}

func (b *bench) renew(s lease.Session) lease.Renewal {
	b.Helper()
	r, err := b.RenewSession(b.ctx, s.ID)
	if err != nil {
		b.Fatalf("RenewSession(%s): %v", s.Instance.Name, err)
	}
	return r
}

func (b *bench) step(d time.Duration) {
	b.Helper()
	b.h.Step(b.T, d)
}

// near reports whether a duration is what it should be, give or take the slack.
func near(got, want time.Duration) bool { return (got - want).Abs() <= slack }
