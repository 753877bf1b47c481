package monitortest

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
)

// Rig is one empty store under test.
type Rig struct {
	Table monitor.Store
	// Open returns another handle on the same store, as another process would have
	// it. The rig closes it when the test ends. Nil: Table serves for both.
	Open func(t *testing.T) monitor.Store
	// Step moves the store's clock by d: forward as time passes, wall clock and boot
	// clock alike; when d is negative, as a wall clock is set back. Between steps the
	// clock may run on or stand still. Nil: what needs it is skipped.
	Step func(t *testing.T, d time.Duration)
	// Sent reads the notices that were enqueued for a sink, in their order at least
	// key by key. Nil: what needs it is skipped.
	Sent func(t *testing.T, sink string) []monitor.Notification
	// Sessions are the store's, for members. Nil: the table takes any session for one that lives.
	Sessions lease.Store
	// History is the store's. Nil: what needs it is skipped.
	History history.Log
	// View reads an SQL view: its columns, and its rows, each value as text ("" for
	// NULL). Nil: what needs it is skipped.
	View func(t *testing.T, name string) (columns []string, rows [][]string)
}

// Run puts a store through the suite; newRig returns an empty one for each test.
// Names that begin with a D and a number are defects that a former program had.
func Run(t *testing.T, newRig func(t *testing.T) Rig) {
	for name, test := range conformance() {
		t.Run(name, func(t *testing.T) { try(t, t, newRig(t), test) })
	}
}

// Try runs one test of the suite on a store, and reports what it finds to another test than its own. Broken stores prove
// the suite with it.
func Try(t *testing.T, report testing.TB, r Rig, name string) {
	test := conformance()[name]
	if test == nil {
		t.Fatalf("no test is called %q", name)
	}
	try(t, report, r, test)
}

// try puts one store through one test, which tells report what it finds.
func try(t *testing.T, report testing.TB, r Rig, test func(*bench)) {
	b := &bench{TB: report, t: t, rig: r, Store: r.Table, ctx: leasetest.Amply(t), session: lease.NewID()}
	if r.Sessions != nil {
		b.session = b.begin("first")
	}
	test(b)
}

// conformance is the suite.
func conformance() map[string]func(*bench) {
	all := map[string]func(*bench){}
	for _, part := range []map[string]func(*bench){
		resolveTests(), storeTests(), pathTests(), dueTests(), applyTests(), turnTests(), groupTests(),
		sweepTests(), configTests(), actTests(), listTests(), overviewTests(), viewTests(), raceTests(), reportTests(), reminderTests(),
	} {
		for name, test := range part {
			if all[name] != nil {
				panic("two tests are called " + name)
			}
			all[name] = test
		}
	}
	return all
}
