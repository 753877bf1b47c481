package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// ledger is a target that takes everything; what it says of a message is set.
type ledger struct {
	*target
	mu     sync.Mutex
	status map[string]dispatch.Answer // pending, if it is not here
	asked  int
}

func newLedger() *ledger {
	g := &ledger{target: newTarget(), status: map[string]dispatch.Answer{}}
	g.semantics = dispatch.Semantics{HasStatus: true, StatusLimit: 60, Forgets: true, Decides: 2 * time.Minute}
	g.target.set(func(dispatch.Assignment) dispatch.Answer {
		return dispatch.Answer{Outcome: dispatch.Accepted, Code: 202}
	})
	return g
}

func (g *ledger) says(id string, outcome dispatch.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status[id] = dispatch.Answer{Outcome: outcome, Code: 200, Detail: "so it says"}
}

func (g *ledger) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	out := make([]dispatch.Answer, len(as))
	for i, a := range as {
		if out[i] = g.status[a.ID]; out[i].Outcome == "" {
			out[i].Outcome = dispatch.Accepted
		}
	}
	return out
}

func (g *ledger) questions() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (p *place) act(a dispatch.Action, id string) {
	p.t.Helper()
	if err := p.store.QueueAdmin().Act(p.t.Context(), "q", id, a, "test"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) blockedKeys() []dispatch.KeyRecord {
	p.t.Helper()
	keys, err := p.store.QueueAdmin().Keys(p.t.Context(), dispatch.KeyQuery{Queue: "q", Blocked: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return keys
}

// TestStuck: what the target takes and does not decide is shown and logged, asked about ever more rarely, and goes on
// when it is decided after all.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newLedger(), &logged{}
		p.start("a", g, func(c *dispatch.Config) { log.on(c); c.Admin = p.store.QueueAdmin() })
		p.add("k", 2)
		time.Sleep(110 * time.Second)
		if keys := p.blockedKeys(); len(keys) != 0 {
			t.Errorf("blocked before its time: %+v", keys)
		}
		time.Sleep(12 * time.Second)
		keys := p.blockedKeys()
		if len(keys) != 1 || keys[0].State != dispatch.Pending || !strings.Contains(keys[0].Reason, "has not decided; its status: pending") {
			t.Fatalf("blocked: %+v", keys)
		}
		if r := p.record("k-0001"); !r.Blocks || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		time.Sleep(40 * time.Second)
		before := g.questions()
		time.Sleep(10 * time.Minute)
		if n := g.questions() - before; n < 15 || n > 25 {
			t.Errorf("%d questions in ten minutes", n)
		}
		warned := log.lines("keys blocked")
		if len(warned) < 10 || len(warned) > 13 || !strings.Contains(warned[len(warned)-1], "id=k-0001 state=pending") {
			t.Errorf("in ten minutes it says %d times: %q", len(warned), warned)
		}
		g.says("k-0002", dispatch.Done)
		g.says("k-0001", dispatch.Done)
		time.Sleep(2 * time.Minute)
		p.delivered(g.target)
		if keys := p.blockedKeys(); len(keys) != 0 || len(log.lines("no key is blocked any more")) != 1 {
			t.Errorf("at the end: %+v, %q", keys, log.lines("blocked"))
		}
	})
}

// TestStuckIsActedOn: an operator sends it again, and the target is asked before; or goes on without it.
func TestStuckIsActedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		d := p.start("a", g, func(c *dispatch.Config) { c.Admin = p.store.QueueAdmin() })
		p.add("k", 3)
		stuck := func(id string) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			if keys := p.blockedKeys(); len(keys) != 1 || keys[0].Head != id {
				t.Fatalf("blocked: %+v", keys)
			}
		}
		stuck("k-0001")
		p.act(dispatch.RetryUnknown, "k-0001")
		time.Sleep(2 * time.Second)
		if got := g.order("k"); len(got) != 2 {
			t.Errorf("sent again: %q", got)
		}
		stuck("k-0001")
		g.says("k-0001", dispatch.Done)
		p.act(dispatch.RetryUnknown, "k-0001") // it was committed a moment ago: not sent again
		stuck("k-0002")
		if r := p.record("k-0001"); r.State != dispatch.Committed || len(g.order("k")) != 3 {
			t.Errorf("%+v, sent %q", r, g.order("k"))
		}
		p.act(dispatch.Skip, "k-0002")
		stuck("k-0003")
		p.act(dispatch.Cancel, "k-0003")
		time.Sleep(2 * time.Minute)
		for id, want := range map[string]dispatch.State{"k-0002": dispatch.Failed, "k-0003": dispatch.Cancelled} {
			if r := p.record(id); r.State != want {
				t.Errorf("%+v, want %s", r, want)
			}
		}
		if s := d.Stats(); s.Pending != 0 {
			t.Errorf("%d messages are polled for nobody", s.Pending)
		}
	})
}

// TestLostAgainAndAgain: a message that the target takes and then does not know is sent again with growing pauses, and
// not for ever.
func TestLostAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		g.semantics.Resend, g.semantics.Deduplicates = true, true
		g.says("k-0001", dispatch.NotFound)
		p.start("a", g, func(c *dispatch.Config) { c.Jitter = func() float64 { return 0.5 } })
		p.add("k", 1)
		time.Sleep(2 * time.Minute)
		if n := len(g.order("k")); n < 5 || n > 10 {
			t.Errorf("sent %d times in two minutes", n)
		}
		time.Sleep(10 * time.Minute)
		r := p.record("k-0001")
		if r.State != dispatch.Unknown || !r.Blocks || len(g.order("k")) != 11 ||
			r.Detail != "the target took it 11 times and then did not know it: so it says" {
			t.Errorf("%+v, sent %d times", r, len(g.order("k")))
		}
	})
}

// slowAdmin answers a question about blocked keys with what was so long ago.
type slowAdmin struct {
	dispatch.Admin
	takes time.Duration
}

func (a slowAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	keys, err := a.Admin.Keys(ctx, q)
	time.Sleep(a.takes)
	return keys, err
}

// TestStuckWhileTheBlockedAreRead: what becomes stuck while the store answers which keys are blocked is not in its answer, and not
// forgotten for that.
func TestStuckWhileTheBlockedAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		d := p.start("a", g, func(c *dispatch.Config) {
			c.UndecidedAfter, c.Admin = 62*time.Second, slowAdmin{p.store.QueueAdmin(), 8 * time.Second} // they are read after a minute
		})
		p.add("k", 1)
		time.Sleep(5 * time.Second)
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
			if s := d.Stats(); s.Pending != 1 {
				t.Fatalf("%d messages are polled after %v", s.Pending, time.Since(began))
			}
		}
	})
}

// TestStuckLeavesRoom: messages that are never decided do not keep an instance from the other keys.
func TestStuckLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		d := p.start("a", g, func(c *dispatch.Config) { c.MaxKeys, c.Admin = 2, p.store.QueueAdmin() })
		p.add("a", 1)
		p.add("b", 1)
		time.Sleep(3 * time.Minute)
		if keys := p.blockedKeys(); len(keys) != 2 {
			t.Fatalf("blocked: %+v", keys)
		}
		g.says("c-0001", dispatch.Done)
		p.add("c", 1)
		time.Sleep(10 * time.Second)
		if r := p.record("c-0001"); r.State != dispatch.Committed {
			t.Errorf("beside two that are stuck: %+v", r)
		}
		p.add("d", 1)
		p.add("e", 1)
		p.add("f", 1)
		time.Sleep(10 * time.Minute)
		if n := d.Stats().Claimed; n != 4 {
			t.Errorf("%d keys are claimed, of which 2 may be stuck beside 2 others", n)
		}
	})
}

// pagedAdmin has a page of other blocked keys before the real ones.
type pagedAdmin struct{ dispatch.Admin }

func (a pagedAdmin) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	if q.After != "" {
		return a.Admin.Keys(ctx, q)
	}
	page := make([]dispatch.KeyRecord, dispatch.MaxPage)
	for i := range page {
		page[i].Key = fmt.Sprintf("a%04d", i)
	}
	return page, nil
}

// TestStuckAmongMany: more keys are blocked than fit into a page; what an operator has acted on is forgotten all the same, and
// nothing else.
func TestStuckAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		d := p.start("a", g, func(c *dispatch.Config) { c.Admin = pagedAdmin{p.store.QueueAdmin()} })
		p.add("k", 1)
		p.add("l", 1)
		time.Sleep(5 * time.Minute)
		if n := d.Stats().Pending; n != 2 {
			t.Fatalf("%d messages are polled", n)
		}
		p.act(dispatch.Cancel, "k-0001")
		time.Sleep(2 * time.Minute)
		if n := d.Stats().Pending; n != 1 {
			t.Errorf("%d messages are polled, of one", n)
		}
	})
}

// TestStatusOutage: while the target cannot be asked about a message that it may have, it is asked ever more rarely, and
// the message goes on once it answers.
func TestStatusOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		g.target.set(func(dispatch.Assignment) dispatch.Answer {
			return dispatch.Answer{Outcome: dispatch.Uncertain, RequestEnded: true, Detail: "lost"}
		})
		g.says("k-0001", dispatch.Uncertain)
		p.start("a", g, nil)
		p.add("k", 1)
		time.Sleep(2 * time.Minute)
		before := g.questions()
		if before < 6 {
			t.Errorf("%d questions in two minutes", before)
		}
		time.Sleep(time.Hour)
		if n := g.questions() - before; n < 60 || n > 130 {
			t.Errorf("%d questions in an hour", n)
		}
		g.says("k-0001", dispatch.Done)
		time.Sleep(61 * time.Second)
		if r := p.record("k-0001"); r.State != dispatch.Committed || r.Attempts != 1 {
			t.Errorf("a minute after it answers: %+v", r)
		}
	})
}

// TestStuckThoughClaimsRestart: what is never decided is shown, though no instance has it for as long as that takes.
func TestStuckThoughClaimsRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		p.add("k", 1)
		for range 4 {
			d := p.start("a", g, nil)
			time.Sleep(time.Minute)
			d.stop()
		}
		if keys := p.blockedKeys(); len(keys) != 1 || !strings.Contains(keys[0].Reason, "has not decided") {
			t.Errorf("after four minutes blocked: %+v", keys)
		}
	})
}

// TestLastAttemptIsAskedAbout: a ledger that has committed what it did not answer is believed, though no attempt is left. What it
// has not got is not sent once more.
func TestLastAttemptIsAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newLedger()
		g.semantics.Resend, g.semantics.Deduplicates = true, true
		g.target.set(func(a dispatch.Assignment) dispatch.Answer {
			if a.Attempt < 3 {
				return dispatch.Answer{Outcome: dispatch.Busy, Code: 503}
			}
			return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "lost"}
		})
		g.says("k-0001", dispatch.Done)
		g.says("k-0002", dispatch.NotFound)
		p.start("a", g, func(c *dispatch.Config) {
			c.OnFailure, c.Retry.Attempts = dispatch.OnFailureSkip, 3
		})
		p.add("k", 2)
		time.Sleep(time.Minute)
		for id, want := range map[string]dispatch.State{"k-0001": dispatch.Committed, "k-0002": dispatch.Failed} {
			if r := p.record(id); r.State != want || r.Attempts != 3 {
				t.Errorf("%+v, want %s", r, want)
			}
		}
		if n := len(g.order("k")); n != 6 {
			t.Errorf("sent %d times", n)
		}
	})
}
