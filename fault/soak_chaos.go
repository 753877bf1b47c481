//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// SoakChaos makes random troubles for a [Soak] while it is used. Server a is the witness: it loses its store, its links, its node and its
// receivers like the others, and stands still for a second, but its process lives from the beginning to the end.
type SoakChaos struct {
	Users *SoakUsers
	Seed  uint64
	For   time.Duration

	disturber
	count map[string]int
	uses  []Uses // of the witness
}

// soakTrouble is like [trouble].
type soakTrouble func(c *SoakChaos) (what string, undo func())

// Run makes one or two troubles at a time, undoes them, and sees to it that all is well again, and that the monitor says so. It returns how often it
// did what, and what the witness took of the machine from when all was well for the first time, each half a minute.
func (c *SoakChaos) Run() (did map[string]int, uses []Uses) {
	s := c.Users.Soak
	s.tb.Helper()
	c.random, c.count = rand.New(rand.NewPCG(c.Seed, 14)), map[string]int{}
	c.well()
	c.Users.Start()
	defer c.Users.Stop()
	troubles := []soakTrouble{soakKill, soakKill, soakPause, soakStop, soakBlink, soakLink, soakLink, soakReset, soakStoreKilled, soakStorePaused, soakNode, soakNode, soakReceivers}
	for begun, round := since(), 0; since() < begun+c.For && !s.tb.Failed(); round++ {
		var undo []func()
		for _, i := range c.random.Perm(len(troubles))[:1+c.random.IntN(2)] {
			what, back := troubles[i](c)
			if what == "" {
				continue
			}
			c.count[what]++
			s.tb.Logf("%v %s", (since() - begun).Round(time.Millisecond), what)
			if back != nil {
				undo = append(undo, back)
			}
		}
		c.pass(s.Timing.Interval + c.upTo(2*s.Timing.Timeout))
		for _, back := range undo {
			back()
		}
		c.pass(c.upTo(5 * time.Second))
		for _, one := range s.Servers {
			one.Start()
		}
		c.pass(5*time.Second + c.upTo(20*time.Second))
		if round%3 == 2 {
			c.well()
		}
	}
	c.well()
	c.Users.awaitAlarms() // before they stop: a source that beats no more is silent
	return c.count, c.uses
}

// pass waits, and looks at the witness each half a minute.
func (c *SoakChaos) pass(d time.Duration) {
	const sample = 30 * time.Second
	for end := time.Now().Add(d); ; {
		if n := len(c.uses); n == 0 || time.Since(c.uses[n-1].At) >= sample {
			c.uses = append(c.uses, c.Users.Soak.Servers[0].Uses())
			if n := len(c.uses); n%20 == 1 {
				c.Users.Soak.tb.Logf("the witness takes %v", c.uses[n-1])
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		<-time.After(min(left, time.Second))
	}
}

// well waits until every server is ready, and the role and the shard have their primaries.
func (c *SoakChaos) well() {
	s := c.Users.Soak
	s.tb.Helper()
	realserver.Eventually(s.tb, 2*patience, "all is well", func() error {
		for _, one := range s.Servers {
			if one.Exited() {
				return fmt.Errorf("%s has ended", one.Name)
			}
			for _, path := range []string{"/readyz", "/v1/roles/r", "/v1/shards/s/primary"} {
				if status, text := one.Ask(soakWaits, http.MethodGet, path, ""); status != http.StatusOK {
					return fmt.Errorf("%s answers %s with %d %.300s", one.Name, path, status, text)
				}
			}
		}
		return nil
	})
}

func (c *SoakChaos) any() *SoakServer {
	return c.Users.Soak.Servers[c.random.IntN(len(c.Users.Soak.Servers))]
}

// mortal is a server that runs and is not the witness, nil if none does.
func (c *SoakChaos) mortal() *SoakServer {
	running := slices.DeleteFunc(slices.Clone(c.Users.Soak.Servers[1:]), func(s *SoakServer) bool { return s.Exited() })
	if len(running) == 0 {
		return nil
	}
	return running[c.random.IntN(len(running))]
}

func soakKill(c *SoakChaos) (string, func()) {
	one := c.mortal()
	if one == nil {
		return "", nil
	}
	c.Users.Soak.Origin.Killing(one.Name)
	one.Signal(syscall.SIGKILL)
	return "server killed", nil
}

func soakStop(c *SoakChaos) (string, func()) {
	one := c.mortal()
	if one == nil {
		return "", nil
	}
	one.Signal(syscall.SIGTERM)
	return "server stopped", nil
}

func soakPause(c *SoakChaos) (string, func()) {
	one := c.mortal()
	if one == nil {
		return "", nil
	}
	return "server paused", c.still(one)
}

// still stops a server, and returns what lets it go on.
func (c *SoakChaos) still(one *SoakServer) func() {
	c.Users.Soak.Origin.Pausing(one.Name, true)
	one.Signal(syscall.SIGSTOP)
	return func() {
		one.Signal(syscall.SIGCONT)
		c.Users.Soak.Origin.Pausing(one.Name, false)
	}
}

func soakBlink(c *SoakChaos) (string, func()) {
	back := c.still(c.Users.Soak.Servers[0])
	<-time.After(time.Second)
	back()
	return "witness paused for a second", nil
}

func soakLink(c *SoakChaos) (string, func()) {
	link, way, what := c.any().Link, Way{}, ""
	switch c.random.IntN(4) {
	case 0:
		way, what = Way{Hold: true}, "link to the store held"
	case 1:
		way, what = Way{Swallow: true}, "link to the store lost"
	case 2:
		way, what = Way{Delay: c.upTo(c.Users.Soak.Timing.Timeout)}, "link to the store slow"
	default:
		way, what = Way{Loss: 0.1, Again: c.Users.Soak.Timing.Interval}, "link to the store with loss"
	}
	link.Set(way, way)
	return what, func() { link.Set(Way{}, Way{}) }
}

func soakReset(c *SoakChaos) (string, func()) {
	for _, one := range c.Users.Soak.Servers {
		one.Link.Reset()
	}
	return "links to the store reset", nil
}

func soakStoreKilled(c *SoakChaos) (string, func()) {
	s := c.Users.Soak
	s.Database.Server.Kill()
	return "store killed", func() { s.Database.Server.Start(s.tb) }
}

func soakStorePaused(c *SoakChaos) (string, func()) {
	s := c.Users.Soak
	s.Database.Server.Pause()
	return "store paused", s.Database.Server.Resume
}

func soakNode(c *SoakChaos) (string, func()) {
	if !c.any().KillNode() {
		return "", nil
	}
	return "database node killed", nil
}

func soakReceivers(c *SoakChaos) (string, func()) {
	s := c.Users.Soak
	s.Messages.Refuse(true)
	s.Sink.Feel([]Mood{Away, Stuck, Fickle}[c.random.IntN(3)])
	return "receivers in trouble", func() { s.Messages.Refuse(false); s.Sink.Feel(Kind) }
}
