package dispatchtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// Store is a store of sessions and claims that keeps queues too.
type Store interface {
	claimtest.Store
	Queue() dispatch.Queue
	QueueAdmin() dispatch.Admin
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
		"order/of a key":                              testOrder,
		"order/within and across calls":               testOrderOfCalls,
		"order/one in flight":                         testOneInFlight,
		"order/keys do not wait for each other":       testKeysApart,
		"turn/settle and begin at once":               testSettleAndBegin,
		"turn/again":                                  testAgain,
		"turn/an attempt that was not sent":           testUnsent,
		"turn/hold":                                   testHold,
		"turn/hold is taken over":                     testHoldTakenOver,
		"turn/hold is given up":                       testHoldGivenUp,
		"turn/block":                                  testBlock,
		"turn/stuck":                                  testStuck,
		"turn/stuck ends":                             testStuckEnds,
		"act/stuck, retry":                            testStuckActs(dispatch.RetryUnknown),
		"act/stuck, skip":                             testStuckActs(dispatch.Skip),
		"act/stuck, cancel":                           testStuckActs(dispatch.Cancel),
		"turn/a key without a head is given back":     testIdle,
		"turn/standing of what is not held":           testLost,
		"turn/asked anew":                             testAnew,
		"turn/many keys, and none":                    testMany,
		"turn/what cannot be is refused":              testRefusedTurns,
		"turn/large answers come in parts":            testLargePolls,
		"turn/payloads are exact":                     testPayloads,
		"turn/hostile text is only data":              testHostileText,
		"result/under an old term":                    testOldTerm,
		"result/not of the head":                      testNotHead,
		"result/from a lapsed holder":                 testLapsedResult,
		"interrupted/is asked first":                  testInterrupted,
		"interrupted/again while it is asked":         testInterruptedAsk,
		"interrupted/by a release":                    testReleaseInStep,
		"window/keeps others out":                     testWindow,
		"add/duplicates":                              testDuplicates,
		"add/headers":                                 testHeaders,
		"scheduled/not before its time":               testScheduled,
		"scheduled/order":                             testScheduledOrder,
		"scheduled/for the past":                      testScheduledPast,
		"scheduled/duplicates":                        testScheduledDuplicates,
		"scheduled/counted":                           testScheduledCounted,
		"scheduled/pruned":                            testScheduledPruned,
		"scheduled/cancel":                            testScheduledCancel,
		"scheduled/shown":                             testScheduledShown,
		"scheduled/removed with its queue":            testScheduledRemoved,
		"scheduled/wakes":                             testScheduledWakes,
		"scheduled/many":                              testScheduledMany,
		"add/duplicates at once":                      testDuplicatesRace,
		"add/all or none":                             testAllOrNone,
		"add/an idle key is ready, a waiting one not": testAddReady,
		"add/queues are apart":                        testQueuesApart,
		"trail/of each path":                          testTrail,
		"trail/of actions":                            testActTrail,
		"trail/is bounded":                            testTrailBounded,
		"act/in every state":                          testActions,
		"act/retry of one that was skipped":           testRetrySkipped,
		"act/retry in place":                          testRetryInPlace,
		"act/retry at the end":                        testRetryAtEnd,
		"act/skip":                                    testSkip,
		"act/cancel":                                  testCancel,
		"act/what is under way is left alone":         testActInFlight,
		"act/of nothing":                              testActNothing,
		"act/is recorded":                             testActRecorded,
		"wake/by new work":                            testWakeByAdd,
		"wake/by a result":                            testWakeByResult,
		"wake/by a person":                            testWakeByAct,
		"admin/queues":                                testQueues,
		"admin/keys":                                  testKeys,
		"admin/messages":                              testMessages,
		"admin/one message":                           testBatch,
		"remove/empty or named":                       testRemove,
		"remove/not while it is delivered":            testRemoveJoined,
		"remove/many":                                 testRemoveMany,
		"prune/keeps what is not over":                testPrune,
		"prune/numbers never restart":                 testPruneSeq,
		"prune/dead letters are not done":             testDeadLetters,
		"prune/in small steps":                        testPruneSteps,
		"race/idle and enqueue":                       testIdleRace,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			s := h.Open(t)
			b := &bench{T: t, Store: s, Admin: s.QueueAdmin(), Queue: s.Queue(), Claims: s.Claims(), ctx: leasetest.Amply(t), h: h}
			for range 2 { // twice is no error
				if err := b.Admin.CreateQueue(b.ctx, q); err != nil {
					b.Fatalf("Make: %v", err)
				}
			}
			test(b)
		})
	}
}

// The timing of the suite's sessions, and the window of its steps. The clock is
// stepped, never waited for; slack is what a store whose clock runs on may be
// off by.
var timing = lease.Timing{Interval: time.Minute, Timeout: 5 * time.Minute}

const (
	window = 20 * time.Minute
	slack  = 30 * time.Second
	q      = "orders"
)

// bench is one test with its store. Most of the suite works on one queue.
type bench struct {
	*testing.T
	Store  Store
	Admin  dispatch.Admin
	Queue  dispatch.Queue
	Claims claim.KeyTable
	ctx    context.Context
	h      *Harness
}

func (b *bench) step(d time.Duration) {
	b.Helper()
	if b.h.Step == nil {
		b.Skip("this store's clock cannot be stepped")
	}
	b.h.Step(b.T, d)
}

func (b *bench) session(name string) lease.Session {
	b.Helper()
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:80"), Timing: timing}
	if _, err := b.Store.StartSession(b.ctx, s); err != nil {
		b.Fatalf("StartSession(%s): %v", name, err)
	}
	return s
}

// add enqueues messages of one key; each one's payload is its id.
func (b *bench) add(key string, ids ...string) {
	b.Helper()
	for i, ok := range b.tryAdd(key, ids...) {
		if !ok {
			b.Fatalf("%q was taken for a duplicate", ids[i])
		}
	}
}

func (b *bench) tryAdd(key string, ids ...string) []bool {
	b.Helper()
	messages := make([]dispatch.Message, len(ids))
	for i, id := range ids {
		messages[i] = dispatch.Message{Queue: q, Key: key, ID: id, Payload: []byte(id)}
	}
	added, err := b.Admin.Add(b.ctx, messages)
	if err != nil || len(added) != len(ids) {
		b.Fatalf("Add(%q) = %v, %v", ids, added, err)
	}
	return added
}

// takes takes what there is, and expects these keys. The claims are in the order
// of the names.
func (b *bench) takes(s lease.Session, keys ...string) []claim.Claim {
	b.Helper()
	got, err := b.Claims.ClaimKeys(b.ctx, claim.ClaimRequest{Space: dispatch.Space(q), Session: s.ID, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
	if err != nil {
		b.Fatalf("ClaimKeys: %v", err)
	}
	found := map[string]claim.Claim{}
	for _, c := range got {
		found[c.Key] = c
	}
	out := make([]claim.Claim, 0, len(keys))
	for _, key := range keys {
		if c, ok := found[key]; ok {
			out = append(out, c)
		}
	}
	if len(out) != len(keys) || len(got) != len(keys) {
		b.Fatalf("taken %+v, want %q", got, keys)
	}
	return out
}

func (b *bench) turn(s lease.Session, results []dispatch.Result, begin ...claim.Claim) dispatch.ExchangeResult {
	b.Helper()
	t, err := b.Queue.Exchange(b.ctx, dispatch.Exchange{Queue: q, Session: s.ID, Results: results, Begin: begin, Window: window})
	if err != nil {
		b.Fatalf("Exchange(%+v, %+v): %v", results, begin, err)
	}
	if len(t.Receipts) != len(results) {
		b.Fatalf("%d results, %d settled", len(results), len(t.Receipts))
	}
	for i, r := range results {
		if t.Receipts[i].Key != r.Key || t.Receipts[i].Seq != r.Seq {
			b.Fatalf("result %+v is settled as %+v", r, t.Receipts[i])
		}
	}
	return t
}

// starts takes the one key there is to be taken and starts.
func (b *bench) starts(s lease.Session, key string) dispatch.Assignment {
	b.Helper()
	return b.begins(s, b.takes(s, key)[0])
}

// begins starts with the head of a key, which must be there, whatever is to be
// done with it.
func (b *bench) begins(s lease.Session, c claim.Claim) dispatch.Assignment {
	b.Helper()
	t := b.turn(s, nil, c)
	if len(t.Begun) != 1 || t.Begun[0].Key != c.Key || t.Begun[0].Term != c.Term || t.Holdings[c.Key] != dispatch.InProgress {
		b.Fatalf("begin of %+v: %+v", c, t)
	}
	return t.Begun[0]
}

// settles records a result, which must be accepted.
func (b *bench) settles(s lease.Session, r dispatch.Result, begin ...claim.Claim) dispatch.ExchangeResult {
	b.Helper()
	t := b.turn(s, []dispatch.Result{r}, begin...)
	if !t.Receipts[0].Accepted {
		b.Fatalf("result %+v is not accepted: %+v", r, t)
	}
	return t
}

// stands checks where a key stands after a turn.
func (b *bench) stands(t dispatch.ExchangeResult, key string, want dispatch.Holding) {
	b.Helper()
	if got := t.Holdings[key]; got != want {
		b.Errorf("%s stands %q, want %q", key, got, want)
	}
}

// result is that of an assignment.
func result(a dispatch.Assignment, s dispatch.State, after dispatch.After) dispatch.Result {
	return dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, State: s, After: after, Attempt: a.Attempt}
}

// done is the result that it is committed.
func done(a dispatch.Assignment) dispatch.Result {
	r := result(a, dispatch.Committed, dispatch.Next)
	r.Code = 200
	return r
}

// claimOf is the claim under which an assignment was given.
func claimOf(a dispatch.Assignment) claim.Claim { return claim.Claim{Key: a.Key, Term: a.Term} }

// is checks what an assignment asks for.
func (b *bench) is(a dispatch.Assignment, todo dispatch.Work, id string, attempt int) {
	b.Helper()
	if a.Work != todo || a.ID != id || a.Attempt != attempt || string(a.Payload) != id || a.Queue != q {
		b.Fatalf("assignment %+v, want %s %s, attempt %d", a, todo, id, attempt)
	}
}

func (b *bench) record(id string) dispatch.Record {
	b.Helper()
	r, err := b.Admin.Message(b.ctx, q, id)
	if err != nil {
		b.Fatalf("Message(%q): %v", id, err)
	}
	return r
}

func (b *bench) shows(id string, want dispatch.State) {
	b.Helper()
	if got := b.record(id).State; got != want {
		b.Errorf("%s is %s, want %s", id, got, want)
	}
}

func (b *bench) act(a dispatch.Action, id string) {
	b.Helper()
	if err := b.Admin.Act(b.ctx, q, id, a, "operator"); err != nil {
		b.Fatalf("%s %s: %v", a, id, err)
	}
}

func (b *bench) events(key string) []history.Event {
	b.Helper()
	es, err := b.Store.Read(b.ctx, history.Query{Part: "batch", Subject: q + "/" + key})
	if err != nil {
		b.Fatalf("Read: %v", err)
	}
	return es
}

// wantEvents checks all that the history says of a key, but for when, and under which number.
func (b *bench) wantEvents(key string, want ...history.Event) {
	b.Helper()
	got := b.events(key)
	for i := range min(len(got), len(want)) {
		e, w := got[i], want[i]
		w.ID, w.At, w.Part, w.Subject = e.ID, e.At, "batch", q+"/"+key
		if near := (e.Duration - w.Duration).Abs() < slack; near {
			w.Duration = e.Duration
		}
		if e != w {
			b.Errorf("the history of %s is not what it should be:\n%s", key, cmp.Diff(w, e))
		}
	}
	if len(got) != len(want) {
		b.Errorf("the history of %s has %d events, want %d: %+v", key, len(got), len(want), got)
	}
}

// drains delivers all that is ready and returns the ids in the order of each
// key's delivery.
func (b *bench) drains(s lease.Session) map[string][]string {
	b.Helper()
	out := map[string][]string{}
	for range 10_000 {
		got, err := b.Claims.ClaimKeys(b.ctx, claim.ClaimRequest{Space: dispatch.Space(q), Session: s.ID, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
		if err != nil {
			b.Fatalf("ClaimKeys: %v", err)
		}
		if len(got) == 0 {
			return out
		}
		var results []dispatch.Result
		for len(got) > 0 {
			t := b.turn(s, results, got...)
			results, got = nil, nil
			for _, a := range t.Begun {
				out[a.Key] = append(out[a.Key], a.ID)
				results, got = append(results, done(a)), append(got, claimOf(a))
			}
		}
	}
	b.Fatal("there is no end of it")
	return nil
}

// near reports whether a duration is what it should be, give or take the slack.
func near(got, want time.Duration) bool { return (got - want).Abs() <= slack }

func same(a, b []string) bool { return slices.Equal(a, b) }

// startsAmong starts with one of the keys that can be taken, and takes the others
// too.
func (b *bench) startsAmong(s lease.Session, key string) dispatch.Assignment {
	b.Helper()
	got, err := b.Claims.ClaimKeys(b.ctx, claim.ClaimRequest{Space: dispatch.Space(q), Session: s.ID, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
	if err != nil {
		b.Fatalf("ClaimKeys: %v", err)
	}
	for _, c := range got {
		if c.Key == key {
			return b.begins(s, c)
		}
	}
	b.Fatalf("%s is not there to be taken", key)
	return dispatch.Assignment{}
}
