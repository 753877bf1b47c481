package claimtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// Store is a store of sessions that keeps claims too.
type Store interface {
	lease.Store
	lease.Roster
	history.Log
	Claims() claim.KeyTable
}

// Harness is one empty store under test.
type Harness struct {
	// Open returns another handle on the same store, as another process would
	// have it. The harness closes it when the test ends.
	Open func(t *testing.T) Store
	// Step moves the store's clock, wall clock included, by d, which may be
	// negative. Between steps the clock may run on or stand still. Nil: what
	// needs it is skipped.
	Step func(t *testing.T, d time.Duration)
}

// Run puts a store through the suite; newHarness returns an empty one for each test.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	for name, test := range map[string]func(*bench){
		"keys/offered and withdrawn":                 testOffer,
		"keys/ready in a while":                      testReadyLater,
		"keys/a sooner offer counts":                 testSooner,
		"keys/listed in pages by bytes":              testList,
		"keys/listed by their holder":                testListHeld,
		"keys/rows tell what is":                     testRows,
		"keys/hostile text is only data":             testHostileText,
		"keys/a thousand in a call, and none":        testThousand,
		"keys/spaces are apart":                      testSpaces,
		"take/oldest first":                          testOldestFirst,
		"take/of the dead first":                     testLapsedFirst,
		"take/no more than wanted":                   testMost,
		"take/held is not taken":                     testHeld,
		"take/by a live session only":                testTakerLives,
		"take/terms only grow":                       testTerms,
		"take/what is fresh may be left":             testFresh,
		"take/one of many":                           testOneOfMany,
		"step/begin is a compare-and-set":            testBegin,
		"step/finish makes ready or idle":            testFinish,
		"step/finish by the lapsed, not the deposed": testFinishLapsed,
		"window/first, with no step":                 testFirstWindow,
		"step/offered while it is under way":         testOfferedInAStep,
		"window/second, with a step":                 testSecondWindow,
		"window/a hold of nothing":                   testNoHold,
		"window/counted from the step's begin":       testWindowMoves,
		"window/a session that is ended":             testEnded,
		"interrupted/told until a step is finished":  testInterrupted,
		"interrupted/by a release":                   testReleaseInStep,
		"release/only what is held":                  testRelease,
		"release/behind what waited for longer":      testReleaseOrder,
		"members/counts":                             testJoin,
		"members/the dead do not count":              testDeadMembers,
		"members/keys that are free":                 testFreeKeys,
		"wake/a sleeper, once":                       testWake,
		"wake/one who lives among the dead":          testWakeAmongDead,
		"wake/nobody without need":                   testNoWake,
		"history/takeovers and nothing else":         testEvents,
		"race/begin and take":                        testBeginOrTake,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			s := h.Open(t)
			test(&bench{T: t, Store: s, Table: s.Claims(), ctx: leasetest.Amply(t), h: h})
		})
	}
}

// The timing of the suite's sessions, and how long its steps hold. The clock is
// stepped, never waited for; slack is what a store whose clock runs on may be
// off by.
var timing = lease.Timing{Interval: time.Minute, Timeout: 5 * time.Minute}

const (
	hold  = 20 * time.Minute
	slack = 30 * time.Second
	space = "work"
)

// bench is one test with its store. Most of the suite works in one space.
type bench struct {
	*testing.T
	Store Store
	Table claim.KeyTable
	ctx   context.Context
	h     *Harness
}

func (b *bench) step(d time.Duration) {
	b.Helper()
	if b.h.Step == nil {
		b.Skip("this store's clock cannot be stepped")
	}
	b.h.Step(b.T, d)
}

// session starts a session for a new instance of that name.
func (b *bench) session(name string) lease.Session {
	b.Helper()
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:80"), Timing: timing}
	if _, err := b.Store.StartSession(b.ctx, s); err != nil {
		b.Fatalf("StartSession(%s): %v", name, err)
	}
	return s
}

func (b *bench) renew(s lease.Session) {
	b.Helper()
	if _, err := b.Store.RenewSession(b.ctx, s.ID); err != nil {
		b.Fatalf("RenewSession(%s): %v", s.Instance.Name, err)
	}
}

// outlive lets a session lapse.
func (b *bench) outlive() {
	b.Helper()
	b.step(timing.Timeout + slack)
}

func (b *bench) offer(in time.Duration, keys ...string) {
	b.Helper()
	if err := b.Table.Offer(b.ctx, space, keys, in); err != nil {
		b.Fatalf("Offer(%q): %v", keys, err)
	}
}

// take takes up to most keys for a session, fresh or not.
func (b *bench) take(s lease.Session, most int) []claim.Claim {
	b.Helper()
	return b.want(claim.ClaimRequest{Space: space, Session: s.ID, Limit: most, Fresh: most})
}

func (b *bench) want(w claim.ClaimRequest) []claim.Claim {
	b.Helper()
	got, err := b.Table.ClaimKeys(b.ctx, w)
	if err != nil {
		b.Fatalf("ClaimKeys(%+v): %v", w, err)
	}
	if len(got) > w.Limit {
		b.Fatalf("ClaimKeys of %d took %d", w.Limit, len(got))
	}
	return got
}

// takes takes what there is, and expects these keys.
func (b *bench) takes(s lease.Session, keys ...string) []claim.Claim {
	b.Helper()
	got := b.take(s, claim.MaxKeys)
	b.expect("taken", names(got), keys...)
	slices.SortFunc(got, func(a, b claim.Claim) int { return slices.Compare([]string{a.Key}, []string{b.Key}) })
	return got
}

// takeOne offers a key and takes it.
func (b *bench) takeOne(s lease.Session, key string) claim.Claim {
	b.Helper()
	b.offer(0, key)
	return b.takes(s, key)[0]
}

func (b *bench) begin(s lease.Session, hold time.Duration, claims ...claim.Claim) []claim.Claim {
	b.Helper()
	got, err := b.Table.StartSteps(b.ctx, space, s.ID, hold, claims)
	if err != nil {
		b.Fatalf("StartSteps(%+v): %v", claims, err)
	}
	return got
}

// begins starts a step on each, which must be possible.
func (b *bench) begins(s lease.Session, hold time.Duration, claims ...claim.Claim) {
	b.Helper()
	b.expect("begun", names(b.begin(s, hold, claims...)), names(claims)...)
}

func (b *bench) finish(s lease.Session, done ...claim.StepResult) []string {
	b.Helper()
	got, err := b.Table.FinishSteps(b.ctx, space, s.ID, done)
	if err != nil {
		b.Fatalf("Finish(%+v): %v", done, err)
	}
	return got
}

func (b *bench) release(s lease.Session, claims ...claim.Claim) {
	b.Helper()
	if err := b.Table.Release(b.ctx, space, s.ID, claims); err != nil {
		b.Fatalf("Release(%+v): %v", claims, err)
	}
}

func (b *bench) join(s lease.Session, asleep bool) claim.Share {
	b.Helper()
	got, err := b.Table.Join(b.ctx, claim.Member{Space: space, Session: s.ID, Asleep: asleep})
	if err != nil {
		b.Fatalf("Join(%s): %v", s.Instance.Name, err)
	}
	return got
}

func (b *bench) list(after string, limit int) []claim.Row {
	b.Helper()
	got, err := b.Table.List(b.ctx, claim.Query{Space: space, After: after, Limit: limit})
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	return got
}

// row is the row of a key that must be there.
func (b *bench) row(key string) claim.Row {
	b.Helper()
	for _, r := range b.list("", claim.MaxKeys) {
		if r.Key == key {
			return r
		}
	}
	b.Fatalf("no row for %q", key)
	return claim.Row{}
}

// expect compares keys without regard to their order.
func (b *bench) expect(what string, got []string, want ...string) {
	b.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func names(claims []claim.Claim) []string {
	out := make([]string, 0, len(claims))
	for _, c := range claims {
		out = append(out, c.Key)
	}
	return out
}

// near reports whether a duration is what it should be, give or take the slack.
func near(got, want time.Duration) bool { return (got - want).Abs() <= slack }
