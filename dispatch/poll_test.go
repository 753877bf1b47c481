package dispatch_test

import (
	"context"
	"fmt"
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

// TestStatusesAreAskedTogether: many pending messages take few queries, and none is asked about more rarely for that.
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
		time.Sleep(20 * time.Second)
		g.mu.Lock()
		g.asked, g.named = 0, 0
		g.mu.Unlock()
		const seconds = 30
		time.Sleep(seconds * time.Second)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.asked > 2*seconds {
			t.Errorf("%d queries in %d s, which named %d", g.asked, seconds, g.named)
		}
		if g.named < pending*seconds*2/3 {
			t.Errorf("%d messages were named in %d s", g.named, seconds)
		}
	})
}
