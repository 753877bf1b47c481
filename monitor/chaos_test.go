package monitor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// TestWatcherChaos has three instances lose the store, one by one and together,
// while sources beat, fall silent and return. Each outage is told of once, from its beginning to
// its end, and nothing else is.
func TestWatcherChaos(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, monitor.Check{Name: "E", Interval: time.Second, Missed: 5})
				if wrong := chaos(w, seed); len(wrong) > 0 {
					t.Errorf("%d wrong, the first: %s", len(wrong), wrong[0])
				}
			})
		})
	}
}

// A table that breaks a promise is found.
func TestChaosIsJudged(t *testing.T) {
	for name, broken := range map[string]func(monitor.Store) monitor.Store{
		"blind time counts":  func(t monitor.Store) monitor.Store { return forgetful{t} },
		"made, and not told": func(t monitor.Store) monitor.Store { return &mute{Store: t} },
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for seed := uint64(0); seed < 10 && !found; seed++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, monitor.Check{Name: "E", Interval: time.Second, Missed: 5})
					w.table = broken(w.ref)
					found = len(chaos(w, seed)) > 0
				})
			}
			if !found {
				t.Error("not found")
			}
		})
	}
}

// forgetful is a table that takes blind time for silence.
type forgetful struct{ monitor.Store }

func (f forgetful) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	d.Probes = slices.Clone(d.Probes)
	for i := range d.Probes {
		d.Probes[i].MaxGap = time.Hour
	}
	return f.Store.RecordHeartbeats(ctx, d)
}

// mute drops the notices of every tenth change that has some.
type mute struct {
	monitor.Store
	mu sync.Mutex
	n  int
}

func (m *mute) ApplyChanges(ctx context.Context, cs []monitor.SourceChange) ([]bool, error) {
	cs = slices.Clone(cs)
	m.mu.Lock()
	for i := range cs {
		if len(cs[i].Notifications) == 0 {
			continue
		}
		if m.n++; m.n%10 == 0 {
			cs[i].Notifications = nil
		}
	}
	m.mu.Unlock()
	return m.Store.ApplyChanges(ctx, cs)
}

// chaos runs six minutes of it and tells what was told wrongly.
func chaos(w *world, seed uint64) (wrong []string) {
	random := rand.New(rand.NewPCG(seed, 0))
	instances := []*instance{w.start("a"), w.start("b"), w.start("c")}
	time.Sleep(3 * time.Second)
	outages := make([]int, 20)
	var senders sync.WaitGroup
	for n := range outages {
		senders.Go(func() {
			outages[n] = live(instances, fmt.Sprintf("s%03d", n), rand.New(rand.NewPCG(seed, uint64(n+1))))
		})
	}
	for began := time.Now(); time.Since(began) < 6*time.Minute; {
		time.Sleep(time.Duration(5+random.IntN(10)) * time.Second)
		off := &instances[random.IntN(len(instances))].dead
		if random.IntN(3) == 0 {
			off = &w.away
		}
		off.Store(true)
		time.Sleep(time.Duration(200+random.IntN(8000)) * time.Millisecond)
		off.Store(false)
	}
	senders.Wait()
	time.Sleep(time.Second)
	told := map[string][]monitor.AlarmMessage{}
	for _, m := range w.told() {
		told[m.Source] = append(told[m.Source], m)
	}
	for n, want := range outages {
		source := fmt.Sprintf("s%03d", n)
		if err := pairs(told[source], want); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", source, err))
		}
	}
	return wrong
}

// pairs reports whether messages are those of so many outages.
func pairs(told []monitor.AlarmMessage, outages int) error {
	if len(told) != 2*outages {
		return fmt.Errorf("%d messages about %d outages", len(told), outages)
	}
	seen := map[string]bool{}
	for i := 0; i < len(told); i += 2 {
		on, off := told[i], told[i+1]
		if on.Status != onset || off.Status != abated || on.RequestID != off.RequestID || seen[on.RequestID] {
			return fmt.Errorf("%s of %s and %s of %s are no pair", on.Status, on.RequestID, off.Status, off.RequestID)
		}
		if off.Ended == nil || off.Ended.Before(on.Started) {
			return fmt.Errorf("an outage from %v to %v", on.Started, off.Ended)
		}
		seen[on.RequestID] = true
	}
	return nil
}

// live is a source that falls silent for six minutes now and then, and is well for
// some minutes after that. It returns how often it did.
func live(instances []*instance, name string, random *rand.Rand) (outages int) {
	began := time.Now()
	for ; time.Since(began) < 6*time.Minute; outages++ {
		for range 20 + random.IntN(60) {
			send(instances, name, random)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Duration(60+random.IntN(30)) * time.Second)
	}
	for time.Since(began) < 10*time.Minute {
		send(instances, name, random)
		time.Sleep(time.Second)
	}
	return outages
}

// send sends one beat to whichever instance takes it.
func send(instances []*instance, name string, random *rand.Rand) {
	for n := random.IntN(len(instances)); ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		_, err := instances[n%len(instances)].flow.Record(ctx, []monitor.Heartbeat{{Check: "E", Source: name}})
		cancel()
		if err == nil {
			return
		}
	}
}
