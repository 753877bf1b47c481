//go:build linux

package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// shardTest is one fault of a shard, from when it is settled to what must come of it.
type shardTest struct {
	name string
	run  func(t *testing.T, s *fault.Shard, load *fault.ShardLoad)
	// redis: the store is one, and not an SQLite file. steps: its clock can be stepped.
	redis, steps bool
	// still: the primary must stay where it is, also when the machine stands still for some seconds.
	still  bool
	long   bool // only in make prove
	change func(*fault.ShardConfig)
}

// unhurried agents do not give a primary up for what a busy machine does to them.
var unhurried = lease.Timing{Interval: 400 * time.Millisecond, Timeout: 5 * time.Second}

// leisurely agents are asked for what does not wait for their interval.
var leisurely = lease.Timing{Interval: 4 * time.Second, Timeout: 16 * time.Second}

// weakPoints are what automatic failover has been seen to get wrong.
var weakPoints = []shardTest{
	{name: "W01 no fencing", run: weakFencing, redis: true, change: unattended},
	{name: "W02 only the central record decides", run: weakRecord, redis: true, still: true},
	{name: "W03 a hung primary is not noticed", run: weakHang},
	{name: "W04 orchestrator crashes mid-way", run: weakOrchestrator},
	{name: "W05 lock outlived or never freed", run: weakLock},
	{name: "W06 chosen replica dead or empty", run: weakChoice},
	{name: "W07 transactions of another history", run: weakTransactions},
	{name: "W08 acknowledged writes lost", run: weakLoss},
	{name: "W09 clock dependence", run: weakClock, redis: true, steps: true, still: true},
	{name: "W10 command queue garbage", run: weakQueue, still: true},
	{name: "W11 queue executes anything", run: weakExecution, redis: true, still: true},
	{name: "W12 read-modify-write", run: weakRows, redis: true},
	{name: "W13 replication ends silently", run: weakReplication, still: true},
	{name: "W14 every failover is a full copy", run: weakCopies},
	{name: "W15 central database is a single point", run: weakStore, redis: true},
	{name: "W16 nothing for people and clients", run: weakPeople, still: true},
	{name: "W17 one failed heartbeat ends the timer", run: weakHeartbeat, redis: true, still: true},
	{name: "W18 silent on health", run: weakSilence},
	{name: "W19 IPv6", run: weakAddress, change: func(c *fault.ShardConfig) { c.Host = "::1" }},
	{name: "W19 host names", run: weakAddress, change: func(c *fault.ShardConfig) { c.Host = "localhost" }},
}

func unattended(c *fault.ShardConfig) { c.Unattended = true }

func TestFaultShard(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	for _, test := range slices.Concat(weakPoints, shardFaults) {
		test.try(t, programs)
	}
}

func (s shardTest) try(t *testing.T, programs fault.Programs) {
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		skipLong(t, s.long)
		cfg := fault.ShardConfig{Programs: programs, Seed: 1}
		if s.redis {
			cfg.Database = fault.Redis(t, s.steps)
		} else {
			cfg.Database = fault.SQLite(t)
		}
		if s.still {
			cfg.Timing = unhurried
		}
		if s.change != nil {
			s.change(&cfg)
		}
		sh := fault.NewShard(t, cfg)
		load := &fault.ShardLoad{Shard: sh}
		load.Start()
		s.run(t, sh, load)
		if !t.Failed() && !load.Stopped() {
			judgedShard(t, sh, load)
		}
	})
}

// skipLong skips what is long unless that is wanted.
func skipLong(t *testing.T, long bool) {
	t.Helper()
	if long && !prove {
		t.Skip("only with UNDERSTUDY_PROVE=1")
	}
}

func now() time.Duration { return lease.BootClock().Now() }

// cutStore takes the store away from an agent.
func cutStore(n *fault.ShardNode) { n.Link.Set(fault.Way{Swallow: true}, fault.Way{Swallow: true}) }
func healStore(n *fault.ShardNode) {
	n.Link.Set(fault.Way{}, fault.Way{})
	n.Link.Reset()
}

// unmoved fails the test if the row names another primary, or the same one again.
func unmoved(t *testing.T, s *fault.Shard, before shard.View, why string) {
	t.Helper()
	if v := s.View(); v.Row.Primary != before.Row.Primary || v.Row.PrimaryEpoch != before.Row.PrimaryEpoch {
		t.Errorf("%s: the primary was %.8s under epoch %d, and is %.8s under %d; last: %+v", why,
			before.Row.Primary, before.Row.PrimaryEpoch, v.Row.Primary, v.Row.PrimaryEpoch, v.Row.Last)
	}
}

// weakFencing: a primary whose agent does not reach the store, and whom nobody can promise
// anything, closes itself. The others find it closed, and replace it; it opens only as the primary.
// One that was killed starts closed.
func weakFencing(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	cutStore(p)
	realserver.Eventually(t, time.Minute, "it refuses writes", func() error {
		if _, err := p.Do("SET", "x", "1"); err == nil {
			return fmt.Errorf("it takes them")
		}
		return nil
	})
	closed := now()
	s.Moved(p)
	healStore(p)
	if s.Settled() == p {
		t.Error("it is the primary again, and nobody asked for that")
	}
	if w := load.Writes(p, closed); len(w) > 0 {
		t.Errorf("%d writes to it after others had found it closed", len(w))
	}
	p = s.Settled()
	p.KillHost()
	s.Moved(p)
	returned := now()
	p.Start()
	s.Settled()
	if w := load.Writes(p, returned); len(w) > 0 {
		t.Errorf("%d writes to the old primary after it returned", len(w))
	}
}

// weakRecord: a healthy primary whose agent does not reach the store is not replaced, and continues.
func weakRecord(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	cutStore(p)
	s.Pass(3 * s.Timing.Timeout)
	late := now()
	s.Pass(s.Timing.Timeout)
	unmoved(t, s, before, "its agent does not reach the store")
	writes := len(load.Writes(p, late))
	t.Logf("%d writes by promises", writes)
	healStore(p)
	if s.Settled() != p {
		t.Error("it was replaced afterwards")
	}
}

func weakHang(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	from := now()
	p.SignalNode(syscall.SIGSTOP)
	stopped := now()
	s.Moved(p)
	t.Logf("moved after %v", now()-from)
	p.SignalNode(syscall.SIGCONT)
	load.Hung(p, stopped)
	s.Settled()
	if w := load.Writes(p, stopped); len(w) > 0 {
		t.Errorf("%d writes to the hung primary", len(w))
	}
}

// weakOrchestrator kills the orchestrator's agent in every phase that can be met.
func weakOrchestrator(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	met := map[shard.Phase]bool{}
	for _, phase := range []shard.Phase{shard.Detaching, shard.Promoting, shard.Following} {
		p := s.Settled()
		s.Forgive()
		before, err := s.Look()
		if err != nil {
			t.Fatal(err)
		}
		var victim *fault.ShardNode
		p.KillNode()
		realserver.Eventually(t, time.Minute, "a plan in "+string(phase), func() error {
			v, err := s.Look()
			if err != nil {
				return err
			}
			plan := v.Row.Plan
			if plan == nil || plan.Phase != phase {
				if v.Row.Primary != p.ID() && v.Row.Settled() {
					return nil // it was too quick to be met
				}
				return fmt.Errorf("%+v", plan)
			}
			r, _ := v.Node(plan.ByNode)
			for _, n := range s.Nodes {
				if n.Addr == r.Address {
					victim = n
				}
			}
			return nil
		})
		if victim != nil {
			met[phase] = true
			victim.KillAgent()
		}
		// It may be the same node again: who was promoted may be the one that was just killed.
		realserver.Eventually(t, time.Minute, "a primary of a later epoch", func() error {
			if v, err := s.Look(); err != nil || v.Row.PrimaryEpoch <= before.Row.PrimaryEpoch {
				return fmt.Errorf("the row is %+v (%w)", v.Row, err)
			}
			return nil
		})
		if victim != nil {
			victim.Start()
		}
	}
	s.Settled()
	t.Logf("met %v", met)
}

// weakLock: a lock whose holder has gone is taken over, and an orchestrator that was away for
// longer than anybody waits does no harm when it is back.
func weakLock(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	err := s.Shards().Registry().Lock(t.Context(), shard.Lock{Shard: "orders", Primary: p.ID(), Value: "somebody who has gone"})
	if err != nil {
		t.Fatal(err)
	}
	p.KillNode()
	from := now()
	q := s.Moved(p)
	t.Logf("moved after %v in spite of the lock", now()-from)
	s.Settled()
	q.KillNode()
	var by *fault.ShardNode
	realserver.Eventually(t, time.Minute, "a plan", func() error {
		v, err := s.Look()
		switch {
		case err != nil:
			return err
		case v.Row.Plan != nil:
			r, _ := v.Node(v.Row.Plan.ByNode)
			for _, n := range s.Nodes {
				if n.Addr == r.Address {
					by = n
				}
			}
		case v.Row.Primary != q.ID() && v.Row.Primary != "":
			return nil // it was too quick
		default:
			return fmt.Errorf("none yet")
		}
		return nil
	})
	if by != nil {
		by.SignalAgent(syscall.SIGSTOP)
		s.Pass(3 * s.Timing.Timeout)
		by.SignalAgent(syscall.SIGCONT)
	}
	s.Settled()
}

// weakChoice: neither a replica that is dead nor one that never had the data is chosen.
func weakChoice(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	others := s.Replicas()
	empty, good := others[0], others[1]
	empty.KillHost()
	empty.Empty()
	p.SignalNode(syscall.SIGSTOP) // so that the empty one cannot copy from it
	stopped := now()
	empty.Start()
	if got := s.Moved(p); got != good {
		t.Errorf("%s was chosen, which has nothing", got.Name)
	}
	p.SignalNode(syscall.SIGCONT)
	load.Hung(p, stopped)
	s.Settled()
}

// weakTransactions: an old primary that comes back with more transactions than anybody has does not
// win by them.
func weakTransactions(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	for _, r := range s.Replicas() { // they fall behind
		r.Must("REPLICAOF", "127.0.0.1", "1")
	}
	for i := range 2000 {
		if _, err := p.Do("SET", "more:"+strconv.Itoa(i), strings.Repeat("x", 100)); err != nil {
			break
		}
	}
	p.KillHost()
	s.Moved(p)
	p.Start()
	if now := s.Settled(); now == p {
		t.Error("the old primary won by its transactions")
	}
	for _, n := range s.Replicas() {
		realserver.Eventually(t, time.Minute, n.Name+" has what the primary has", func() error {
			if a, b := n.Must("DBSIZE"), s.Primary().Must("DBSIZE"); a != b {
				return fmt.Errorf("%s and %s", a, b)
			}
			return nil
		})
	}
}

// weakLoss: what is lost is known, and with a synchronous bound nothing is that was acknowledged
// by a replica.
func weakLoss(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	for range 2 {
		p := s.Settled()
		p.KillHost()
		s.Moved(p)
		p.Start()
	}
	s.Settled()
	v := s.View()
	for _, l := range v.Row.Lineages[:len(v.Row.Lineages)-1] {
		if l.End == 0 {
			t.Errorf("nobody knows where %.8s ended", l.ID)
		}
	}
}

// weakClock steps the store's clock while all is well, and while the primary is replaced.
func weakClock(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	before := s.View()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 0} {
		s.Database.Server.Step(t, step)
		s.Pass(s.Timing.Timeout * 3 / 2)
		unmoved(t, s, before, fmt.Sprintf("the store's clock was stepped to %v", step))
	}
	s.Database.Server.Step(t, -time.Hour)
	s.Pass(s.Timing.Timeout)
	p := s.Settled()
	p.KillHost()
	from := now()
	s.Moved(p)
	t.Logf("moved after %v", now()-from)
	p.Start()
}

// weakQueue puts commands into queues that are old, for others, or from nobody.
func weakQueue(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	before := s.View()
	p := s.Primary()
	dead := "127.0.0.1:1"
	for i, n := range s.Nodes {
		for j, c := range []shard.Command{
			{Epoch: 1, Order: shard.OrderFollow, To: p.ID(), Address: dead},
			{Epoch: 1, Order: shard.OrderPromote, To: n.ID()},
			{Epoch: 1, Order: shard.OrderFence},
			{Epoch: 1, Order: shard.OrderDetach},
			{Epoch: 1, Order: "flushall"},
			{Epoch: before.Row.Epoch, Order: "flushall"},
		} {
			c.ID, c.Shard, c.Node, c.Within, c.By = fmt.Sprintf("old/%d/%d", i, j), "orders", n.ID(), time.Hour, "x"
			if err := s.Shards().Commands().Send(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Pass(2 * s.Timing.Timeout)
	unmoved(t, s, before, "old commands")
	if s.Settled() != p {
		t.Error("the primary changed")
	}
}

// weakExecution pushes what is no command into the queues and hostile text into a record.
func weakExecution(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	p.Must("SET", "precious", "1")
	for _, n := range s.Nodes {
		for _, text := range []string{"FLUSHALL", "REPLICAOF NO ONE", "{}", "[1,2", strings.Repeat("x", 100_000), "9999999999999999 {\"order\":\"promote\"}"} {
			storeDo(t, s, "LPUSH", queueKey(t, s, n.ID()), text)
		}
	}
	s.Pass(s.Timing.Timeout)
	unmoved(t, s, before, "hostile text in the queues")
	if got := s.Settled().Must("GET", "precious"); got != "1" {
		t.Error("the data has gone")
	}
	p.KillNode() // and the queues still work
	s.Moved(p)
	s.Settled()
}

func storeDo(t *testing.T, s *fault.Shard, args ...string) string {
	t.Helper()
	text, err := fault.AskRedis(s.Database.Addr, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func queueKey(t *testing.T, s *fault.Shard, id string) string {
	t.Helper()
	keys, err := fault.AskRedis(s.Database.Addr, "EVAL", "return table.concat(redis.call('KEYS','*'..ARGV[1]..'*'), ' ')", "0", id)
	if err != nil {
		t.Fatal(err)
	}
	for k := range strings.FieldsSeq(keys) {
		if prefix, ok := strings.CutSuffix(k, id); ok {
			return prefix + id + "_queue"
		}
	}
	t.Fatalf("no key for %s among %q", id, keys)
	return ""
}

// weakRows: many change the row at once, while the primary is replaced, and nobody is lost.
func weakRows(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	desk := shard.Admin{Registry: s.Shards().Registry(), By: "test"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for ctx.Err() == nil {
				_ = desk.Resume(ctx, "orders")
				_ = desk.Forget(ctx, "orders", p.Addr)
			}
		})
	}
	p.KillNode()
	s.Moved(p)
	stop()
	busy.Wait()
	s.Settled()
	if v := s.View(); len(v.Row.Members) != len(s.Nodes) || len(v.Nodes) != len(s.Nodes) {
		t.Errorf("%d members, %d records of %d nodes", len(v.Row.Members), len(v.Nodes), len(s.Nodes))
	}
}

// weakReplication: a replica that stops to replicate, or was led elsewhere, is led back.
func weakReplication(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	before := s.View()
	others := s.Replicas()
	others[0].Must("REPLICAOF", "127.0.0.1", "1")
	others[1].Must("REPLICAOF", "NO", "ONE")
	s.Pass(s.Timing.Timeout)
	s.Settled()
	unmoved(t, s, before, "replicas were led astray")
	for _, r := range others {
		r.Must("CLIENT", "KILL", "TYPE", "master")
	}
	s.Settled()
	unmoved(t, s, before, "links were cut")
}

// weakCopies: the replica that was not chosen continues with what it has.
func weakCopies(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.KillNode()
	q := s.Moved(p)
	s.Settled()
	full, partial := info(t, q, "sync_full"), info(t, q, "sync_partial_ok")
	t.Logf("full copies: %d, partial: %d", full, partial)
	if partial == 0 {
		t.Error("no replica went on with what it had")
	}
	if full > 1 {
		t.Errorf("%d full copies: only the old primary may need one", full)
	}
}

func info(t *testing.T, n *fault.ShardNode, name string) int {
	t.Helper()
	for line := range strings.Lines(n.Must("INFO")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			number, _ := strconv.Atoi(value)
			return number
		}
	}
	return -1
}

// weakStore: while the store is down the primary continues by promises; nothing fails over then, nor
// when the store is back and every record is old.
func weakStore(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p, before := s.Primary(), s.View()
	s.Database.Server.Kill()
	s.Pass(4 * s.Timing.Timeout)
	late := now()
	s.Pass(s.Timing.Timeout)
	if w := load.Writes(p, late); len(w) == 0 {
		t.Error("no writes while the store is down, though all agents live")
	}
	s.Database.Server.Start(t)
	s.Pass(s.Timing.Timeout)
	if s.Settled() != p {
		t.Error("the primary was replaced")
	}
	if v := s.View(); v.Row.Primary != before.Row.Primary {
		t.Error("the row names another primary")
	}
}

// weakPeople: switchover, pause and priorities.
func weakPeople(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	must := func(args ...string) string {
		t.Helper()
		out, err := s.Understudy(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	p := s.Primary()
	to := s.Replicas()[0]
	must("shard", "switchover", "orders", "--to", to.Addr)
	if got := s.Settled(); got != to {
		t.Errorf("the primary is %s", got.Name)
	}
	if got := strings.TrimSpace(must("shard", "primary", "orders")); got != to.Addr {
		t.Errorf("shard primary prints %q", got)
	}
	must("shard", "pause", "orders")
	before := s.View()
	to.KillHost()
	s.Pass(3 * s.Timing.Timeout)
	unmoved(t, s, before, "it is paused")
	must("shard", "resume", "orders")
	s.Moved(to)
	to.Start()
	s.Settled()
	must("shard", "topology", "orders")
	_ = p
}

// weakHeartbeat: reports continue after any number that failed.
func weakHeartbeat(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	before := s.View()
	for range 15 {
		for _, n := range s.Nodes {
			n.Link.Reset()
		}
		s.Pass(s.Timing.Interval / 3)
	}
	s.Settled()
	unmoved(t, s, before, "links were reset")
	first := s.View()
	realserver.Eventually(t, time.Minute, "every record is renewed", func() error {
		for _, r := range s.View().Nodes {
			if old, _ := first.Node(r.ID); r.Updated <= old.Updated {
				return fmt.Errorf("%s is as old as before", r.Address)
			}
		}
		return nil
	})
}

// weakSilence: what happened can be read afterwards, and agents say how they are.
func weakSilence(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.KillNode()
	q := s.Moved(p)
	s.Settled()
	last := s.View().Row.Last
	if last == nil || last.From != p.ID() || last.To != q.ID() || last.Reason == "" || len(last.Steps) == 0 || last.ByNode == "" {
		t.Errorf("the last plan is %+v", last)
	}
	out, err := s.Understudy("shard", "history", "orders")
	if err != nil || !strings.Contains(out, q.Addr) {
		t.Errorf("the history is %q, %v", out, err)
	}
	for _, path := range []string{"/status", "/metrics", "/cluster", "/primary", "/health"} {
		resp, err := http.Get("http://" + q.Checks + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
		}
		if path == "/status" && !json.Valid(body) {
			t.Errorf("/status is no JSON: %.200s", body)
		}
	}
}

// weakAddress: nodes at addresses that are no IPv4 literals.
func weakAddress(t *testing.T, s *fault.Shard, _ *fault.ShardLoad) {
	p := s.Primary()
	p.KillHost()
	q := s.Moved(p)
	p.Start()
	s.Settled()
	if out, err := s.Understudy("shard", "primary", "orders"); err != nil || strings.TrimSpace(out) != q.Addr {
		t.Errorf("shard primary: %q, %v; it is %s", out, err, q.Addr)
	}
}
