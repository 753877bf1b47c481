package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// polled is a target that accepts everything and decides nothing, and counts how often it is asked.
type polled struct {
	*target
	mu    sync.Mutex
	asked int
	named int
}

func (p *polled) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	p.named += len(as)
	out := make([]dispatch.Answer, len(as))
	for i := range out {
		out[i].Outcome = dispatch.Accepted
	}
	return out
}

// TestStatusesAreAskedTogether: many pending messages take at most two queries a second, and are asked about less and less
// often, but never more rarely than every half minute or so.
func TestStatusesAreAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), &polled{target: newTarget()}
		g.semantics = dispatch.Semantics{HasStatus: true, StatusLimit: 500, Deduplicates: true, Resend: true}
		g.set(func(dispatch.Assignment) dispatch.Answer { return dispatch.Answer{Outcome: dispatch.Accepted} })
		const pending = 600
		g.takes = 70 * time.Millisecond
		p.start("a", g, nil)
		for i := range pending {
			p.add(fmt.Sprint("k", i), 1)
		}
		count := func(d time.Duration) (asked, named int) {
			g.mu.Lock()
			g.asked, g.named = 0, 0
			g.mu.Unlock()
			time.Sleep(d)
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.asked, g.named
		}
		if asked, named := count(20 * time.Second); asked > 41 || named < 5*pending {
			t.Errorf("at first: %d queries, which named %d", asked, named)
		}
		time.Sleep(2 * time.Minute)
		if asked, named := count(10 * time.Minute); named < 15*pending || named > 60*pending {
			t.Errorf("in ten minutes: %d queries, which named %d", asked, named)
		}
	})
}

// located is a target that can be asked about a message only where its answer to the submission said.
type located struct{ *target }

func (located) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	out := make([]dispatch.Answer, len(as))
	for i, a := range as {
		out[i].Outcome = dispatch.NotFound
		if a.Link == "/jobs/"+a.ID {
			out[i].Outcome = dispatch.Done
		}
	}
	return out
}

// TestLinkIsPolled: the first question about a message goes where the target said, and not nowhere.
func TestLinkIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), located{newTarget()}
		g.semantics = dispatch.Semantics{HasStatus: true, StatusLimit: 1, Forgets: true}
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			return dispatch.Answer{Outcome: dispatch.Accepted, Link: "/jobs/" + a.ID}
		})
		p.start("a", g, nil)
		p.add("k", 2)
		p.settle(10 * time.Second)
		p.delivered(g.target)
		for _, e := range p.record("k-0001").Trail {
			if e.State == dispatch.Unknown {
				t.Errorf("recorded as unknown: %+v", e)
			}
		}
	})
}

// node is a ledger that commits one message of a key after the other, each some time after it came.
type node struct {
	*target
	commits func() time.Duration

	mu    sync.Mutex
	due   map[string]time.Time
	asked int
}

func (n *node) accept(a dispatch.Assignment) dispatch.Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due[a.ID] = time.Now().Add(n.commits())
	return dispatch.Answer{Outcome: dispatch.Accepted}
}

func (n *node) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	out := make([]dispatch.Answer, len(as))
	for i, a := range as {
		out[i].Outcome = dispatch.Executed
		if !time.Now().Before(n.due[a.ID]) {
			out[i].Outcome = dispatch.Done
		}
	}
	return out
}

// TestPace: a service gets its next message soon after the node has committed the one before, for few questions.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var one sync.Mutex
		draw := func() float64 {
			one.Lock()
			defer one.Unlock()
			return random.Float64()
		}
		var took time.Duration
		p, g := newPlace(t), &node{target: newTarget(), due: map[string]time.Time{}}
		g.commits = func() time.Duration { // as measured
			d := 360*time.Millisecond + time.Duration(draw()*float64(180*time.Millisecond))
			took += d
			return d
		}
		g.semantics = dispatch.Semantics{HasStatus: true, StatusLimit: 60, Forgets: true}
		g.set(g.accept)
		g.takes = 5 * time.Millisecond
		p.add("k", 60)
		p.start("a", g, func(c *dispatch.Config) { c.Jitter = draw })
		time.Sleep(60 * time.Second) // it learns
		read := func() (int, time.Duration, int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.due), took, g.asked
		}
		p.add("k", 1000)
		messages, busy, asked := read()
		began := time.Now()
		time.Sleep(4 * time.Minute)
		m, b, n := read()
		elapsed := time.Since(began)
		t.Logf("%d messages in %v, of which the node was busy %.2f, with %d questions", m-messages, elapsed, float64(b-busy)/float64(elapsed), n-asked)
		if float64(b-busy) < 0.8*float64(elapsed) {
			t.Errorf("the node was busy for %v of %v", b-busy, elapsed)
		}
		if n-asked > int(2*elapsed/time.Second)+1 {
			t.Errorf("%d questions in %v", n-asked, elapsed)
		}
	})
}
