package sabledb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	stand "github.com/understudy-ha/understudy/internal/testkit/sabledb"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/engine/sabledb"
	"github.com/understudy-ha/understudy/shard/engine/wire"
	"github.com/understudy-ha/understudy/store/memory"
)

// timing of the agents of the fault tests: T = 1 s.
var timing = lease.Timing{Interval: 200 * time.Millisecond, Timeout: time.Second}

// process is that of a stand-in, or of a real node: an agent starts it, and kills it when it hangs.
type process struct{ n *stand.Node }

func (p process) Start(context.Context) error {
	if p.Running() {
		return nil
	}
	return p.n.Run()
}

func (p process) Running() bool {
	select {
	case <-p.n.Done():
		return false
	default:
		return true
	}
}

func (p process) Done() <-chan struct{} { return p.n.Done() }
func (p process) Kill() error           { go p.n.Kill(); return nil }
func (p process) PID() int              { return p.n.PID() }

// fleet is a shard of SableDB nodes, each with an agent, and a writer who follows the primary.
type fleet struct {
	t     *testing.T
	store *memory.Store
	nodes []*stand.Node

	mu      sync.Mutex
	acked   []string
	lastAck time.Time
	gap     time.Duration // the longest between two writes that were acknowledged
}

func startFleet(t *testing.T, count int, supervised bool) *fleet {
	f := &fleet{t: t, store: memory.New(nil)}
	c := &stand.Cluster{}
	for range count {
		f.nodes = append(f.nodes, c.Start(t))
	}
	for _, n := range f.nodes {
		f.startAgent(n, func(c *agent.Config) {
			if supervised {
				c.Process = process{n}
				return
			}
			c.Adopt = func(pid int) (shard.Process, error) { // as package node does on a real host
				if pid != 0 {
					t.Errorf("the node told process %d", pid)
				}
				return process{n}, nil
			}
		})
	}
	f.until("all are in step", func(v shard.View) bool {
		step := 0
		for _, r := range v.Nodes {
			if r.Role == shard.Replica && r.Synced && r.Link != nil && r.Link.Up {
				step++
			}
		}
		return step == count-1 && v.Row.Plan == nil && len(v.Row.Members) == count
	})
	return f
}

func (f *fleet) startAgent(n *stand.Node, edit func(*agent.Config)) {
	e, err := sabledb.New(sabledb.Config{Node: n.Addr, Replication: n.Private, Folder: func() string { return n.Folder }, Timeout: timing.Timeout / 5})
	must(f.t, err)
	cfg := agent.Config{Shard: "s", Node: n.Addr, Dir: f.t.TempDir(), Engines: e, Timing: timing, KillHung: true,
		Registry: f.store.Registry(), Commands: f.store.Commands(), Leases: f.store}
	edit(&cfg)
	a, err := agent.New(cfg)
	must(f.t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel(agent.ErrAbandon)
		if err := <-done; err != nil {
			f.t.Error(err)
		}
		_ = e.(io.Closer).Close()
	})
}

func (f *fleet) view() shard.View {
	v, err := f.store.Registry().ReadView(context.Background(), "s")
	if err != nil && !errors.Is(err, shard.ErrNotFound) {
		f.t.Fatal(err)
	}
	return v
}

func (f *fleet) until(what string, ok func(v shard.View) bool) {
	f.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(f.view()); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			v := f.view()
			for _, r := range v.Nodes {
				f.t.Logf("%.4s %s %s synced %v txn %d link %+v %s", r.ID, r.Role, r.Condition, r.Synced, r.Txn, r.Link, r.Trouble)
			}
			f.t.Fatalf("not so: %s; plan %+v, last %+v", what, v.Row.Plan, v.Row.Last)
		}
	}
}

// primary is the node that the row names.
func (f *fleet) primary() *stand.Node {
	e, err := f.view().PrimaryEndpoint()
	if err != nil {
		return nil
	}
	for _, n := range f.nodes {
		if n.Addr == e.Address {
			return n
		}
	}
	return nil
}

// write writes a new key about every millisecond, to whichever node is the primary, until the function it returns is called.
func (f *fleet) write() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		conns := map[string]*wire.Conn{}
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			p, key := f.primary(), fmt.Sprintf("w%06d", i)
			if p != nil {
				if conns[p.Addr] == nil {
					conns[p.Addr] = wire.New(p.Addr, wire.Config{Timeout: 200 * time.Millisecond})
				}
				if replies, err := conns[p.Addr].Do(ctx, []string{"SET", key, "v"}); err == nil && replies[0].Err() == nil {
					f.ack(key)
				}
			}
			<-tick.C
		}
	}()
	return func() { cancel(); <-done }
}

func (f *fleet) ack(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.lastAck.IsZero() {
		f.gap = max(f.gap, now.Sub(f.lastAck))
	}
	f.acked, f.lastAck = append(f.acked, key), now
}

func (f *fleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
}

// awaitWrites waits for so many more.
func (f *fleet) awaitWrites(more int) {
	f.t.Helper()
	want := f.count() + more
	f.until(fmt.Sprintf("%d more writes", more), func(shard.View) bool { return f.count() >= want })
}

// lost are the acknowledged writes that the primary does not have.
func (f *fleet) lost() (count int) {
	c := wire.New(f.primary().Addr, wire.Config{Timeout: ample})
	defer c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range f.acked {
		replies, err := c.Do(f.t.Context(), []string{"GET", key})
		must(f.t, err)
		if replies[0].Nil {
			count++
		}
	}
	return count
}

// judge compares what a fault cost. Times are shown and not judged: the machine may be busy.
func (f *fleet) judge(mayLose int) {
	f.t.Helper()
	lost := f.lost()
	f.t.Logf("gap for a writer %v, %d of %d acknowledged writes lost", f.gap.Round(time.Millisecond), lost, f.count())
	if n := len(f.view().Row.Failovers); mayLose == 0 && n > 0 {
		f.t.Logf("the machine was so busy that the shard failed over %d times by itself, which may lose writes", n)
		return
	}
	if lost > mayLose {
		f.t.Errorf("%d writes lost, at most %d may be", lost, mayLose)
	}
}

func TestFaults(t *testing.T) {
	const inFlight = 1000
	endThreads := func(f *fleet, p *stand.Node) {
		const again = 10 * time.Second // an agent may have had its node copy anew before anybody looked
		var ended time.Time
		f.until("a replica says so", func(v shard.View) bool {
			for _, n := range f.nodes {
				if n != p && time.Since(ended) > again {
					n.EndThread()
				}
			}
			if time.Since(ended) > again {
				ended = time.Now()
			}
			return slices.ContainsFunc(v.Nodes, func(r shard.Record) bool { return r.Link != nil && r.Link.Stalled && r.Trouble != "" })
		})
	}
	for name, c := range map[string]struct {
		unsupervised bool
		harm         func(f *fleet, p *stand.Node)
		mayLose      int
		stays        bool // the primary that there is
	}{
		"killed":               {harm: func(_ *fleet, p *stand.Node) { p.Kill() }, mayLose: inFlight},
		"hung":                 {harm: func(_ *fleet, p *stand.Node) { p.Hang() }, mayLose: inFlight},
		"hung, not supervised": {unsupervised: true, harm: func(_ *fleet, p *stand.Node) { p.Hang() }, mayLose: inFlight},
		"threads ended":        {harm: endThreads, stays: true},
		"link reset":           {harm: func(_ *fleet, p *stand.Node) { p.Cut() }, stays: true},
		"switch over":          {harm: (*fleet).switchOver},
	} {
		t.Run(name, func(t *testing.T) {
			if (name == "threads ended" || name == "link reset") && stand.Real() != "" {
				t.Skip("it needs the stand-in")
			}
			f := startFleet(t, 3, !c.unsupervised)
			stop := f.write()
			f.awaitWrites(300)
			before := f.primary()
			f.mu.Lock()
			f.gap = 0
			f.mu.Unlock()
			c.harm(f, before)
			if !c.stays {
				f.until("another is the primary", func(v shard.View) bool {
					if last := v.Row.Last; last != nil && last.Request != "" && last.Failed != "" {
						t.Fatal(last.Failed)
					}
					p := f.primary()
					return p != nil && p != before
				})
			}
			f.awaitWrites(300)
			stop()
			f.judge(c.mayLose)
			f.until("all are in step again", func(v shard.View) bool {
				step := 0
				for _, r := range v.Nodes {
					if r.Role == shard.Replica && r.Synced && r.Link != nil && r.Link.Up && r.Live() {
						step++
					}
				}
				return step == 2 || c.unsupervised && step == 1 // what no agent starts stays away
			})
		})
	}
}

func (f *fleet) switchOver(*stand.Node) {
	request := shard.Request{ID: "1", Kind: shard.Switchover, By: "test", At: time.Now()}
	if _, err := f.store.Registry().UpdateRow(f.t.Context(), shard.RowUpdate{Row: func() shard.Row { r := f.view().Row; r.Request = &request; return r }()}); err != nil {
		f.t.Fatal(err)
	}
}

// Where the process of a node cannot be watched, the record of a primary says what to do.
func TestUnwatched(t *testing.T) {
	f := &fleet{t: t, store: memory.New(nil)}
	f.startAgent((&stand.Cluster{}).Start(t), func(c *agent.Config) {
		c.Adopt = func(int) (shard.Process, error) { return nil, errors.New("it listens in another container") }
	})
	f.until("it says so", func(v shard.View) bool {
		return len(v.Nodes) == 1 && v.Nodes[0].Role == shard.Primary && strings.Contains(v.Nodes[0].Trouble, "in another container; run the agent as")
	})
}
