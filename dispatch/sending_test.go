package dispatch

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// handClock is a clock that is set by hand.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() time.Duration                                  { return time.Duration(c.now.Load()) }
func (c *handClock) Wall() time.Time                                     { return time.Time{} }
func (c *handClock) Timer(time.Duration) (<-chan time.Time, func() bool) { panic("nobody waits here") }
func (c *handClock) advance(d time.Duration)                             { c.now.Add(int64(d)) }

// countingTarget counts its submissions. It knows no message, and the clock advances while it says so.
type countingTarget struct {
	clock     *handClock
	status    bool
	pause     time.Duration
	submitted int
}

func (*countingTarget) Name() string { return "counts" }
func (g *countingTarget) Semantics() Semantics {
	return Semantics{HasStatus: g.status, StatusLimit: 1}
}

func (g *countingTarget) Submit(context.Context, Assignment) Answer {
	g.submitted++
	return Answer{Outcome: Done}
}

func (g *countingTarget) Status(context.Context, []Assignment) []Answer {
	g.clock.advance(g.pause)
	return []Answer{{Outcome: NotFound}}
}

// TestNothingIsSentAfterAPause: a process that was paused after a sender got the message, or while it asked for it, does not send
// it: another instance may have the key by then.
func TestNothingIsSentAfterAPause(t *testing.T) {
	for name, c := range map[string]struct {
		work                  Work
		beforeSender, inQuery time.Duration
		state                 State // "": it is sent
	}{
		"no pause":                 {work: Send},
		"a pause that is harmless": {work: Send, beforeSender: time.Minute},
		"before a sender has it":   {work: Send, beforeSender: 4 * time.Minute, state: Delayed},
		"no pause in the query":    {work: Resolve},
		"in the query":             {work: Resolve, inQuery: 4 * time.Minute, state: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &handClock{}
			clock.advance(time.Hour)
			target := &countingTarget{clock: clock, status: c.work == Resolve, pause: c.inQuery}
			cfg := Config{Name: "q", Target: target}.withDefaults()
			d := &Dispatcher{
				cfg: cfg, clock: clock, log: slog.New(slog.DiscardHandler), m: newMachine(cfg), report: newReporter(slog.New(slog.DiscardHandler), "counts"),
				sendTasks: make(chan sendTask, 1), events: make(chan func(time.Duration), 1),
			}
			s := &slot{ref: ref{"k", 1}, phase: starting}
			d.m.addSlot(s)
			a := Assignment{Message: Message{Queue: "q", Key: "k", ID: "1"}, Work: c.work, Seq: 1, Term: 1, Attempt: 1, Detail: "lost"}
			d.m.handleAssignment(clock.Now(), &exchangeRequest{sent: clock.Now()}, s, a)
			run{d: d}.execute(d.m.step(clock.Now()))
			clock.advance(c.beforeSender)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go d.runSender(ctx)
			(<-d.events)(clock.Now())
			if want := c.state == ""; (target.submitted == 1) != want {
				t.Fatalf("submitted %d times", target.submitted)
			}
			r := d.m.results[0].result
			if c.state != "" && (r.State != c.state || r.After != RetryLater || c.work == Send && r.Attempt != 0 || c.work == Resolve && r.Detail != "lost") {
				t.Errorf("recorded: %+v", r)
			}
		})
	}
}
