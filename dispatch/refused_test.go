package dispatch_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// TestRefusedIsRetried: where nothing may be lost, a message that the target refuses is tried until it takes it, ever
// more slowly, and the next one of its key waits.
func TestRefusedIsRetried(t *testing.T) {
	for name, refusal := range map[string]dispatch.Answer{
		"the message":    {Outcome: dispatch.InvalidMessage, Code: 400, Detail: "HTTP 400: no such team"},
		"at its address": {Outcome: dispatch.Misconfigured, Permanent: true, Code: 404, Detail: "HTTP 404: Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, g := newPlace(t), newTarget()
				var mu sync.Mutex
				var asked []time.Time
				g.set(func(a dispatch.Assignment) dispatch.Answer {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, time.Now())
					return refusal
				})
				p.start("a", g, func(c *dispatch.Config) { c.OnFailure = dispatch.OnFailureRetry })
				p.add("source", 2)
				time.Sleep(12 * time.Hour)
				r := p.record("source-0001")
				if r.State != dispatch.Delayed || r.Code != refusal.Code || r.Detail != "refused: "+refusal.Detail {
					t.Errorf("after twelve hours: %+v", r)
				}
				keys, err := p.store.QueueAdmin().Keys(t.Context(), dispatch.KeyQuery{Queue: "q"})
				if err != nil || len(keys) != 1 || !keys[0].IsRefused() || !strings.Contains(keys[0].Reason, refusal.Detail) {
					t.Errorf("%+v, %v", keys, err)
				}
				mu.Lock()
				attempts := slices.Clone(asked)
				mu.Unlock()
				if n := len(attempts); n < 12 || n > 60 {
					t.Errorf("asked %d times in twelve hours", n)
				}
				for _, at := range attempts[:3] {
					if at.Sub(attempts[0]) > 2*time.Second {
						t.Errorf("the third attempt comes after %v", at.Sub(attempts[0]))
					}
				}
				g.set(nil)
				time.Sleep(61 * time.Minute)
				for _, id := range []string{"source-0001", "source-0002"} {
					if r := p.record(id); r.State != dispatch.Committed {
						t.Errorf("an hour after it is accepted: %+v", r)
					}
				}
			})
		})
	}
}
