//go:build linux

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// shardFaults are those beside the weak points.
var shardFaults = []shardTest{
	{name: "agent dies while its node is well", run: agentDies, still: true},
	{name: "node comes back at once, by something else than its agent", run: comesBack, change: startedElsewhere(
		"replicaof 127.0.0.1 0", "min-replicas-to-write 2147483647", "rdb-del-sync-files yes")},
	{name: "node comes back at once, and open", run: comesBackOpen, long: true, change: func(c *fault.ShardConfig) {
		c.Service, c.Agent, c.Timing = []string{}, []string{"--unfenced-start"}, leisurely
	}},
	{name: "hung and killed, with writes in its queues", run: hungWithQueues},
	{name: "hung and not killed, with writes in its queues", run: hungNotKilled, change: func(c *fault.ShardConfig) { c.Agent = []string{"--kill-hung=false"} }},
	{name: "chosen replica dies before its promotion", run: chosenDies(shard.Detaching)},
	{name: "chosen replica dies in its promotion", run: chosenDies(shard.Promoting)},
	{name: "chosen replica dies after its promotion", run: chosenDies(shard.Following)},
	{name: "old primary returns empty", run: returnsEmpty},
	{name: "old primary returns with another lineage", run: returnsOther},
	{name: "primary's host starts again from a snapshot", run: rolledBack, change: snapshots},
	{name: "primary's host starts again from a snapshot while all restart", run: rolledBackAmongRestarts, still: true},
	{name: "store comes back empty while a deposed primary returns", run: emptiedStore, redis: true, still: true},
	{name: "store down, nobody promises", run: storeDownAlone, redis: true, change: unattended},
	{name: "store down when the primary dies", run: storeDownAtDeath, redis: true},
	{name: "agent cut off from the store when the primary dies", run: cutOffAgentNamesNobody, redis: true, still: true},
	{name: "rolling restart of everything", run: rollingRestart, redis: true},
	{name: "disk full", run: shardDiskFull},
	{name: "switchover meets a death", run: twoOrchestrators},
	{name: "switchover meets a death that loses the data", run: twoOrchestrators, change: func(c *fault.ShardConfig) { c.Server = []string{"--appendonly", "no"} }},
}

func agentDies(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	p.KillAgent()
	s.Pass(4 * s.Timing.Timeout)
	late := now()
	s.Pass(s.Timing.Timeout)
	unmoved(t, s, before, "its agent died")
	if len(load.Writes(p, late)) == 0 {
		t.Error("no writes without the agent")
	}
	p.Start()
	if s.Settled() != p {
		t.Error("it was replaced when its agent came back")
	}
}

// startedElsewhere has nodes started by something else than their agents, with these lines in their configuration files.
func startedElsewhere(lines ...string) func(*fault.ShardConfig) {
	return func(c *fault.ShardConfig) { c.Service = lines }
}

// comesBack kills nodes that are started again before anybody can be promoted: they accept nothing until their agents say so.
func comesBack(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	for range 3 {
		p := s.Settled()
		p.KillNode()
		killed := now()
		s.Moved(p)
		s.Settled()
		if w := load.Writes(p, killed); len(w) > 0 {
			t.Errorf("%d writes to the old primary after it was killed", len(w))
		}
	}
}

// comesBackOpen: a node whose configuration does not close it accepts writes until its agent has seen it, which is long before
// the next interval.
func comesBackOpen(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	killed := map[*fault.ShardNode]time.Duration{}
	for range 2 {
		p := s.Settled() // another one each time
		p.KillNode()
		killed[p] = now()
		s.Moved(p)
		s.Pass(s.Timing.Interval)
		open := load.Writes(p, killed[p])
		if len(open) == 0 {
			continue
		}
		lasted := open[len(open)-1].Sent - open[0].Sent
		t.Logf("%d writes in %v to the old primary after it came back", len(open), lasted)
		if lasted > s.Timing.Interval/2 {
			t.Errorf("it was open for %v", lasted)
		}
	}
	e := load.Stop(s.Settled())
	e.Writes = slices.DeleteFunc(e.Writes, func(w fault.ShardWrite) bool {
		for n, at := range killed {
			if n.Addr == w.Node && w.Sent >= at {
				return true
			}
		}
		return false
	})
	judgedEvidence(t, e)
}

// queued sends writes on 50 connections that were there before, and returns how many were accepted
// in the end.
func queued(t *testing.T, n *fault.ShardNode, hang func()) (accepted func() int) {
	t.Helper()
	crowd, err := fault.NewCrowd(n.Addr, 50)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(crowd.Close)
	hang()
	if err := crowd.Send(16); err != nil {
		t.Fatal(err)
	}
	return crowd.Accepted
}

func hungWithQueues(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	var from time.Duration
	accepted := queued(t, p, func() { p.SignalNode(syscall.SIGSTOP); from = now() })
	s.Moved(p)
	p.SignalNode(syscall.SIGCONT)
	load.Hung(p, from)
	if n := accepted(); n != 0 {
		t.Errorf("%d of 800 writes were accepted by the primary that hung", n)
	}
	s.Settled()
}

// hungNotKilled measures what slips when nobody may kill it: the one round of its event loop in
// which it continues. It is not a promise, but bounded: nothing is accepted for longer than
// the armed fence takes.
func hungNotKilled(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	realserver.Eventually(t, time.Minute, "its fence is armed", func() error {
		if !p.Record().Armed {
			return errors.New("it is not")
		}
		return nil
	})
	var from time.Duration
	accepted := queued(t, p, func() { p.SignalNode(syscall.SIGSTOP); from = now() })
	s.Moved(p)
	continued := now()
	p.SignalNode(syscall.SIGCONT)
	load.Hung(p, from)
	t.Logf("%d of 800 queued writes were accepted when it went on", accepted())
	s.Settled()
	evidence := load.Stop(s.Settled())
	const armed = 5 * time.Second // three by its own arithmetic
	evidence.Excused = func(w fault.ShardWrite, _ time.Duration) bool { return w.Node == p.Addr && w.Acked < continued+armed }
	v := fault.JudgeShard(evidence)
	t.Logf("%d writes, %d slipped", v.Writes, v.Slipped)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
}

// chosenDies kills the replica that a plan has chosen, node and agent, in a phase.
func chosenDies(phase shard.Phase) func(*testing.T, *fault.Shard, *fault.ShardLoad) {
	return func(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
		p := s.Primary()
		p.KillHost() // so that there is time
		var chosen *fault.ShardNode
		met := false
		realserver.Eventually(t, time.Minute, "a plan in "+string(phase), func() error {
			v, err := s.Look()
			if err != nil {
				return err
			}
			if r, _ := v.Node(v.Row.Primary); r.Address != p.Addr && v.Row.Plan == nil {
				return nil // it was too quick
			}
			if v.Row.Plan == nil || v.Row.Plan.Phase != phase {
				return fmt.Errorf("the plan is %+v", v.Row.Plan)
			}
			met = true
			to := v.Row.Plan.To
			for _, n := range s.Replicas() {
				if r := n.Record(); n != p && (to == "" || r.ID == to) {
					chosen = n
				}
			}
			return nil
		})
		t.Logf("met: %v", met)
		if chosen == nil {
			chosen = s.Primary()
		}
		chosen.KillHost()
		// The third is left, and what it has decides; with the others back all is well in any case.
		chosen.Start()
		p.Start()
		s.Settled()
	}
}

func returnsEmpty(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.Must("SET", "precious", "1")
	p.Must("WAIT", "2", "5000")
	// Nothing of it is left, not even what the agent remembered, and it is back before anybody
	// has missed it.
	p.KillHost()
	p.Empty()
	p.Start()
	if got := s.Settled().Must("GET", "precious"); got != "1" {
		t.Error("the data has gone with the primary's")
	}
	p = s.Primary()
	p.KillHost()
	s.Moved(p)
	p.Empty()
	if err := os.Remove(filepath.Join(p.Dir, "memory.json")); err != nil {
		t.Logf("%v", err)
	}
	p.Start() // a new node at the old address
	realserver.Eventually(t, time.Minute, "the new node follows", func() error {
		if got, err := p.Do("GET", "precious"); err != nil || got != "1" {
			return fmt.Errorf("%q, %w", got, errors.Join(err))
		}
		return nil
	})
}

// returnsOther brings the old primary back with a data set of its own, under a lineage that
// nobody knows.
func returnsOther(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.Must("SET", "precious", "1")
	p.Must("WAIT", "2", "5000")
	p.KillHost()
	q := s.Moved(p)
	p.Empty()
	port := strconv.Itoa(realserver.FreePort(t))
	alone := realserver.Start(t, exec.Command(realserver.Find(t, "redis-server"), "--port", port, "--dir", p.Dir, "--save", "", "--appendonly", "yes"))
	for i := range 500 {
		realserver.Eventually(t, time.Minute, "a write to the node alone", func() error {
			_, err := fault.AskRedis("127.0.0.1:"+port, "SET", "foreign:"+strconv.Itoa(i), "1")
			return err
		})
	}
	alone.Stop(syscall.SIGTERM)
	p.Start()
	realserver.Eventually(t, time.Minute, "it follows, or says why not", func() error {
		r := p.Record()
		if r.Live() && (r.Role == shard.Replica && r.PrimaryID == q.ID() && r.Synced || r.Trouble != "") {
			t.Logf("it is a %s and %s: %s", r.Role, r.Condition, r.Trouble)
			return nil
		}
		return fmt.Errorf("it is a %s, %s", r.Role, r.Condition)
	})
	if _, err := p.Do("SET", "x", "1"); err == nil {
		t.Error("it takes writes")
	}
	if s.Primary() != q || q.Must("GET", "precious") != "1" || q.Must("EXISTS", "foreign:1") == "1" {
		t.Error("the shard's data is not what it was")
	}
	if r := p.Record(); r.Trouble != "" {
		p.KillAgent() // so that the others are all there are
	}
}

// storeDownAlone: without promises the primary closes in time, and opens by itself afterwards.
func storeDownAlone(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	s.Database.Server.Pause()
	realserver.Eventually(t, time.Minute, "it refuses writes", func() error {
		if _, err := p.Do("SET", "x", "1"); err == nil {
			return errors.New("it takes them")
		}
		return nil
	})
	closed := now()
	s.Pass(2 * s.Timing.Timeout)
	if w := load.Writes(p, closed); len(w) > 0 {
		t.Errorf("%d writes after it had closed", len(w))
	}
	s.Database.Server.Resume()
	s.Settled()
}

// storeDownAtDeath: the primary dies while nobody can decide anything; the failover comes with
// the store.
func storeDownAtDeath(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	s.Database.Server.Kill()
	s.Pass(s.Timing.Timeout)
	p.KillHost()
	s.Pass(2 * s.Timing.Timeout)
	s.Database.Server.Start(t)
	s.Moved(p)
	p.Start()
	s.Settled()
}

// cutOffAgentNamesNobody: an agent that cannot know who was promoted does not send clients to the dead primary, nor to its
// own node as one that is up to date.
func cutOffAgentNamesNobody(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Settled()
	r := s.Replicas()[0]
	sentinel := goredis.NewSentinelClient(&goredis.Options{Addr: r.Sentinel})
	defer sentinel.Close()
	name := func() error { return sentinel.GetMasterAddrByName(t.Context(), "orders").Err() }
	web := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	fresh := func() (int, error) {
		resp, err := web.Get("http://" + r.Checks + "/replica?lag=1MB")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	realserver.Eventually(t, time.Minute, "it names the primary, and its node is fresh", func() error {
		code, err := fresh()
		if code != http.StatusOK {
			err = fmt.Errorf("/replica: %d, %w", code, err)
		}
		return errors.Join(name(), err)
	})
	cutStore(r)
	p.KillHost()
	s.Moved(p)
	realserver.Eventually(t, time.Minute, "it names nobody, and does not call its node fresh", func() error {
		if err := name(); !errors.Is(err, goredis.Nil) {
			return fmt.Errorf("asked for the primary it said %v", err)
		}
		if code, err := fresh(); code != http.StatusServiceUnavailable {
			return fmt.Errorf("/replica: %d, %w", code, err)
		}
		return nil
	})
	healStore(r)
	p.Start()
	s.Settled()
	realserver.Eventually(t, time.Minute, "it names the primary again", name)
}

func rollingRestart(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	for _, n := range s.Nodes {
		n.Stop()
		n.Start()
		s.Settled()
	}
	s.Database.Server.Stop()
	s.Database.Server.Start(t)
	s.Settled()
	// A promise that was given in a slow moment keeps a replica from a switchover.
	t.Logf("%d failovers in place of a switchover", len(s.View().Row.Failovers))
}

// shardDiskFull: a primary that cannot write its snapshot refuses writes; a replica takes over.
func shardDiskFull(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	inTheWay := filepath.Join(p.Dir, "dump.rdb", "full")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Must("CONFIG", "SET", "save", "3600 100000")
	p.Must("BGSAVE")
	realserver.Eventually(t, time.Minute, "it refuses writes for its disk", func() error {
		_, err := p.Do("SET", "x", "1")
		if err == nil {
			return errors.New("it takes them")
		}
		return nil
	})
	s.Moved(p)
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	s.Settled()
}

// twoOrchestrators has a person's switchover meet the death of the primary, again and again. The
// supervised node may be back, with all it had, before anybody has replaced it.
func twoOrchestrators(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	desk := shard.Admin{Registry: s.Shards().Registry(), By: "test"}
	for range 3 {
		p := s.Settled()
		s.Forgive()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := desk.RequestPlan(ctx, "orders", shard.Request{Kind: shard.Switchover}, s.Replicas()[0].Addr)
		cancel()
		if err != nil && !errors.Is(err, lease.ErrUnavailable) {
			t.Logf("asking: %v", err)
		}
		p.KillNode()
	}
	s.Settled()
}
