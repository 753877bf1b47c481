//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// processes are the faults of the nodes' own processes, on any store.
var processes = []scenario{
	{name: "guard killed", run: guardKilled},
	{name: "guard paused", run: guardPaused},
	{name: "guard paused, without restart", run: guardPausedOnce},
	{name: "standby paused", run: standbyPaused},
	{name: "outer watcher killed", run: func(t *testing.T, c *fault.Cluster) { watcherKilled(t, c, 0) }},
	{name: "inner watcher killed", run: func(t *testing.T, c *fault.Cluster) { watcherKilled(t, c, 1) }},
	{name: "outer watcher paused", run: func(t *testing.T, c *fault.Cluster) { watcherPaused(t, c, 0) }},
	{name: "inner watcher paused", run: func(t *testing.T, c *fault.Cluster) { watcherPaused(t, c, 1) }},
	{name: "guard killed while a watcher is paused", run: guardKilledWatcherPaused},
	{name: "guard and outer watcher paused", run: func(t *testing.T, c *fault.Cluster) { guardAndWatcherPaused(t, c, 0) }},
	{name: "guard and inner watcher paused", run: func(t *testing.T, c *fault.Cluster) { guardAndWatcherPaused(t, c, 1) }},
	{name: "program killed", run: programKilled},
	{name: "stopped", run: stopped},
	{name: "resigned for a successor", run: resigned},
	{name: "all killed and started again", run: allKilled},
	{name: "twelve started at once", run: twelve},
}

func guardKilled(t *testing.T, c *fault.Cluster) {
	p, _ := c.Three()
	term := c.Last().Term
	p.Signal(syscall.SIGKILL)
	c.AwaitPrimary(term)
	c.Start(p.Name)
	c.Settled()
}

func guardPaused(t *testing.T, c *fault.Cluster) {
	p, _ := c.Three()
	term, from := c.Last().Term, c.Now()
	p.Pause(t)
	c.AwaitPrimary(term)
	c.Pass(from + 3*c.Timing.Timeout - c.Now())
	p.Signal(syscall.SIGCONT)
	p.Says(t, "lost the role", c.Bound())
	c.Settled()
}

func guardPausedOnce(t *testing.T, c *fault.Cluster) {
	p := c.Start("a", fault.Once()...)
	realserver.Eventually(t, c.Bound(), "an effect", func() error {
		if c.Last().Term > 0 {
			return nil
		}
		if p.Exited() { // a busy machine may leave it no time to start
			p = c.Start("a", fault.Once()...)
		}
		return errors.New("there was none")
	})
	term := c.Last().Term
	c.Start("b")
	c.Settled()
	from := c.Now()
	p.Pause(t)
	c.AwaitPrimary(term)
	c.Pass(from + 3*c.Timing.Timeout - c.Now())
	p.Signal(syscall.SIGCONT)
	if code := p.Exit(t, c.Bound()); code != 5 {
		t.Errorf("exited with %d; 5 says that the role was lost", code)
	}
}

// A standby that was paused comes back with an old picture, and the primary that
// it knew is gone.
func standbyPaused(t *testing.T, c *fault.Cluster) {
	p, standbys := c.Three()
	term := c.Last().Term
	standbys[0].Pause(t)
	c.Pass(c.Timing.Timeout / 2)
	p.Signal(syscall.SIGKILL)
	c.Pass(2 * c.Timing.Timeout)
	standbys[0].Signal(syscall.SIGCONT)
	c.AwaitPrimary(term)
	c.Settled()
}

// A lost watcher costs the program its life, and the node its role.
func watcherKilled(t *testing.T, c *fault.Cluster, which int) {
	p, _ := c.Three()
	term := c.Last().Term
	_ = syscall.Kill(watchers(t, p)[which], syscall.SIGKILL)
	c.AwaitPrimary(term)
	if _, standbys := c.Settled(); len(standbys) != 2 {
		t.Errorf("%d standbys; %s should have come back", len(standbys), p.Name)
	}
}

// Either the others see to it that the program ends, or it continues until they
// must: the judge only wants one primary at a time, and someone in the end.
func watcherPaused(t *testing.T, c *fault.Cluster, which int) {
	p, _ := c.Three()
	pid := watchers(t, p)[which]
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	c.Pass(2 * c.Timing.Timeout)
	c.AwaitPrimary(0)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	c.Settled()
}

func guardKilledWatcherPaused(t *testing.T, c *fault.Cluster) {
	p, _ := c.Three()
	term := c.Last().Term
	inner := watchers(t, p)[1]
	_ = syscall.Kill(inner, syscall.SIGSTOP)
	p.Signal(syscall.SIGKILL)
	c.AwaitPrimary(term)
	_ = syscall.Kill(inner, syscall.SIGCONT)
	c.Settled()
}

// The one watcher that is left has to see the deadline by itself.
func guardAndWatcherPaused(t *testing.T, c *fault.Cluster, which int) {
	p, _ := c.Three()
	term := c.Last().Term
	pid := watchers(t, p)[which]
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	p.Pause(t)
	c.AwaitPrimary(term)
	c.Pass(c.Timing.Timeout)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	p.Signal(syscall.SIGCONT)
	c.Settled()
}

func programKilled(t *testing.T, c *fault.Cluster) {
	p, _ := c.Three()
	term := c.Last().Term
	_ = syscall.Kill(p.Program(), syscall.SIGKILL)
	c.AwaitPrimary(term)
	if code := p.Exit(t, c.Bound()); code != 137 {
		t.Errorf("exited with %d; the program's end by SIGKILL is 137", code)
	}
	c.Settled()
}

// A program that obeys has all the time that it is given, and hands over at once.
func stopped(t *testing.T, c *fault.Cluster) {
	c.Timing, c.StopGrace = lease.Timing{Interval: time.Second, Timeout: 12 * time.Second}, 8*time.Second
	c.Worker = []string{"-nested=false"}
	for range 2 {
		p, _ := three(c)
		term := c.Last().Term
		p.Signal(syscall.SIGTERM)
		c.AwaitPrimary(term)
		if code := p.Exit(t, c.Bound()); code != 0 {
			t.Errorf("exited with %d", code)
		}
		if !c.Released(term) {
			t.Errorf("term %d was not released: it lapsed", term)
		}
		c.Start(p.Name)
	}
	c.Settled()
}

func three(c *fault.Cluster) (*fault.Node, []*fault.Node) {
	if len(c.Living()) == 0 {
		return c.Three()
	}
	return c.Settled()
}

func resigned(t *testing.T, c *fault.Cluster) {
	_, standbys := c.Three()
	term, to := c.Last().Term, standbys[1]
	c.Understudy("role", "resign", c.Role, "--to", to.Name)
	if e := c.AwaitPrimary(term); !to.Is(e.Holder) {
		t.Errorf("%s is primary; %s was named", e.Holder, to.Name)
	}
	if p, _ := c.Settled(); p != to {
		t.Errorf("%s is primary in the end; %s was named", p.Name, to.Name)
	}
}

func allKilled(t *testing.T, c *fault.Cluster) {
	c.Three()
	term := c.Last().Term
	for _, n := range c.Living() {
		n.Signal(syscall.SIGKILL)
	}
	for _, name := range []string{"a", "b", "c"} {
		c.Start(name)
	}
	c.AwaitPrimary(term)
	c.Settled()
}

func twelve(t *testing.T, c *fault.Cluster) {
	for i := range 12 {
		c.Start(fmt.Sprintf("n%d", i))
	}
	p, standbys := c.Settled()
	if len(standbys) != 11 {
		t.Errorf("%d standbys", len(standbys))
	}
	term := c.Last().Term
	p.Signal(syscall.SIGKILL)
	c.AwaitPrimary(term)
}

func watchers(t *testing.T, n *fault.Node) []int {
	t.Helper()
	pids := n.Watchers()
	if len(pids) != 2 {
		t.Fatalf("%s has %d watchers", n.Name, len(pids))
	}
	return pids
}
