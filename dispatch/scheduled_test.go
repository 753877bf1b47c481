package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// A scheduled message is sent soon after its time, not before it, and its key goes on meanwhile: also after the store was
// away, and when nothing else is to be done.
func TestScheduledIsSentAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		g := newTarget()
		i := p.start("a", g, nil)
		begin := time.Now()
		schedule := func(id string, after time.Duration) {
			t.Helper()
			m := dispatch.Message{Queue: "q", Key: "k", ID: id, NotBefore: begin.Add(after)}
			if added, err := p.store.QueueAdmin().Add(t.Context(), []dispatch.Message{m}); err != nil || !added[0] {
				t.Fatalf("Add: %v, %v", added, err)
			}
		}
		expect := func(at time.Duration, want ...string) {
			t.Helper()
			time.Sleep(time.Until(begin.Add(at)))
			synctest.Wait()
			if got := g.order("k"); !slices.Equal(got, want) {
				t.Errorf("after %v %q were sent, want %q", at, got, want)
			}
		}
		schedule("2", 10*time.Second)
		schedule("1", 5*time.Second)
		schedule("3", time.Hour)
		p.add("k", 1)
		if expect(4*time.Second, "k-0001"); i.link.due.Load() != 0 {
			t.Errorf("%d requests were made where nothing was due", i.link.due.Load())
		}
		expect(4999*time.Millisecond, "k-0001")
		expect(7*time.Second, "k-0001", "1")
		expect(9999*time.Millisecond, "k-0001", "1")
		i.link.cut(true)
		expect(59*time.Minute, "k-0001", "1")
		i.link.cut(false)
		expect(59*time.Minute+20*time.Second, "k-0001", "1", "2")
		expect(time.Hour+2*time.Second, "k-0001", "1", "2", "3")
	})
}

// TestHeldScheduledIsReported: a store that answers, but lets no scheduled message in, is in the log.
func TestHeldScheduledIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newTarget(), &logged{}
		i := p.start("a", g, log.on)
		i.link.held.Store(true)
		m := dispatch.Message{Queue: "q", Key: "k", ID: "1", NotBefore: time.Now().Add(5 * time.Second)}
		if added, err := p.store.QueueAdmin().Add(t.Context(), []dispatch.Message{m}); err != nil || !added[0] {
			t.Fatalf("Add: %v, %v", added, err)
		}
		time.Sleep(30 * time.Second)
		if got := log.lines("level=WARN"); len(got) != 1 || !strings.Contains(got[0], "scheduled messages not enqueued") {
			t.Errorf("while it is held it says %q", got)
		}
		if got := log.lines("enqueued again"); len(got) > 0 {
			t.Errorf("while it is held it says %q", got)
		}
		i.link.held.Store(false)
		time.Sleep(5 * time.Second)
		if got := log.lines("scheduled messages are enqueued again"); len(got) != 1 || !slices.Equal(g.order("k"), []string{"1"}) {
			t.Errorf("then it says %q, and %q were sent", got, g.order("k"))
		}
	})
}
