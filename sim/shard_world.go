package sim

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

const shardName = "orders"

// ShardSetup is one run of a shard: its nodes, its agents, and what may befall them.
type ShardSetup struct {
	Seed   uint64
	Nodes  int
	Length time.Duration // for which there are faults
	Timing lease.Timing
	// RateError is how much of the rate tolerance the clocks make use of.
	RateError float64
	// Supervised: the agents start their nodes. KillHung as in the Config of package shard/agent.
	Supervised, KillHung bool
	MinReplicas          int
	// Delay, Lose and Mute are of calls to the store: how long one takes at most each way, the
	// chance that it is lost, and that it is carried out and its answer is lost.
	Delay      time.Duration
	Lose, Mute float64
	CopyTime   time.Duration
	// Steps has the store's and the hosts' wall clocks stepped, Operators has people act, Disks has
	// nodes lose their data, Orchestrators has agents die after a step of a plan.
	Steps, Operators, Disks, Orchestrators bool
	// Only limits the faults to those that a twin needs.
	Only string
	Twin ShardTwin
	// Trace, when not nil, is told what happens, for whoever replays a seed.
	Trace func(format string, args ...any)
}

// DrawShard returns the run of a seed.
func DrawShard(seed uint64) ShardSetup {
	d := newDice(seed, 0x736861)
	interval := []time.Duration{time.Second, 400 * time.Millisecond}[d.n(2)]
	s := ShardSetup{
		Seed: seed, Nodes: []int{2, 3, 3, 3, 3, 3, 5}[d.n(7)], Length: d.between(40*time.Second, 100*time.Second),
		Timing:    lease.Timing{Interval: interval, Timeout: 5 * interval},
		RateError: 0.9, Supervised: d.hit(0.4), KillHung: d.hit(0.8), CopyTime: d.upTo(2 * time.Second),
		Delay: d.upTo(interval / 20), Steps: d.hit(0.4), Operators: d.hit(0.4), Disks: d.hit(0.5), Orchestrators: d.hit(0.4),
	}
	// Replicas copy from a primary that comes back empty before anybody can keep them from it, unless it
	// is started as a replica.
	s.Disks = s.Disks && s.Supervised
	if d.hit(0.15) {
		s.MinReplicas = 1
	}
	if d.hit(0.5) {
		s.Lose, s.Mute = 0.03, 0.03
	}
	return s
}

// ShardResult is what a run came to.
type ShardResult struct {
	Broken   []string // promises, each with what happened
	Writes   int      // acknowledged
	Installs int      // primaries
	Slips    int      // writes that an armed fence alone let through
	Lost     int      // acknowledged writes that no replica had
	Blocked  int      // 1 if a person had to help in the end
	Settled  time.Duration
}

type shardWorld struct {
	setup   ShardSetup
	dice    *dice
	nodes   *shardtest.World
	base    atomic.Pointer[memory.Store]
	stepped atomic.Int64
	judge   *shardJudge
	store   *gate
	hosts   []*shardHost
	calm    atomic.Bool
	quiet   chan struct{}
	flying  sync.WaitGroup           // calls, clients
	mu      sync.Mutex               // of what hosts can reach, and their agents
	whisper map[[2]int]bool          // agents that do not reach each other
	deaf    map[[2]int]bool          // the agent of one does not reach the node of another
	lanes   map[string]chan struct{} // the last call to a node that hangs, or hung until now; closed when it is done
}

// RunShard runs a shard in a bubble of its own.
func RunShard(t *testing.T, setup ShardSetup) (result ShardResult) {
	dir, err := os.MkdirTemp(shardTemp(), "shard")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	synctest.Test(t, func(*testing.T) {
		defer countSimulated(time.Now())
		w := newShardWorld(setup, dir)
		done := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() { w.judge.watch(done) })
		w.suffer()
		w.settle()
		close(done)
		watching.Wait()
		w.end()
		result = w.judge.finish()
	})
	return result
}

// shardTemp is a folder in memory where there is one: agents write to their folders all the time.
func shardTemp() string {
	if s, err := os.Stat("/dev/shm"); err == nil && s.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func newShardWorld(setup ShardSetup, dir string) *shardWorld {
	w := &shardWorld{setup: setup, dice: newDice(setup.Seed, 0x776f72), nodes: shardtest.NewWorld(), quiet: make(chan struct{}),
		whisper: map[[2]int]bool{}, deaf: map[[2]int]bool{}, lanes: map[string]chan struct{}{}}
	w.base.Store(memory.New(w.wall))
	w.nodes.CopyTime = setup.CopyTime
	w.store = &gate{dice: w.dice}
	w.judge = newShardJudge(w)
	w.nodes.OnAccept = w.judge.accepted
	for i := range setup.Nodes {
		w.hosts = append(w.hosts, w.newHost(i, fmt.Sprintf("%s/%d", dir, i)))
	}
	for i, h := range w.hosts {
		h.start()
		if i == 0 {
			pause(time.Second)
		}
		w.flying.Go(h.clients)
	}
	pause(6 * setup.Timing.Timeout)
	return w
}

// wall is the store's wall clock.
func (w *shardWorld) wall() time.Time { return time.Now().Add(time.Duration(w.stepped.Load())) }

func (w *shardWorld) view() shard.View {
	v, _ := w.base.Load().Registry().ReadView(context.Background(), shardName)
	return v
}

// primary is the host of the row's primary, nil if there is none.
func (w *shardWorld) primary() *shardHost { return w.hostOf(w.view().Row.Primary) }

func (w *shardWorld) hostOf(id string) *shardHost {
	for _, h := range w.hosts {
		if h.is(id) {
			return h
		}
	}
	return nil
}

func (w *shardWorld) faulty() bool { return !w.calm.Load() }

// end stops everything. The bubble fails if something does not stop.
func (w *shardWorld) end() {
	close(w.quiet)
	for _, h := range w.hosts {
		h.crash()
	}
	w.flying.Wait()
}
