package monitor_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// null is a store that keeps nothing, and takes some time for it.
type null struct {
	monitor.HeartbeatStore
	delay  time.Duration
	stamps atomic.Int64
}

func (n *null) ResolveSources(_ context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	out := make([]monitor.ResolvedSource, len(refs))
	for i, r := range refs {
		_, _ = fmt.Sscanf(r.Source, "source-%d", &out[i].ID)
		out[i].ID++
	}
	return out, nil
}

func (n *null) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	n.stamps.Add(int64(len(d.Beats)))
	if n.delay > 0 {
		timer := time.NewTimer(n.delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return monitor.BatchResult{Generation: 1}, nil
}

// BenchmarkInlet takes beats of 100,000 sources, in arrays and singly.
func BenchmarkInlet(b *testing.B) {
	for _, c := range []struct {
		array, senders int
		delay          time.Duration
	}{{500, 8, 0}, {500, 64, 20 * time.Millisecond}, {1, 64, 0}, {1, 512, time.Millisecond}} {
		b.Run(fmt.Sprintf("array=%d/senders=%d/store=%v", c.array, c.senders, c.delay), func(b *testing.B) {
			benchInlet(b, &null{delay: c.delay}, c.array, c.senders)
		})
	}
}

func benchInlet(b *testing.B, store *null, array, senders int) {
	in, err := monitor.NewIntake(monitor.IntakeConfig{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running, sending sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	flow := in.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true})
	const sources = 100_000
	all := make([]monitor.Heartbeat, sources)
	for i := range all {
		all[i] = monitor.Heartbeat{Check: "E", Source: fmt.Sprintf("source-%06d", i)}
	}
	take := func(beats []monitor.Heartbeat) {
		if _, err := flow.Record(ctx, beats); err != nil {
			b.Error(err)
		}
	}
	for i := 0; i < sources; i += 1000 {
		take(all[i : i+1000])
	}
	before := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	for range senders {
		sending.Go(func() {
			for {
				n := next.Add(int64(array))
				if n > int64(b.N) {
					return
				}
				at := int(n) % (sources - array)
				take(all[at : at+array])
			}
		})
	}
	sending.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "beats/s")
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/beat")
	b.ReportMetric(float64(in.Stats().Updates)/float64(max(1, in.Stats().Flushes)), "stamps/flush")
	cancel()
	running.Wait()
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
