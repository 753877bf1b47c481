//go:build linux

package fault

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// Config describes a [Cluster].
type Config struct {
	Programs Programs
	// Database that coordinates. Required.
	Database Database
	// Role that all nodes campaign for. Default "r".
	Role string
	// Timing of all sessions. Default 400 ms and 2 s: an interval is what a busy
	// machine has to kill a program in.
	Timing lease.Timing
	// StopGrace of the guarded program. Default 300 ms.
	StopGrace time.Duration
	// Worker's flags besides those that every one gets.
	Worker []string
	// Run is the rest of the command line of a node: `understudy role run` by default.
	Run func(ledger, name, url string, options []string) []string
	// Quiet: what nodes write to their standard output is not kept.
	Quiet bool
	// Seed of the links' randomness.
	Seed uint64
}

// Cluster is a number of nodes on one store.
type Cluster struct {
	Config

	tb    testing.TB
	dir   string
	links map[string]*Proxy
	nodes []*Node
	store store.Store // to look at it; nil until someone does
}

// patience is what a busy machine is given beyond what a rule gives it.
const patience = time.Minute

// NewCluster makes a cluster without nodes. When the test ends, whatever the
// nodes started is ended too, and told if the test failed.
func NewCluster(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	if cfg.Role == "" {
		cfg.Role = "r"
	}
	if cfg.Timing == (lease.Timing{}) {
		cfg.Timing = lease.Timing{Interval: 400 * time.Millisecond, Timeout: 2 * time.Second}
	}
	if cfg.StopGrace == 0 {
		cfg.StopGrace = 300 * time.Millisecond
	}
	c := &Cluster{Config: cfg, tb: tb, dir: tb.TempDir(), links: map[string]*Proxy{}}
	tb.Cleanup(c.kill)
	return c
}

// Bound is the longest that a takeover may take: the worst case and the patience
// with a busy machine.
func (c *Cluster) Bound() time.Duration { return c.Timing.WorstTakeover() + patience }

// mark is in the environment of everything that the cluster starts.
func (c *Cluster) mark() string { return "UNDERSTUDY_FAULT=" + c.dir }

// Start starts a node that campaigns again after a loss, or one with the given
// options of `role run`. A version before needs --restart for that.
func (c *Cluster) Start(name string, options ...string) *Node {
	c.tb.Helper()
	n := &Node{Name: name, cluster: c, done: make(chan struct{}),
		log: filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", name, len(c.nodes)))}
	url := c.Database.URL
	if c.Database.Addr != "" {
		if c.links[name] == nil {
			c.links[name] = NewProxy(c.tb, c.Database.Addr, c.Seed+uint64(len(c.links)))
		}
		n.Link = c.links[name]
		url = c.Database.through(c.tb, n.Link.Addr)
	}
	run := c.roleRun
	if c.Run != nil {
		run = func(name, url string, options []string) []string { return c.Run(c.ledger(), name, url, options) }
	}
	n.run(c.tb, run(name, url, options))
	c.nodes = append(c.nodes, n)
	return n
}

// Once is a node that ends when it loses the role.
func Once() []string { return []string{"--exit-on-loss"} }

// Three starts nodes a, b and c, and waits until one of them is primary and the
// others wait for the role. It returns the primary first.
func (c *Cluster) Three() (primary *Node, standbys []*Node) {
	c.tb.Helper()
	for _, name := range []string{"a", "b", "c"} {
		c.Start(name)
	}
	return c.Settled()
}

// Settled waits until one node is primary and all others wait for the role.
func (c *Cluster) Settled() (primary *Node, standbys []*Node) {
	c.tb.Helper()
	c.AwaitPrimary(0)
	st := c.open()
	realserver.Eventually(c.tb, c.Bound()+c.Timing.Timeout, "one primary, the others waiting", func() error {
		return c.settled(st, &primary, &standbys)
	})
	return primary, standbys
}

func (c *Cluster) settled(st store.Store, primary **Node, standbys *[]*Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	holder, err := elect.Resolve(ctx, st, c.Role)
	if err != nil {
		return err
	}
	waiters, err := st.Waiters(ctx, elect.Space)
	if err != nil {
		return err
	}
	waiting := map[string]bool{}
	for _, w := range waiters {
		waiting[w.Session.Instance.Name] = true
	}
	*primary, *standbys = nil, nil
	for _, n := range c.Living() {
		switch {
		case n.Name == holder.Name:
			*primary = n
		case waiting[n.Name]:
			*standbys = append(*standbys, n)
		default:
			return fmt.Errorf("%s is neither primary nor waiting", n.Name)
		}
	}
	if *primary == nil {
		return fmt.Errorf("%s holds the role, but does not run", holder.Name)
	}
	if e := c.Last(); e.Term != holder.Term {
		return fmt.Errorf("the last effect is under term %d, the role's is %d", e.Term, holder.Term)
	}
	return nil
}

// Understudy runs the command line once, beside the links.
func (c *Cluster) Understudy(args ...string) {
	c.tb.Helper()
	if err := c.tryUnderstudy(args...); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) tryUnderstudy(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Programs.Understudy, append(args, "--store", c.Database.URL)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("understudy %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Living returns the nodes whose guard has not ended.
func (c *Cluster) Living() []*Node {
	var living []*Node
	for _, n := range c.nodes {
		if !n.Exited() {
			living = append(living, n)
		}
	}
	return living
}

// Node is the living node of a holder's label; nil when there is none.
func (c *Cluster) Node(holder string) *Node {
	for _, n := range c.Living() {
		if n.Is(holder) {
			return n
		}
	}
	return nil
}

// Effects returns all effects so far.
func (c *Cluster) Effects() []ledger.Effect {
	c.tb.Helper()
	effects, err := ledger.Read(c.ledger(), 0)
	if err != nil {
		c.tb.Fatal(err)
	}
	return effects
}

// Last returns the last effect so far, a zero one when there is none.
func (c *Cluster) Last() ledger.Effect {
	c.tb.Helper()
	e, err := ledger.Last(c.ledger())
	if err != nil {
		c.tb.Fatal(err)
	}
	return e
}

// AwaitPrimary waits for an effect from now on under a term greater than the
// given one.
func (c *Cluster) AwaitPrimary(after int64) ledger.Effect {
	c.tb.Helper()
	return c.AwaitPrimaryWithin(after, c.Bound())
}

// AwaitPrimaryWithin is AwaitPrimary with a bound of its own.
func (c *Cluster) AwaitPrimaryWithin(after int64, bound time.Duration) (e ledger.Effect) {
	c.tb.Helper()
	from := c.now()
	realserver.Eventually(c.tb, bound, fmt.Sprintf("an effect after term %d", after), func() error {
		e = c.Last()
		if e.Term <= after || e.At < from {
			return fmt.Errorf("the last effect was %v ago, of %s under term %d", c.now()-e.At, e.Holder, e.Term)
		}
		return nil
	})
	return e
}

// Pass lets time pass.
func (c *Cluster) Pass(d time.Duration) { <-time.After(d) }

func (c *Cluster) now() time.Duration { return lease.BootClock().Now() }

// Now is a reading of the clock of the ledger's stamps.
func (c *Cluster) Now() time.Duration { return c.now() }

// NoneAfter fails the test if there are effects stamped after the given reading.
func (c *Cluster) NoneAfter(from time.Duration, why string) {
	c.tb.Helper()
	for _, e := range c.Effects() {
		if e.At > from {
			c.tb.Errorf("%s: %s had an effect under term %d, %v after", why, e.Holder, e.Term, e.At-from)
			return
		}
	}
}

// Finish stops all nodes, sees to it that nothing they started is alive, and
// judges what they did: no time without effects beyond maxGap, 0 for any.
func (c *Cluster) Finish(maxGap time.Duration) Finding {
	c.tb.Helper()
	until := c.now()
	for _, n := range c.Living() {
		n.Signal(syscall.SIGTERM)
	}
	for _, n := range c.nodes {
		if !n.Stop(c.Bound()) {
			c.tb.Errorf("%s did not stop within %v", n.Name, c.Bound())
		}
	}
	c.NothingLeft()
	v := c.Judge(maxGap, until)
	for _, violation := range v.Violations {
		c.tb.Errorf("VIOLATION %s", violation)
	}
	f := v.Findings[c.Role]
	c.tb.Logf("%d effects of %d holders under %d of %d terms; longest time without: %v, after %v; between two terms: %v",
		f.Effects, f.Holders, f.Terms, f.Acquired, f.Gap.Round(time.Millisecond), f.GapAt.Round(time.Millisecond), f.Handover.Round(time.Millisecond))
	return f
}

// Judge judges what the nodes did so far.
func (c *Cluster) Judge(maxGap, until time.Duration) Verdict {
	c.tb.Helper()
	return Judge(Evidence{Effects: c.Effects(), Part: elect.Space, Events: c.history(), MaxGap: maxGap, Until: until})
}

// NothingLeft fails the test if what the nodes started has not ended soon, they
// themselves included.
func (c *Cluster) NothingLeft() {
	c.tb.Helper()
	left := marked(c.mark())
	for end := c.now() + patience; len(left) > 0 && c.now() < end; left = marked(c.mark()) {
		c.Pass(10 * time.Millisecond)
	}
	for _, p := range left {
		c.tb.Errorf("this should have ended: %v", p)
	}
}

// Released reports whether the history knows the end of a term, and not only the
// beginning of the next.
func (c *Cluster) Released(term int64) bool {
	c.tb.Helper()
	return slices.ContainsFunc(c.history(), func(e history.Event) bool { return e.Term == term && e.From != "" && e.To == "" })
}

// history returns all events of the role, oldest first.
func (c *Cluster) history() (events []history.Event) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := history.Query{Part: elect.Space, Subject: c.Role}
	for st := c.open(); ; {
		page, err := st.Read(ctx, q)
		if err != nil {
			c.tb.Fatalf("reading the history: %v", err)
		}
		events = append(events, page...)
		if len(page) < history.MaxRead {
			return events
		}
		q.After = page[len(page)-1].ID
	}
}

// open returns the store, beside the links.
func (c *Cluster) open() store.Store {
	c.tb.Helper()
	if c.store != nil {
		return c.store
	}
	realserver.Eventually(c.tb, c.Bound(), "opening the store", func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.store, err = open.Open(ctx, c.Database.URL, open.Options{})
		return err
	})
	c.tb.Cleanup(c.Close)
	return c.store
}

// Close closes the store, if it was opened to be looked at; it is opened again when it is needed.
func (c *Cluster) Close() {
	if c.store != nil {
		_ = c.store.Close()
		c.store = nil
	}
}

// kill ends whatever is left, and tells what the nodes said if the test failed.
func (c *Cluster) kill() {
	for _, n := range c.nodes {
		n.Signal(syscall.SIGKILL)
		<-n.done
	}
	left := marked(c.mark())
	for end := c.now() + patience; len(left) > 0 && c.now() < end; left = marked(c.mark()) {
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		c.Pass(10 * time.Millisecond)
	}
	if len(left) > 0 {
		c.tb.Errorf("cannot be killed: %v", left)
	}
	if !c.tb.Failed() {
		return
	}
	for _, n := range c.nodes {
		c.tb.Logf("%s said:\n%s", filepath.Base(n.log), n.output())
	}
}
