package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// takeoverWindows are those of TestQueueTakeover.
var takeoverWindows = claim.Windows{First: 6 * time.Second, Second: 12 * time.Second}

// TestQueueTakeover measures, in virtual time, how long the keys of an instance
// that ends wait for the next one: one key in the middle of a submission, nine
// that wait for their turn. The end comes at many moments of an interval.
func TestQueueTakeover(t *testing.T) {
	asked := dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, StatusLimit: 10}
	const network = 50 * time.Millisecond // which is not quite perfect
	first, second := takeoverWindows.First+time.Second+network, takeoverWindows.Second+time.Second+network
	for _, c := range []struct {
		name           string
		target         dispatch.Semantics
		stops          bool
		waiting, under time.Duration // allowed, for the two kinds of keys
	}{
		{name: "killed", target: dispatch.Semantics{Resend: true}, waiting: first, under: second},
		{name: "killed, and the target can be asked", target: asked, waiting: first, under: first},
		{name: "stopped", target: asked, stops: true,
			waiting: 100 * time.Millisecond, under: 1500 * time.Millisecond}, // the stop grace, a pause between attempts, and a look
	} {
		t.Run(c.name, func(t *testing.T) {
			var waiting, under []time.Duration
			for i := range 50 {
				synctest.Test(t, func(t *testing.T) {
					a, b := handover(t, c.target, c.stops, time.Duration(i)*40*time.Millisecond)
					waiting, under = append(waiting, a), append(under, b)
				})
			}
			slices.Sort(waiting)
			slices.Sort(under)
			t.Logf("keys that wait: median %v, at most %v; the one under way: median %v, at most %v", waiting[25], waiting[49], under[25], under[49])
			if waiting[49] > c.waiting || under[49] > c.under {
				t.Errorf("%v and %v are allowed", c.waiting, c.under)
			}
		})
	}
}

// hanging is a target that never answers.
type hanging struct{ dispatch.Target }

func (hanging) Submit(ctx context.Context, _ dispatch.Assignment) dispatch.Answer {
	<-ctx.Done()
	return dispatch.Answer{Outcome: dispatch.Uncertain}
}

// handover ends an instance that hangs in the middle of a submission, and returns
// how long it takes the next one to deliver what waited, and what was under way.
func handover(t *testing.T, target dispatch.Semantics, stops bool, at time.Duration) (waiting, under time.Duration) {
	s := QueueSetup{Seed: 1, Nodes: 1, Keys: 10, Target: target}
	s.Dispatch = dispatch.Config{Name: queueName, Windows: takeoverWindows, SubmitTimeout: 9 * time.Second,
		StopGrace: 50 * time.Millisecond, Concurrency: 1, KeepFor: -1}
	s.Twin.Target = func(t dispatch.Target) dispatch.Target { return hanging{t} }
	w := newQueueWorld(s)
	w.setup.Twin.Target = nil
	w.calm.Store(true)
	pause(2*time.Second + at)
	for i := range s.Keys {
		w.judge.add([]dispatch.Message{{Queue: queueName, Key: fmt.Sprint("k", i), ID: fmt.Sprint("b", i)}})
	}
	pause(1500 * time.Millisecond)
	w.nodes = append(w.nodes, nil)
	w.launch(1)
	first := w.nodes[0]
	if stops {
		first.stop()
	} else {
		first.kill()
	}
	for began := time.Now(); under == 0; pause(time.Millisecond) {
		switch w.judge.waiting() {
		case 1:
			waiting = cmp.Or(waiting, time.Since(began))
		case 0:
			under = time.Since(began)
			waiting = cmp.Or(waiting, under)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after %v, %d batches are not delivered", time.Since(began), w.judge.waiting())
		}
	}
	for _, broken := range w.judge.result.Broken {
		t.Error(broken)
	}
	w.end()
	return waiting, under
}
