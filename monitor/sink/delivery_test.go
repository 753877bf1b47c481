package sink_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/internal/memstore/queues"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestD05DeliveredInTheEnd has a dispatcher tell a receiver that fails in all ways: each
// ONSET and each ABATED has its effect once, and in order per source.
func TestD05DeliveredInTheEnd(t *testing.T) {
	var mu sync.Mutex
	requests := 0
	faults := []targettest.Fault{
		{}, {Status: 500}, {Cut: true, After: true}, {Status: 429}, {Half: true, After: true}, {Status: 404}, {Cut: true}, {Status: 503, After: true},
	}
	at := &targettest.Sink{Deduplicates: true, Fault: func(targettest.Request) targettest.Fault {
		mu.Lock()
		defer mu.Unlock()
		requests++
		return faults[requests%len(faults)]
	}}
	s := hook(t, sink.WebhookConfig{URL: sink.Secret(serve(t, at.ServeHTTP)), Deduplicates: true})
	store := queues.NewMemory(memory.New(nil), nil)
	queue := monitor.SinkQueue("pager")
	if err := store.QueueAdmin().CreateQueue(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 20 {
		for _, m := range []monitor.AlarmMessage{onset(), abated()} {
			m.Source, m.RequestID = fmt.Sprintf("edge-%d", i), fmt.Sprintf("outage-%d", i)
			b := batch(t, m).Message
			ids = append(ids, b.ID)
			if _, err := store.QueueAdmin().Add(t.Context(), []dispatch.Message{b}); err != nil {
				t.Fatal(err)
			}
		}
	}
	deliver(t, store, queue, s)
	for deadline := time.Now().Add(time.Minute); len(at.Missing(ids)) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("never told: %v", at.Missing(ids))
		}
		<-time.After(10 * time.Millisecond)
	}
	if wrong := at.Judge(); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}

// deliver runs a dispatcher until the test ends.
func deliver(t *testing.T, store *queues.Memory, queue string, to dispatch.Target) {
	t.Helper()
	windows := claim.Windows{First: time.Minute, Second: 5 * time.Minute} // nobody is late on a busy machine
	keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: store, Instance: lease.NewInstance("test", ""), Timing: windows.Timing()})
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatch.New(dispatch.Config{
		Name: queue, Keeper: keeper, Claims: store.Claims(), Queue: store.Queue(), Target: to, Windows: windows,
		Retry: dispatch.RetryPolicy{Initial: time.Millisecond, Max: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	keeping, end := context.WithCancel(context.Background())
	all.Go(func() { _ = keeper.Run(keeping) })
	all.Go(func() {
		defer end()
		if err := d.Run(ctx); err != nil {
			t.Errorf("the dispatcher returned %v", err)
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
}

// TestReminders: a receiver that was away gets the latest reminder alone, judged by the message's age in the store and by no
// clock of this host; there are no control-loop events of them, nor of jobs.
func TestReminders(t *testing.T) {
	requests := 0
	url := serve(t, func(http.ResponseWriter, *http.Request) { requests++ })
	reminder := onset()
	reminder.Reminder, reminder.RemindMS = 2, time.Hour.Milliseconds()
	ofJob := onset()
	ofJob.Event, ofJob.What, ofJob.ControlLoop = "job", "was missed", monitor.ControlLoop{}
	for _, c := range []struct {
		format sink.Format
		m      monitor.AlarmMessage
		age    time.Duration
		sent   bool
	}{
		{"", reminder, 59 * time.Minute, true},
		{"", reminder, time.Hour, false},
		{"", onset(), 24 * time.Hour, true},
		{sink.ControlLoop, onset(), 0, true},
		{sink.ControlLoop, reminder, 0, false},
		{"", ofJob, 0, true},
		{sink.ControlLoop, ofJob, 0, false},
	} {
		requests = 0
		a := batch(t, c.m)
		a.Age = c.age
		got := open(t, sink.Config{Format: c.format, Webhook: &sink.WebhookConfig{URL: sink.Secret(url)}}).Submit(t.Context(), a)
		if wants(t, got, dispatch.Done); (requests == 1) != c.sent {
			t.Errorf("format %q, reminder %d, %v old: %d requests, %+v", c.format, c.m.Reminder, c.age, requests, got)
		}
	}
}
