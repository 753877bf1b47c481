package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/memory"
)

// stepped is an empty store with a clock that stands still until it is stepped.
func stepped() (s *memory.Store, step func(*testing.T, time.Duration)) {
	var mu sync.Mutex
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s = memory.New(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	})
	return s, func(_ *testing.T, d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(d)
	}
}

func TestClaimConformance(t *testing.T) {
	claimtest.Run(t, func(*testing.T) *claimtest.Harness {
		s, step := stepped()
		return &claimtest.Harness{Open: func(*testing.T) claimtest.Store { return s }, Step: step}
	})
}

func TestDispatchConformance(t *testing.T) {
	dispatchtest.Run(t, func(*testing.T) *dispatchtest.Harness {
		s, step := stepped()
		return &dispatchtest.Harness{Open: func(*testing.T) dispatchtest.Store { return s }, Step: step}
	})
}

func TestMonitorConformance(t *testing.T) {
	monitortest.Run(t, func(*testing.T) monitortest.Rig {
		s, step := stepped()
		return monitortest.Rig{Table: s.Monitor(), Sessions: s, History: s, Step: step, Sent: func(t *testing.T, sink string) []monitor.Notification {
			return sent(t, s, sink)
		}}
	})
}

// sent are the notices in the queue of a sink.
func sent(t *testing.T, s *memory.Store, sink string) (out []monitor.Notification) {
	t.Helper()
	queue := monitor.SinkQueue(sink)
	messages, err := s.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: queue})
	if err != nil {
		return nil // the queue is made with the first member that has the sink
	}
	for _, m := range messages {
		whole, err := s.QueueAdmin().Message(t.Context(), queue, m.ID)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, monitor.Notification{Sink: sink, Key: m.Key, ID: m.ID, Payload: whole.Payload})
	}
	return out
}

func TestClaimsAreLinearizable(t *testing.T) {
	s := memory.New(nil)
	claimtest.CheckLinearizable(t, func(*testing.T) claimtest.Store { return s }, claimtest.Concurrent{})
}

func TestDispatchKeepsOrder(t *testing.T) {
	s := memory.New(nil)
	dispatchtest.CheckOrder(t, func(*testing.T) dispatchtest.Store { return s }, dispatchtest.Concurrent{})
}
