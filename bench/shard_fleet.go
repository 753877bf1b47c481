package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

const (
	// shardFleetArg makes this program a fleet of simulated agents.
	shardFleetArg = "shard-fleet"
	// shardFleet is how many shards a store has.
	shardFleet = 1000
	// fleetLanes share the fleet among them, each with connections of its own. On Redis everybody
	// who waits for a command has a connection, of which a store opens at most 100.
	fleetLanes = 32
	// fleetSettles is how long it runs before anything is measured.
	fleetSettles = 10 * time.Second
)

// shardFleetMain runs simulated agents until its standard input is closed: each reports its
// node every interval, renews the session of its primary, and waits for commands, as a real one does.
// It says "ready" when all have reported, and what it did when it ends.
func shardFleetMain(args []string) int {
	f := flag.NewFlagSet(shardFleetArg, flag.ContinueOnError)
	url := f.String("store", "", "")
	n := f.Int("shards", 0, "")
	if f.Parse(args) != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runShardFleet(ctx, *url, *n); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// fleetTally is what a fleet did.
type fleetTally struct {
	reports, failed atomic.Int64
	mu              sync.Mutex
	took            sample
}

func (t *fleetTally) reported(d time.Duration, err error) {
	if err != nil {
		if t.failed.Add(1) < 10 {
			fmt.Fprintln(os.Stderr, "bench: a report:", err)
		}
		return
	}
	if t.reports.Add(1)%10 == 0 {
		t.mu.Lock()
		t.took = append(t.took, d)
		t.mu.Unlock()
	}
}

func runShardFleet(ctx context.Context, url string, n int) error {
	tally := &fleetTally{}
	var ready, running sync.WaitGroup
	failed := make(chan error, fleetLanes)
	for i := range fleetLanes {
		st, err := open.Open(ctx, url, open.Options{})
		if err != nil {
			return err
		}
		defer st.Close()
		shards, ok := st.(store.Shards)
		if !ok {
			return errors.New("the store keeps no shards")
		}
		l := &fleetLane{st: st, shards: shards, tally: tally}
		for k := i; k < n; k += fleetLanes {
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
	fmt.Println("ready")
	began := time.Now()
	tally.reports.Store(0)
	<-ctx.Done()
	rate := float64(tally.reports.Load()) / time.Since(began).Seconds()
	running.Wait()
	tally.mu.Lock()
	defer tally.mu.Unlock()
	fmt.Printf("tally %.0f %d %d %d\n", rate, tally.failed.Load(), tally.took.median().Microseconds(), tally.took.p99().Microseconds())
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
	type agent struct {
		shard.Record
		session string
	}
	var agents []*agent
	for _, s := range l.fakes {
		for k, r := range s.nodes {
			a := &agent{Record: r}
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
		a.Txn += int64(mathrand.N(100_000))
		call, cancel := context.WithTimeout(ctx, usual().Interval)
		began := time.Now()
		_, err := l.shards.Registry().Report(call, a.Record, false)
		took := time.Since(began)
		if err == nil && a.session != "" {
			_, err = l.st.RenewSession(call, a.session)
		}
		cancel()
		if ctx.Err() == nil {
			l.tally.reported(took, err)
		}
	}
	return nil
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
	addLoad(r, "many", "at the start")
	for _, kind := range shardStores(o) {
		s := newShardTrials(ctx, b, r, buildProgram(ctx, b), kind)
		host := outagesOfShards()[1]
		node := outagesOfShards()[0]
		alone := map[string]sample{}
		for _, one := range []outage{node, host} {
			alone[one.section] = s.few(ctx, one, min(5, o.fails))
		}
		f := startShardFleet(b, s.prog.store)
		pids := map[string]int{"fleet": f.Pid()}
		if pid := s.serverPid; pid != 0 {
			pids["server"] = pid
		}
		m := startMeter(b, pids)
		time.Sleep(fleetSettles)
		u := m.read()
		for _, one := range []outage{node, host} {
			got := s.few(ctx, one, o.fails)
			s.r.add(Figure{Section: "many", Subject: kind, Name: fmt.Sprintf("%s, beside %d shards of 3 nodes: until the new primary has accepted a write, median", one.name, shardFleet-1),
				Value: millis(got.median()), Unit: "ms", Bound: millis(one.bound), Peer: millis(alone[one.section].median()), Versus: "alone", Count: len(got)},
				Figure{Section: "many", Subject: kind, Name: one.name + ": worst", Value: millis(got.max()), Unit: "ms", Peer: millis(alone[one.section].max()), Versus: "alone", Count: len(got)})
		}
		s.r.add(Figure{Section: "many", Subject: kind, Name: "the store's server meanwhile", Value: 100 * u.share("server"), Unit: "% of a core"},
			Figure{Section: "many", Subject: kind, Name: "the simulated agents, in one process", Value: 100 * u.share("fleet"), Unit: "% of a core"})
		f.Stop(syscall.SIGTERM)
		if words := strings.Fields(lastLine(f.Output(), "tally ")); len(words) == 5 {
			for i, name := range []string{"reports with renewals, in a second", "of them failed, in all"} {
				v, _ := strconv.ParseFloat(words[i+1], 64)
				s.r.add(Figure{Section: "many", Subject: kind, Name: name, Value: v, Limited: i == 1})
			}
			for i, name := range []string{"a report's answer, median", "a report's answer, p99"} {
				v, _ := strconv.ParseFloat(words[i+3], 64)
				s.r.add(Figure{Section: "many", Subject: kind, Name: name, Value: v / 1000, Unit: "ms"})
			}
		}
		b.clear()
	}
	addLoad(r, "many", "at the end")
}

func lastLine(text, prefix string) (out string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			out = line
		}
	}
	return out
}

func startShardFleet(b *bed, url string) *realserver.Process {
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
	p := realserver.Start(b, exec.Command(self, shardFleetArg, "-store", url, "-shards", strconv.Itoa(shardFleet-1)))
	waitFor(b, "all simulated agents have reported", func() bool {
		if p.Exited() {
			b.Fatalf("bench: the fleet ended: %s", p.Output())
		}
		return strings.Contains(p.Output(), "ready\n")
	})
	return p
}

// few measures an outage without Sentinels beside it.
func (s *shardTrials) few(ctx context.Context, o outage, rounds int) (out sample) {
	for range rounds {
		s.n++
		t := startAgents(s.b, s.prog, fmt.Sprintf("bench-%d", s.n), o.timing)
		t.ready()
		c := t.suffer(ctx, o)
		fmt.Fprintf(os.Stderr, "    %s: %v%s\n", o.name, c.down.Round(100*time.Microsecond), t.story())
		out = append(out, c.down)
		t.end()
	}
	return out
}

// agentIdleFor is how long agents are watched at work.
const agentIdleFor = 20 * time.Second

// shardAgents measures what an agent needs.
func shardAgents(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range shardStores(o) {
		s := newShardTrials(ctx, b, r, buildProgram(ctx, b), kind)
		t := startAgents(b, s.prog, "idle", usual())
		t.ready()
		was := t.primary()
		pids := map[string]int{}
		for i, n := range t.nodes {
			pids[strconv.Itoa(i)] = n.agent.Pid()
		}
		w := &writer{key: "gentle", batch: 1, pause: gentle, patience: writeWithin, newFind: t.finder}
		w.start(ctx)
		time.Sleep(5 * time.Second)
		m := startMeter(b, pids)
		time.Sleep(agentIdleFor)
		u := m.read()
		var cpu, memory float64
		for i, n := range t.nodes {
			share := 100 * u.share(strconv.Itoa(i))
			role := "a replica's"
			if n.address == was {
				role = "the primary's"
			}
			fmt.Fprintf(os.Stderr, "    %s agent: %.2f %% of a core, %.1f MiB\n", role, share, float64(residentMemory(n.agent.Pid()))/mib)
			cpu, memory = max(cpu, share), max(memory, float64(residentMemory(n.agent.Pid()))/mib)
		}
		w.stop()
		r.add(Figure{Section: "agent", Subject: kind, Name: "resident memory of an agent, the largest of 3", Value: memory, Unit: "MiB", Bound: 30, Count: trioSize},
			Figure{Section: "agent", Subject: kind, Name: "of one core, at an interval of 1 s, the largest of 3", Value: cpu, Unit: "%", Bound: 2, Count: trioSize})
		t.end()
		b.clear()
	}
}
