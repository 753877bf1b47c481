package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

const (
	// agentsRole is a fleet of simulated agents.
	agentsRole = "shard-agents"
	// shardFleet is how many shards a store has.
	shardFleet = 1000
	// fleetLanes share the fleet among them, each with connections of its own.
	fleetLanes = 32
	// fleetSettles is how long it runs before anything is measured.
	fleetSettles = 10 * time.Second
)

// agentsOptions tell a fleet where to work.
type agentsOptions struct {
	Store  string
	Shards int
}

// fleetTally is what a fleet did.
type fleetTally struct {
	reports, failures, lapses atomic.Int64
}

// fleetResult is what it says of that in the end.
type fleetResult struct {
	PerSecond      float64
	Failed, Lapsed int64
}

func (t *fleetTally) failed(err error) {
	if err != nil && t.failures.Add(1) < 10 {
		fmt.Fprintln(os.Stderr, "bench: a report or a renewal:", err)
	}
}

// runAgents runs simulated agents until its standard input is closed: each reports its
// node as often as one does of a shard in which nothing happens, renews the session of its primary, and waits for commands, as a real one does.
// It is ready when all have reported, and says what it did when it ends.
func runAgents(c *child, o agentsOptions) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { c.untilClosed(); stop() }()
	tally := &fleetTally{}
	var ready, running sync.WaitGroup
	failed := make(chan error, fleetLanes)
	for i := range fleetLanes {
		st, err := open.Open(ctx, o.Store, open.Options{})
		if err != nil {
			return err
		}
		defer st.Close()
		shards, ok := st.(store.Shards)
		if !ok {
			return errors.New("the store keeps no shards")
		}
		l := &fleetLane{st: st, shards: shards, tally: tally}
		for k := i; k < o.Shards; k += fleetLanes {
			l.fakes = append(l.fakes, newFakeShard(k))
		}
		ready.Add(1)
		running.Go(func() {
			if err := l.run(ctx, ready.Done); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	all := make(chan struct{})
	go func() { ready.Wait(); close(all) }()
	select {
	case <-all:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
	c.say(saidReady)
	began := time.Now()
	tally.reports.Store(0)
	<-ctx.Done()
	rate := float64(tally.reports.Load()) / time.Since(began).Seconds()
	running.Wait()
	data, _ := json.Marshal(fleetResult{rate, tally.failures.Load(), tally.lapses.Load()})
	c.say(saidResult, string(data))
	return nil
}

// fleetLane is agents that share a few connections, and report one after another.
type fleetLane struct {
	st     store.Store
	shards store.Shards
	fakes  []*fakeShard
	tally  *fleetTally
}

// run lets them found their shards, and then report, renew and wait for commands until ctx ends.
func (l *fleetLane) run(ctx context.Context, ready func()) error {
	var agents []*fakeAgent
	for _, s := range l.fakes {
		for k, r := range s.nodes {
			a := &fakeAgent{Record: r}
			if _, err := l.shards.Registry().Report(ctx, r, true); err != nil {
				return fmt.Errorf("a first report: %w", err)
			}
			if k == 0 {
				var err error
				if a.session, err = s.found(ctx, l.st, l.shards, r); err != nil {
					return err
				}
			}
			agents = append(agents, a)
		}
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, a := range agents {
		waiting.Go(func() {
			time.Sleep(mathrand.N(5 * time.Second))
			for ctx.Err() == nil {
				_, _ = l.shards.Commands().Next(ctx, a.ID, 5*time.Second)
			}
		})
	}
	ready()
	step := usual().Interval / time.Duration(len(agents))
	for i, next := 0, time.Now(); ctx.Err() == nil; i++ {
		a := agents[i%len(agents)]
		if next = next.Add(step); time.Since(next) > usual().Interval {
			next = time.Now() // what is late is not made up for
		}
		time.Sleep(time.Until(next))
		var err error
		call, cancel := context.WithTimeout(ctx, usual().Interval)
		// Neighbours take turns, as agents do that were started at different times.
		if (i/len(agents)+i%len(agents))%agent.QuietIntervals == 0 {
			a.Txn += int64(mathrand.N(100_000))
			if _, err = l.shards.Registry().Report(call, a.Record, false); err == nil {
				l.tally.reports.Add(1)
			}
		}
		if err == nil && a.session != "" {
			err = a.keepLease(call, l)
		}
		cancel()
		if ctx.Err() == nil {
			l.tally.failed(err)
		}
	}
	return nil
}

// fakeAgent is an agent; that of a primary has a session.
type fakeAgent struct {
	shard.Record
	session string
	lost    bool // the lease was that of a session before, and is to be taken again
}

// keepLease renews the session. One that has lapsed is followed by another, which takes the lease, as a real agent's is.
func (a *fakeAgent) keepLease(ctx context.Context, l *fleetLane) error {
	_, err := l.st.RenewSession(ctx, a.session)
	if errors.Is(err, lease.ErrLapsed) {
		l.tally.lapses.Add(1)
		a.session, a.lost = lease.NewID(), true
		in := lease.Instance{ID: a.Instance, Name: a.Shard, Address: a.Agent}
		_, err = l.st.StartSession(ctx, lease.Session{ID: a.session, Instance: in, Timing: usual()})
	}
	if err != nil || !a.lost {
		return err
	}
	held, err := l.st.Get(ctx, shard.LeaseID(a.Shard))
	if err == nil {
		_, err = l.st.Acquire(ctx, lease.Expectation{Lease: held.ID, Session: a.session, Seen: held.Seen()})
	}
	a.lost = err != nil
	return err
}

// fakeShard is a shard whose nodes are always well.
type fakeShard struct {
	name  string
	nodes []shard.Record
}

func newFakeShard(i int) *fakeShard {
	s := &fakeShard{name: fmt.Sprintf("fake-%04d", i)}
	lineage := shard.Lineage{ID: randomHex()}
	for k := range trioSize {
		r := shard.Record{Shard: s.name, ID: randomHex(), Address: fmt.Sprintf("10.%d.%d.%d:6379", i/250, i%250, k+1), Agent: fmt.Sprintf("10.%d.%d.%d:8008", i/250, i%250, k+1),
			Role: shard.Replica, Condition: shard.Up, Lineage: lineage, Synced: true, Fence: shard.Closed, Priority: agent.DefaultPriority,
			Instance: lease.NewID(), Interval: usual().Interval, Timeout: usual().Timeout, Run: randomHex(), Engine: "redis", Version: "7.0.15", Txn: 1, Keys: 1000}
		if k == 0 {
			r.Role, r.Fence, r.Armed = shard.Primary, shard.Armed, true
		} else {
			r.PrimaryID = s.nodes[0].ID
			r.Link = &shard.Upstream{Address: s.nodes[0].Address, Up: true}
			s.nodes[0].Followers = append(s.nodes[0].Followers, shard.Follower{Address: r.Address, ID: r.ID, Online: true})
		}
		s.nodes = append(s.nodes, r)
	}
	return s
}

func randomHex() string {
	b := make([]byte, 20)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// found makes the shard: its row, and the lease of its primary's agent.
func (s *fakeShard) found(ctx context.Context, st store.Store, shards store.Shards, r shard.Record) (session string, err error) {
	in := lease.Instance{ID: r.Instance, Name: s.name, Address: r.Agent}
	for { // a store that was just started gives no lease away for a while
		session = lease.NewID()
		if _, err := st.StartSession(ctx, lease.Session{ID: session, Instance: in, Timing: usual()}); err != nil {
			return "", fmt.Errorf("a session: %w", err)
		}
		_, err := st.Acquire(ctx, lease.Expectation{Lease: shard.LeaseID(s.name), Session: session})
		if err == nil {
			break
		}
		if !errors.Is(err, lease.ErrUnavailable) || ctx.Err() != nil {
			return "", fmt.Errorf("a lease: %w", err)
		}
		time.Sleep(time.Second)
	}
	row := shard.View{Now: time.Now()}.BootstrapRow(r, randomHex())
	for _, m := range s.nodes[1:] {
		row.Members = append(row.Members, shard.Member{ID: m.ID, Address: m.Address, Agent: m.Agent, Since: time.Now()})
	}
	if _, err := shards.Registry().UpdateRow(ctx, shard.RowUpdate{Row: row}); err != nil {
		return "", fmt.Errorf("a row: %w", err)
	}
	return session, nil
}

// shardMany compares what a shard's outages take on a store of its own with what they take
// on one with a thousand shards.
func shardMany(ctx context.Context, b *bed, o options, r *Report) {
	s := newShardTrials(ctx, b, r)
	outages := []outage{nodeOutage, hostOutage}
	var alone []sample
	for _, one := range outages {
		alone = append(alone, s.few(ctx, one, min(5, o.fails)))
	}
	fleet := start(b, agentsRole, agentsOptions{Store: s.prog.store, Shards: shardFleet - 1})
	time.Sleep(fleetSettles)
	for i, one := range outages {
		got := s.few(ctx, one, o.fails)
		r.add(Figure{Section: "many", Subject: shardStore, Name: fmt.Sprintf("%s, beside %d shards of 3 nodes: until the new primary has accepted a write, median", one.name, shardFleet-1),
			Value: millis(got.median()), Unit: "ms", Bound: millis(one.bound), Peer: millis(alone[i].median()), Versus: "alone", Count: len(got)},
			Figure{Section: "many", Subject: shardStore, Name: one.name + ": worst", Value: millis(got.max()), Unit: "ms", Peer: millis(alone[i].max()), Versus: "alone", Count: len(got)})
	}
	_ = fleet.in.Close()
	var did fleetResult
	b.check(json.Unmarshal([]byte(fleet.await(saidResult, time.Minute).more), &did), "reading what the fleet did")
	r.add(Figure{Section: "many", Subject: shardStore, Name: "reports in a second, beside a renewal for each shard", Value: did.PerSecond},
		Figure{Section: "many", Subject: shardStore, Name: "reports that failed, in all", Value: float64(did.Failed), Limited: true},
		Figure{Section: "many", Subject: shardStore, Name: "sessions that lapsed, and were started again", Value: float64(did.Lapsed), Limited: true})
}

// few measures an outage without Sentinels beside it.
func (s *shardTrials) few(ctx context.Context, o outage, rounds int) (out sample) {
	for range rounds {
		t := s.startShard(o.timing)
		t.ready()
		out = append(out, t.suffer(ctx, o).down)
		t.end()
	}
	return out
}

// agentIdleFor is how long agents are watched at work.
const agentIdleFor = 20 * time.Second

// shardAgents measures what an agent needs.
func shardAgents(ctx context.Context, b *bed, o options, r *Report) {
	s := newShardTrials(ctx, b, r)
	t := s.startShard(usual())
	t.ready()
	pids := map[string]int{}
	for _, n := range t.nodes {
		pids[n.address] = n.agent.Pid()
	}
	w := &writer{key: "gentle", batch: 1, pause: gentle, patience: writeWithin, newFind: t.finder}
	w.start(ctx)
	time.Sleep(5 * time.Second)
	m := startMeter(pids)
	time.Sleep(agentIdleFor)
	u := m.read()
	var cpu, memory float64
	for address, pid := range pids {
		cpu, memory = max(cpu, u.share(address)), max(memory, float64(residentMemory(pid))/mib)
	}
	w.stop()
	r.add(Figure{Section: "agent", Subject: shardStore, Name: "resident memory of an agent, the largest of 3", Value: memory, Unit: "MiB", Bound: 30, Count: trioSize},
		Figure{Section: "agent", Subject: shardStore, Name: "of one core, at an interval of 1 s, the largest of 3", Value: cpu, Unit: "%", Bound: 2, Count: trioSize})
}
