//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// composition is one run of [ShardChaos.Compose].
type composition struct {
	*ShardChaos
	storeAt int
	away    map[string]bool          // nodes whose agent could not close them at some time
	hung    map[string]time.Duration // when nodes were stopped last
	resumed map[string]time.Duration // … and continued
	saved   map[*ShardNode]string    // folders as they were in the beginning
	gentle  bool                     // nothing lasts for a timeout
	back    bool                     // a host is to go back to a snapshot: one that all go back to is forgotten
}

// moment is when something of a composition is done.
type moment struct {
	at time.Duration
	do func()
}

// overlap is a fault that others overlap. It starts at once, and returns how it ends; nil where it has ended.
type overlap struct {
	name string
	// hard: an agent or its node is gone for long.
	hard bool
	// back: a host goes back to what it had in the beginning.
	back bool
	run  func(c *composition, n *ShardNode) (heal func())
}

func overlaps() []overlap {
	return []overlap{
		{name: "cut off from the store", run: func(c *composition, n *ShardNode) func() { return c.cut(n.at, c.storeAt, "") }},
		{name: "cut off from a host", run: func(c *composition, n *ShardNode) func() { return c.cut(n.at, c.peer(n).at, "") }},
		{name: "cut off from a node", run: func(c *composition, n *ShardNode) func() { o := c.peer(n); return c.cut(n.at, o.at, o.Addr) }},
		{name: "cut off from an agent", run: func(c *composition, n *ShardNode) func() { o := c.peer(n); return c.cut(n.at, o.at, o.Checks) }},
		{name: "node killed", hard: true, run: func(_ *composition, n *ShardNode) func() { n.KillNode(); return nil }},
		{name: "agent killed", hard: true, run: func(c *composition, n *ShardNode) func() {
			c.away[n.Addr] = true
			n.KillAgent()
			return n.Start
		}},
		{name: "host killed", hard: true, run: func(_ *composition, n *ShardNode) func() { n.KillHost(); return n.Start }},
		{name: "agent stops", run: func(c *composition, n *ShardNode) func() {
			c.away[n.Addr] = true
			n.SignalAgent(syscall.SIGSTOP)
			return func() { n.SignalAgent(syscall.SIGCONT) }
		}},
		{name: "node hangs", run: func(c *composition, n *ShardNode) func() {
			n.SignalNode(syscall.SIGSTOP)
			c.hung[n.Addr] = lease.BootClock().Now()
			return func() { c.goOn(n) }
		}},
		{name: "host goes back to a snapshot", hard: true, back: true, run: (*composition).rollBack},
	}
}

// Compose has two to four faults overlap, as the seed draws them, in a shard whose store stands in its network at
// storeAt, and heals them all. At times the store comes back empty among them. It returns what happened, and
// what is excused: a write to a node whose agent was away, while its armed fence closed, or when it went on.
func (c *ShardChaos) Compose(storeAt int) (did []string, excused func(w ShardWrite, late time.Duration) bool) {
	c.Shard.tb.Helper()
	c.random = rand.New(rand.NewPCG(c.Seed, 5))
	k := &composition{ShardChaos: c, storeAt: storeAt, away: map[string]bool{},
		hung: map[string]time.Duration{}, resumed: map[string]time.Duration{}, saved: map[*ShardNode]string{}}
	for _, n := range c.Shard.Nodes {
		k.saved[n] = n.Save()
	}
	// Who is away for long may be the only one that knows what was decided last, and nobody waits for that.
	k.gentle = c.random.IntN(6) == 0
	all, timeout := overlaps(), c.Shard.Timing.Timeout
	var plan []moment
	for range 2 + c.random.IntN(3) {
		o, n := all[c.random.IntN(len(all))], k.anybody()
		if k.gentle && o.hard || k.back && o.back {
			continue
		}
		k.back = k.back || o.back
		starts, lasts := k.upTo(timeout), timeout/4+k.upTo(2*timeout)
		if o.back {
			starts += timeout // others know of what came since
		}
		if k.gentle {
			lasts = k.upTo(timeout / 3)
		}
		did = append(did, fmt.Sprintf("%v: %s %s, for %v", starts.Round(time.Millisecond), n.Name, o.name, lasts.Round(time.Millisecond)))
		heal := func() {}
		plan = append(plan, moment{starts, func() {
			if h := o.run(k, n); h != nil {
				heal = h
			}
		}}, moment{starts + lasts, func() { heal() }})
	}
	if k.gentle {
		at := k.upTo(timeout)
		did = append(did, fmt.Sprintf("%v: the store is emptied", at.Round(time.Millisecond)))
		plan = append(plan, moment{at, k.emptyStore})
	}
	slices.SortStableFunc(plan, func(a, b moment) int { return int(a.at - b.at) })
	began := time.Now()
	for _, m := range plan {
		c.Shard.Pass(m.at - time.Since(began))
		m.do()
	}
	for _, n := range c.Shard.Nodes {
		n.Start()
	}
	k.assist()
	return did, k.excused
}

// slip is how long an armed fence takes to close after the last acknowledgement, on a busy machine.
const slip = 4 * time.Second

func (k *composition) excused(w ShardWrite, late time.Duration) bool {
	at, hung := k.hung[w.Node]
	return k.away[w.Node] && (late < slip || hung && w.Sent > at && w.Sent < k.resumed[w.Node])
}

func (k *composition) upTo(d time.Duration) time.Duration {
	return time.Duration(k.random.Int64N(int64(d)))
}

// anybody is some node, rather the primary.
func (k *composition) anybody() *ShardNode {
	if k.random.IntN(2) == 0 {
		return k.Shard.Primary()
	}
	return k.Shard.Nodes[k.random.IntN(len(k.Shard.Nodes))]
}

func (k *composition) peer(n *ShardNode) *ShardNode {
	others := slices.DeleteFunc(slices.Clone(k.Shard.Nodes), func(o *ShardNode) bool { return o == n })
	return others[k.random.IntN(len(others))]
}

// cut loses what goes from one host to another, at times one way only: everything, or what has to do with the service
// at an address.
func (k *composition) cut(from, to int, service string) (heal func()) {
	there, back := "", ""
	if _, port, ok := strings.Cut(service, ":"); ok {
		there, back = "dport "+port, "sport "+port
	}
	var heals []func()
	lose := func(from, to int, port string) { heals = append(heals, k.Shard.Network.Lose(from, to, port)) }
	ways := k.random.IntN(4) // both, in half of all cases
	if ways != 0 {
		lose(from, to, there)
	}
	if ways != 1 {
		lose(to, from, back)
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

func (k *composition) goOn(n *ShardNode) {
	n.SignalNode(syscall.SIGCONT)
	k.resumed[n.Addr] = lease.BootClock().Now()
	k.Load.Hung(n, k.hung[n.Addr])
}

// rollBack takes a host back to what it had in the beginning. The primary's goes back only if others know that it has
// more: what was written only a moment after a backup is not missed.
func (k *composition) rollBack(n *ShardNode) (heal func()) {
	k.Shard.tb.Helper()
	v := k.Shard.View()
	own, _ := v.Node(v.Row.Primary)
	if err := n.KnownNewer(k.saved[n]); v.Row.Plan != nil || own.Address == n.Addr && err != nil {
		k.Shard.tb.Logf("%s does not go back: %v, plan %v", n.Name, err, v.Row.Plan)
		return nil
	}
	n.KillHost()
	n.Restore(k.saved[n])
	n.Start()
	return nil
}

func (k *composition) emptyStore() {
	if _, err := AskRedis(k.Shard.Database.Addr, "FLUSHALL"); err != nil {
		k.Shard.tb.Error(err)
	}
}

// assist does what agents ask an operator for until the shard is well: to give up what a node has alone that diverged
// from the shard when it was made again, and to choose the node with the most data where none can tell.
func (k *composition) assist() {
	tb := k.Shard.tb
	tb.Helper()
	realserver.Eventually(tb, shardPatience, "the shard is well", func() error {
		v, err := k.Shard.Look()
		if err != nil {
			return err
		}
		for _, r := range v.Nodes {
			n := k.Shard.at(r.Address)
			switch {
			case n == nil || !r.Live():
			case strings.Contains(r.Trouble, "--discard-data") && len(n.Options) == 0:
				n.Options = []string{"--discard-data"}
				n.KillAgent()
				n.Start()
			case AsksToCompare(r) && v.Row.Plan == nil && v.Row.Request == nil:
				if err := k.Shard.ForceBest(); err != nil {
					return err
				}
			}
		}
		_, err = k.Shard.settled(v)
		return err
	})
	for _, n := range k.Shard.Nodes {
		if len(n.Options) > 0 {
			n.Options = nil
			n.KillAgent()
			n.Start()
		}
	}
}
