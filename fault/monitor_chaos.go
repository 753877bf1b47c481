//go:build linux

package fault

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// MonitorChaos is a run of random troubles for a monitor.
type MonitorChaos struct {
	Beater *Beater
	Seed   uint64
	For    time.Duration
	// Mood of the sinks while there is trouble. Default Fickle.
	Mood Mood
	// Overtime is for how long trouble goes on after For, at a slower pace, for the outages that there are then to come to
	// their end. Default 4 min.
	Overtime time.Duration
	// Longest pause of an instance.
	Longest time.Duration
	// Servers is how often the store's own server is struck.
	Servers int

	disturber
	count   map[string]int
	strikes int // at the store's server
}

// Run makes trouble while sources beat and fall silent, until every outage that there is after For has come to its end in it;
// then all is well, and each of them has one more outage from end to end. It returns what it did, and how many
// outages there were in the time of trouble that waited for all that must come of them.
func (c *MonitorChaos) Run(tb testing.TB) (did map[string]int, cycles int, v MonitorVerdict) {
	tb.Helper()
	c.random, c.count = rand.New(rand.NewPCG(c.Seed, 3)), map[string]int{}
	m := c.Beater.Monitors
	m.Start()
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { c.Beater.Run(ctx); close(over) }()
	for _, s := range m.Sinks {
		s.Feel(cmp.Or(c.Mood, Fickle))
	}
	stalled := c.trouble(tb)
	stop()
	<-over
	c.calm(tb)
	e := c.Beater.RollCall(tb, 4*patience)
	e.Stalled = stalled
	_, cycles = c.Beater.Beats()
	return c.count, cycles, JudgeMonitor(e)
}

// overtimePace is the longest pause between two strikes in overtime. A takeover fits into it, that of an alarm in flight, too. Before,
// one strike may follow another faster than sources can be taken over, so that no time can be said by which they must be.
const overtimePace = 30 * time.Second

// trouble makes it, and returns the sources whose outage did not come to its end meanwhile.
func (c *MonitorChaos) trouble(tb testing.TB) (stalled []string) {
	end := time.Now().Add(c.For)
	next, pace := time.Now().Add(time.Second), time.Second
	var before map[string]int // outages that were over at the end
	for !tb.Failed() {
		if now := time.Now(); now.After(end) {
			if pace != overtimePace {
				before, pace = c.Beater.Cycles(), overtimePace
			}
			if stalled = c.Beater.Stalled(before); len(stalled) == 0 || now.After(end.Add(cmp.Or(c.Overtime, 4*patience))) {
				return stalled
			}
		}
		c.tend()
		if now := time.Now(); now.After(next) {
			next = now.Add(c.upTo(pace))
			if what := c.strike(tb); what != "" {
				c.count[what]++
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	return stalled
}

// tend starts instances that have ended, lets continue those that were stopped for long
// enough, and ends troubles.
func (c *MonitorChaos) tend() {
	now := time.Now()
	for _, one := range c.Beater.Monitors.all {
		switch {
		case one.Exited():
			one.Start()
		case !one.paused.IsZero() && now.After(one.paused):
			one.Resume()
		}
	}
	c.endOver()
}

// strike makes one random trouble.
func (c *MonitorChaos) strike(tb testing.TB) string {
	m := c.Beater.Monitors
	one := m.all[c.random.IntN(len(m.all))]
	switch n := c.random.IntN(10); {
	case n < 3:
		one.Signal(syscall.SIGKILL)
		return "killed"
	case n < 5 && one.paused.IsZero() && !one.Exited():
		if one.Pause(c.upTo(c.Longest)) {
			return "paused"
		}
	case n < 6:
		one.Signal(syscall.SIGTERM)
		return "stopped"
	case n < 8 && one.Link != nil:
		return c.spoil(one)
	case n < 9 && m.Database.Server != nil && c.strikes < c.Servers:
		return c.hurt(tb)
	}
	return ""
}

func (c *MonitorChaos) spoil(one *Monitor) string {
	switch c.random.IntN(4) {
	case 0:
		one.Link.Reset()
		return "link reset"
	case 1:
		one.Link.Set(Way{Swallow: true}, Way{})
	case 2:
		one.Link.Set(Way{}, Way{Hold: true})
	default:
		one.Link.Set(Way{Delay: c.upTo(100 * time.Millisecond)}, Way{Loss: 0.05, Again: 100 * time.Millisecond})
	}
	c.last(2*c.Beater.Monitors.Window, func() { one.Link.Set(Way{}, Way{}) })
	return "link spoilt"
}

func (c *MonitorChaos) hurt(tb testing.TB) string {
	server := c.Beater.Monitors.Database.Server
	c.strikes++
	switch c.random.IntN(3) {
	case 0:
		server.Kill()
		server.Start(tb)
		return "server killed"
	case 1:
		server.Stop()
		server.Start(tb)
		return "server restarted"
	}
	server.Pause()
	<-time.After(c.upTo(c.Beater.Monitors.Window))
	server.Resume()
	return "server paused"
}

// calm ends all troubles.
func (c *MonitorChaos) calm(tb testing.TB) {
	tb.Helper()
	m := c.Beater.Monitors
	for _, s := range m.Sinks {
		s.Feel(Kind)
	}
	c.endAll()
	for _, one := range m.all {
		one.Resume()
		realserver.Eventually(tb, 3*patience, one.Name+" is up", func() error {
			if one.Exited() {
				one.Start() // it may have been about to stop until now
			}
			if status, text := one.Ask("GET", "/healthz", ""); status != 200 {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	}
}
