//go:build linux

package fault

import (
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"

	"github.com/understudy-ha/understudy/dispatch"
)

// TestQueueGates: a gate is reached when a worker was killed or stopped there. One to which no worker comes, and one whose
// worker ended otherwise, are not, however often a worker is started for them.
func TestQueueGates(t *testing.T) {
	target := NewQueueTarget(t, "webhook", dispatch.Semantics{}, 1, 0)
	c := QueueChaos{
		Fleet:     &Fleet{FleetConfig: FleetConfig{Programs: Programs{QueueWorker: "true"}, Target: target}, tb: t, dir: t.TempDir(), links: map[string]*Proxy{}},
		disturber: disturber{random: rand.New(rand.NewPCG(1, 1))}, count: map[string]int{}, gates: []string{"nowhere:kill"},
	}
	for gate, script := range map[string]string{"send:kill": "kill -KILL $$", "record:kill": "exit 1", "claimed:stop": "kill -KILL $$"} {
		w := &Worker{Gate: gate, cmd: exec.Command("sh", "-c", script), done: make(chan struct{})}
		_ = w.cmd.Run()
		close(w.done)
		c.slots = append(c.slots, w)
	}
	for range 3 {
		c.tend()
		for _, w := range c.slots {
			<-w.done
		}
		if got, want := slices.Sorted(slices.Values(c.unreached())), []string{"claimed:stop", "nowhere:kill", "record:kill"}; !slices.Equal(got, want) {
			t.Fatalf("never reached: %v, want %v", got, want)
		}
	}
	if !maps.Equal(c.count, map[string]int{"send:kill": 1}) {
		t.Errorf("reached: %v", c.count)
	}
	for _, kind := range []string{"webhook", "sawtooth", "scabbard"} {
		steps := NewQueueTarget(t, kind, dispatch.Semantics{}, 1, 0).steps()
		if got, want := slices.Contains(steps, "arrived"), kind == "webhook"; got != want {
			t.Errorf("%s has the step arrived: %t", kind, got)
		}
	}
}
