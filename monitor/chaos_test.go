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
				w := newWorld(t, monitor.Event{Name: "E", Interval: time.Second, Missed: 5})
				if wrong := chaos(w, seed); len(wrong) > 0 {
					t.Errorf("%d wrong, the first: %s", len(wrong), wrong[0])
				}
			})
		})
	}
}

// A table that breaks a promise is found.
func TestChaosIsJudged(t *testing.T) {
	for name, broken := range map[string]func(monitor.Table) monitor.Table{
		"blind time counts":  func(t monitor.Table) monitor.Table { return forgetful{t} },
		"made, and not told": func(t monitor.Table) monitor.Table { return &mute{Table: t} },
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for seed := uint64(0); seed < 10 && !found; seed++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, monitor.Event{Name: "E", Interval: time.Second, Missed: 5})
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
type forgetful struct{ monitor.Table }

func (f forgetful) Store(ctx context.Context, d monitor.Delivery) (monitor.Stored, error) {
	d.Proofs = slices.Clone(d.Proofs)
	for i := range d.Proofs {
		d.Proofs[i].Gap = time.Hour
	}
	return f.Table.Store(ctx, d)
}

// mute drops the notices of every tenth change that has some.
type mute struct {
	monitor.Table
	mu sync.Mutex
	n  int
}

func (m *mute) Apply(ctx context.Context, cs []monitor.Change) ([]bool, error) {
	cs = slices.Clone(cs)
	m.mu.Lock()
	for i := range cs {
		if len(cs[i].Notices) == 0 {
			continue
		}
		if m.n++; m.n%10 == 0 {
			cs[i].Notices = nil
		}
	}
	m.mu.Unlock()
	return m.Table.Apply(ctx, cs)
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
	told := map[string][]monitor.Message{}
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

// pairs tells whether messages are those of so many outages.
func pairs(told []monitor.Message, outages int) error {
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
		_, err := instances[n%len(instances)].flow.Take(ctx, []monitor.Beat{{Event: "E", Source: name}})
		cancel()
		if err == nil {
			return
		}
	}
}
