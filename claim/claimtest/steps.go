package claimtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

func testBegin(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.offer(0, "x", "y")
	got := b.takes(a, "x", "y")
	x := got[0]
	b.expect("begun under an older term", names(b.begin(a, hold, claim.Claim{Key: "x", Term: x.Term - 1})))
	b.expect("begun under a later term", names(b.begin(a, hold, claim.Claim{Key: "x", Term: x.Term + 1})))
	b.expect("begun by another", names(b.begin(c, hold, x)))
	b.expect("begun where there is no key", names(b.begin(a, hold, claim.Claim{Key: "none", Term: x.Term})))
	b.begins(a, hold, x)
	b.expect("begun twice", names(b.begin(a, hold, x)))
	b.expect("begun beside one that is begun", names(b.begin(a, hold, got...)), "y")
	b.finish(a, claim.StepResult{Key: "x", Term: x.Term})
	b.begins(a, hold, x)
}

func testFinish(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.offer(0, "again", "idle", "later", "release")
	got := b.takes(a, "again", "idle", "later", "release")
	b.begins(a, hold, got...)
	b.expect("finished by another", b.finish(c, claim.StepResult{Key: "again", Term: got[0].Term}))
	b.expect("finished under another term", b.finish(a, claim.StepResult{Key: "again", Term: got[0].Term - 1}))
	b.expect("finished", b.finish(a,
		claim.StepResult{Key: "again", Term: got[0].Term},
		claim.StepResult{Key: "idle", Term: got[1].Term, Idle: true, Release: true},
		claim.StepResult{Key: "later", Term: got[2].Term, In: 2 * time.Minute, Release: true},
		claim.StepResult{Key: "release", Term: got[3].Term, Release: true},
	), "again", "idle", "later", "release")
	if r := b.row("again"); r.InStep || r.Session != a.ID || r.Idle {
		b.Errorf("after a step its key is %+v", r)
	}
	if c := b.takes(c, "release")[0]; c.Interrupted {
		b.Error("a step that was finished is told of as interrupted")
	}
	b.step(2*time.Minute + slack)
	b.takes(c, "later")
	b.offer(0, "idle")
	b.takes(c, "idle")
}

func testFinishLapsed(b *bench) {
	a := b.session("a")
	b.offer(0, "x", "y")
	got := b.takes(a, "x", "y")
	b.begins(a, hold, got...)
	b.outlive()
	b.expect("finished by one who lapsed", b.finish(a, claim.StepResult{Key: "x", Term: got[0].Term, Release: true}), "x")
	if r := b.row("x"); r.InStep || r.Interrupted || r.Session != "" {
		b.Errorf("… after which its key is %+v", r)
	}
	b.step(hold)
	c := b.session("c")
	b.takes(c, "x", "y")
	b.expect("finished by one who was deposed", b.finish(a, claim.StepResult{Key: "y", Term: got[1].Term}))
	if r := b.row("y"); !r.Interrupted || r.Session != c.ID {
		b.Errorf("… after which its key is %+v", r)
	}
}

func testFirstWindow(b *bench) {
	a := b.session("a")
	b.offer(0, "busy", "idle", "ready")
	got := b.takes(a, "busy", "idle", "ready")
	b.begins(a, hold, got...)
	b.finish(a, claim.StepResult{Key: "idle", Term: got[1].Term, Idle: true}, claim.StepResult{Key: "ready", Term: got[2].Term})
	b.step(timing.Timeout - slack)
	c := b.session("c")
	b.takes(c)
	b.step(2 * slack)
	if got := b.takes(c, "ready")[0]; got.Interrupted {
		b.Error("taken over with no step, and interrupted")
	}
	b.offer(0, "idle")
	b.takes(c, "idle")
}

// testOfferedInAStep: what is offered during a step is not lost by its finish.
func testOfferedInAStep(b *bench) {
	a := b.session("a")
	for key, end := range map[string]claim.StepResult{
		"idle":  {Idle: true, Release: true},
		"later": {In: time.Hour, Release: true},
		"held":  {Idle: true},
	} {
		x := b.takeOne(a, key)
		b.begins(a, hold, x)
		b.offer(0, key)
		end.Key, end.Term = x.Key, x.Term
		b.finish(a, end)
		if r := b.row(key); r.Idle || r.In > 0 {
			b.Errorf("%s: offered in a step, and then %+v", key, r)
		}
		if err := b.Table.Withdraw(b.ctx, space, []string{key}); err != nil {
			b.Fatal(err)
		}
	}
	x := b.takeOne(a, "once")
	b.begins(a, hold, x)
	b.offer(0, "once")
	b.finish(a, claim.StepResult{Key: x.Key, Term: x.Term})
	b.begins(a, hold, x)
	b.finish(a, claim.StepResult{Key: x.Key, Term: x.Term, Idle: true})
	if r := b.row("once"); !r.Idle {
		b.Errorf("an offer counts for more than the step it came in: %+v", r)
	}
}

func testSecondWindow(b *bench) {
	a := b.session("a")
	x := b.takeOne(a, "x")
	b.begins(a, hold, x)
	b.step(hold - slack)
	c := b.session("c")
	b.takes(c)
	if r := b.row("x"); r.IsFree() {
		b.Errorf("free within the second window: %+v", r)
	}
	b.step(2 * slack)
	if r := b.row("x"); !r.IsFree() {
		b.Errorf("not free past the second window: %+v", r)
	}
	if got := b.takes(c, "x")[0]; !got.Interrupted || got.Term <= x.Term {
		b.Errorf("taken over as %+v from %+v", got, x)
	}
	if r := b.row("x"); r.InStep || !r.Interrupted {
		b.Errorf("the key is %+v", r)
	}
}

func testNoHold(b *bench) {
	a := b.session("a")
	x := b.takeOne(a, "x")
	b.begins(a, 0, x)
	c := b.session("c")
	b.takes(c) // its holder lives
	b.outlive()
	c = b.session("c")
	if got := b.takes(c, "x")[0]; !got.Interrupted {
		b.Error("a step that held nothing was not interrupted")
	}
}

// testWindowMoves: the window counts from the start of the step that is under
// way, not of one before, nor from the taking.
func testWindowMoves(b *bench) {
	a := b.session("a")
	x := b.takeOne(a, "x")
	b.begins(a, hold, x)
	b.step(timing.Timeout - slack)
	b.renew(a)
	b.finish(a, claim.StepResult{Key: "x", Term: x.Term})
	b.begins(a, hold, x)
	b.step(hold - slack)
	b.takes(b.session("c"))
	b.step(2 * slack)
	b.takes(b.session("d"), "x")
}

func testEnded(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.offer(0, "busy", "x")
	got := b.takes(a, "busy", "x")
	b.begins(a, hold, got[0])
	if err := b.Store.EndSession(b.ctx, a.ID, "stopped"); err != nil {
		b.Fatal(err)
	}
	if r := b.row("busy"); !r.Lapsed {
		b.Errorf("a key whose holder's session was ended is %+v", r)
	}
	b.takes(c, "x")
	b.step(hold + slack)
	b.takes(b.session("d"), "busy", "x")
}

func testInterrupted(b *bench) {
	a := b.session("a")
	b.begins(a, 0, b.takeOne(a, "x"))
	b.outlive()
	c := b.session("c")
	b.takes(c, "x") // and dies before it starts
	b.outlive()
	d := b.session("d")
	x := b.takes(d, "x")[0]
	if !x.Interrupted {
		b.Error("a second takeover forgot the interruption")
	}
	b.release(d, x)
	if x = b.takes(d, "x")[0]; !x.Interrupted {
		b.Error("a release forgot the interruption")
	}
	b.begins(d, hold, x)
	if r := b.row("x"); !r.Interrupted {
		b.Error("a begin forgot the interruption")
	}
	b.finish(d, claim.StepResult{Key: "x", Term: x.Term, Release: true})
	if x = b.takes(d, "x")[0]; x.Interrupted {
		b.Error("a finished step left the interruption")
	}
}

func testReleaseInStep(b *bench) {
	a, c := b.session("a"), b.session("c")
	x := b.takeOne(a, "x")
	b.begins(a, hold, x)
	b.release(a, x)
	if r := b.row("x"); r.InStep || !r.Interrupted || r.Session != "" {
		b.Errorf("released in a step, the key is %+v", r)
	}
	if x = b.takes(c, "x")[0]; !x.Interrupted {
		b.Error("released in a step, and not interrupted")
	}
	b.begins(c, hold, x)
}

func testRelease(b *bench) {
	a, c := b.session("a"), b.session("c")
	b.offer(0, "x", "y")
	got := b.takes(a, "x", "y")
	b.release(c, got...)
	b.release(a, claim.Claim{Key: "x", Term: got[0].Term - 1}, claim.Claim{Key: "none", Term: 1})
	b.takes(c)
	b.release(a, got[0])
	b.release(a, got[0]) // twice is no error
	if r := b.row("x"); r.Session != "" || r.Term != got[0].Term || r.Idle {
		b.Errorf("released, the key is %+v", r)
	}
	b.expect("begun after a release", names(b.begin(a, hold, got[0])))
	b.takes(c, "x")
	b.release(a, got[0]) // does not touch the next holder's
	b.takes(a)
	// An idle key stays idle.
	y := got[1]
	b.begins(a, hold, y)
	b.finish(a, claim.StepResult{Key: "y", Term: y.Term, Idle: true})
	b.release(a, y)
	b.takes(c)
}

// testReleaseOrder: what is given back goes behind what has waited for longer.
func testReleaseOrder(b *bench) {
	a := b.session("a")
	b.offer(0, "x", "later")
	got := b.takes(a, "later", "x")
	b.begins(a, hold, got[0])
	b.finish(a, claim.StepResult{Key: "later", Term: got[0].Term, In: 3 * time.Minute})
	b.step(time.Minute)
	b.offer(0, "y")
	b.step(time.Minute)
	b.release(a, got...)
	b.step(slack)
	b.expect("taken", names(b.take(a, 1)), "y")
	b.takes(a, "x")
	b.step(time.Minute)
	b.takes(a, "later") // which stayed as it was
}

// testBeginOrTake has a holder begin and another take at the very moment of the
// lapse: never do both succeed. Steps of the clock race with both.
func testBeginOrTake(b *bench) {
	const rounds, keys = 10, 8
	taker := b.h.Open(b.T).Claims()
	for round := range rounds {
		a := b.session("a")
		all := make([]string, keys)
		for i := range all {
			all[i] = fmt.Sprintf("r%d-%d", round, i)
		}
		b.offer(0, all...)
		mine := b.takes(a, all...)
		b.step(timing.Timeout - time.Second/2)
		c := b.session("c")
		var begun, taken []string
		var both sync.WaitGroup
		both.Go(func() {
			for _, x := range mine {
				got, err := b.Table.StartSteps(b.ctx, space, a.ID, hold, []claim.Claim{x})
				if err == nil {
					begun = append(begun, names(got)...)
				}
			}
		})
		both.Go(func() {
			for range keys {
				got, err := taker.ClaimKeys(b.ctx, claim.ClaimRequest{Space: space, Session: c.ID, Limit: 2, Fresh: 2})
				if err != nil {
					b.Errorf("ClaimKeys: %v", err)
				}
				taken = append(taken, names(got)...)
			}
		})
		both.Go(func() { b.step(time.Second) })
		both.Wait()
		for _, key := range taken {
			for _, other := range begun {
				if key == other {
					b.Errorf("round %d: %s was begun by its holder and taken over", round, key)
				}
			}
		}
		if err := b.Table.Withdraw(b.ctx, space, all); err != nil {
			b.Fatal(err)
		}
	}
}
