//go:build linux

package fault_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// move restarts one of three instances, as one of two versions.
type move struct {
	instance int
	newer    bool
}

// upgrade is an upgrade one instance after the other, with one of the previous version that is
// restarted as such halfway, and then the way back.
var upgrade = []move{{0, true}, {1, false}, {2, true}, {1, true}, {2, false}, {0, false}, {1, false}}

// versions are the programs of a move.
type versions struct{ previous, current fault.Programs }

func (v versions) of(m move) fault.Programs {
	if m.newer {
		return v.current
	}
	return v.previous
}

// TestFaultUpgrade runs the previous version and this one side by side on one store, under load, and
// restarts each instance in turn: to this version, as the previous one, and back. Nothing is lost,
// and nothing stands still for longer than a takeover takes.
func TestFaultUpgrade(t *testing.T) {
	t.Parallel()
	v := versions{previous: fault.BuildPrevious(t), current: fault.Build(t)}
	for _, store := range []string{"sqlite", "postgres", "redis"} {
		t.Run("role/"+store, func(t *testing.T) { t.Parallel(); upgradeRole(t, v, made(t, v, store)) })
		if prove || store == "postgres" { // elsewhere the rules are in the program, as they always were
			t.Run("shard/"+store, func(t *testing.T) { t.Parallel(); upgradeShard(t, v, made(t, v, store)) })
		}
		if store == "redis" {
			continue // it serves neither queues nor the monitor
		}
		t.Run("queue/"+store, func(t *testing.T) { t.Parallel(); upgradeQueue(t, v, made(t, v, store)) })
		t.Run("monitor/"+store, func(t *testing.T) { t.Parallel(); upgradeMonitor(t, v, made(t, v, store)) })
	}
}

// made is a store that the previous version has made.
func made(t *testing.T, v versions, store string) fault.Database {
	t.Helper()
	db := database(t, store)
	if out, err := exec.Command(v.previous.Understudy, "store", "migrate", "--store", db.URL).CombinedOutput(); err != nil {
		t.Fatalf("the previous version makes its store: %v\n%s", err, out)
	}
	return db
}

func upgradeRole(t *testing.T, v versions, db fault.Database) {
	c := fault.NewCluster(t, fault.Config{Programs: v.previous, Database: db, Seed: 1})
	c.Three()
	for _, m := range upgrade {
		name := []string{"a", "b", "c"}[m.instance]
		if n := c.Node(name); n == nil || !n.Stop(c.Bound()) {
			t.Fatalf("%s did not run, or did not stop", name)
		}
		c.Programs = v.of(m)
		c.Start(name)
		c.Settled()
	}
	c.Finish(c.Bound())
}

func upgradeQueue(t *testing.T, v versions, db fault.Database) {
	target := fault.NewQueueTarget(t, "webhook", dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, Forgets: true}, 1, 300*time.Millisecond).CompareTerms()
	fleet := fault.NewFleet(t, fault.FleetConfig{Programs: v.previous, Database: db, Seed: 1, Target: target})
	names := []string{"w0", "w1", "w2"}
	var workers [3]*fault.Worker
	for i, name := range names {
		workers[i] = fleet.Start(name, "")
	}
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	feed := &fault.Feed{Database: db, Target: target, Users: 3, Keys: 12, Every: 50 * time.Millisecond, Seed: 1}
	fed := make(chan []fault.Sent, 1)
	go func() { fed <- feed.Run(feeding) }()
	for _, m := range upgrade {
		w := workers[m.instance]
		w.Signal(syscall.SIGTERM)
		ended(t, w.Name, w.Exited)
		fleet.Programs = v.of(m)
		workers[m.instance] = fleet.Start(names[m.instance], "")
		fleet.Holds(names[m.instance], 1)
	}
	stop()
	sent := append(<-fed, scheduledBesidePrevious(t, fleet, feed, workers[1], v.current)...)
	fleet.Settled(2 * time.Minute)
	fleet.Stop(time.Minute)
	verdict := fault.JudgeQueue(fault.QueueEvidence{Sent: sent, Records: fleet.Records(), Arrivals: target.Arrivals(),
		Target: target.Semantics, Second: fleet.Windows.Second})
	t.Logf("%d messages %v, %d requests", verdict.Messages, verdict.States, verdict.Arrivals)
	for _, violation := range verdict.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
}

// scheduledBesidePrevious: the previous version, which knows no schedule, sends a scheduled message neither early nor ever;
// it waits until one of the workers is of this version again. What is returned was sent.
func scheduledBesidePrevious(t *testing.T, fleet *fault.Fleet, feed *fault.Feed, w *fault.Worker, current fault.Programs) []fault.Sent {
	arrived := func(id string) bool {
		return slices.ContainsFunc(feed.Target.Arrivals(), func(a fault.Arrival) bool { return a.ID == id })
	}
	sent := []fault.Sent{feed.One("scheduled", 0, time.Now().Add(time.Second))}
	realserver.Eventually(t, time.Minute, "its time comes", func() error {
		if time.Now().Before(sent[0].NotBefore) {
			return errors.New("not yet")
		}
		return nil
	})
	sent = append(sent, feed.One("behind", 0, time.Time{}))
	realserver.Eventually(t, time.Minute, "its key goes on", func() error {
		if !arrived("behind") {
			return errors.New("not yet")
		}
		return nil
	})
	if arrived("scheduled") {
		t.Error("a version that knows no schedule sent a scheduled message")
	}
	w.Signal(syscall.SIGTERM)
	ended(t, w.Name, w.Exited)
	fleet.Programs = current
	fleet.Start(w.Name, "")
	realserver.Eventually(t, time.Minute, "this version sends it", func() error {
		if !arrived("scheduled") {
			return errors.New("not yet")
		}
		return nil
	})
	return sent
}

func upgradeMonitor(t *testing.T, v versions, db fault.Database) {
	m := monitorsOf(t, v.previous, db, 3, 1)
	b := beaterOf(m, 4, 3)
	m.Start()
	beating, stop := context.WithCancel(t.Context())
	defer stop()
	over := make(chan struct{})
	go func() { b.Run(beating); close(over) }()
	for _, step := range upgrade {
		one := m.All()[step.instance]
		one.Signal(syscall.SIGTERM)
		ended(t, one.Name, one.Exited)
		m.Programs = v.of(step)
		one.Start()
		m.Settled()
	}
	stop()
	<-over
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 4*time.Minute)))
}

func upgradeShard(t *testing.T, v versions, db fault.Database) {
	s := fault.NewShard(t, fault.ShardConfig{Programs: v.previous, Database: db, Seed: 1})
	load := &fault.ShardLoad{Shard: s}
	load.Start()
	for _, m := range upgrade {
		n := s.Nodes[m.instance]
		n.Stop()
		s.Programs = v.of(m)
		n.Start()
		s.Settled()
		s.Forgive() // hand-overs count as failovers, of which a shard allows a few in a time
	}
	judgedShard(t, s, load)
}

func ended(t *testing.T, name string, exited func() bool) {
	t.Helper()
	realserver.Eventually(t, time.Minute, name+" ends", func() error {
		if !exited() {
			return errors.New("it runs")
		}
		return nil
	})
}
