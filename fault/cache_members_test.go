//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// wrongClocks has a peer whose wall clock is an hour ahead, an hour behind, and
// steps while it runs. That makes values live shorter or longer, and nothing else.
func wrongClocks(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	wrong := c.Named("p1")
	clock := filepath.Join(t.TempDir(), "clock")
	step := func(by time.Duration) {
		t.Helper()
		err := os.WriteFile(clock+".next", []byte(strconv.FormatInt(int64(by), 10)), 0o600)
		if err = errors.Join(err, os.Rename(clock+".next", clock)); err != nil {
			t.Fatal(err)
		}
	}
	step(time.Hour)
	wrong.Worker, wrong.Options = true, []string{"-wall", clock}
	c.Start()
	c.Origin.Takes(100 * time.Millisecond)
	l := asking(t, c, 6)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		step(by)
		realserver.Eventually(t, patience, fmt.Sprintf("the others see that a clock is off by %v", by), func() error {
			v, err := c.Named("p2").Cluster()
			if err != nil {
				return err
			}
			for _, p := range v.Peers {
				if p.URL == wrong.URL && p.SkewMS != nil && (time.Duration(*p.SkewMS)*time.Millisecond-by).Abs() < 10*time.Second {
					return nil
				}
			}
			return fmt.Errorf("it says %+v", v)
		})
		asked := fault.NewCacheClient(t, wrong)
		if a := wrong.Ask(t.Context(), asked, fmt.Sprint("new", by), client.Options{}, patience); a.Err != nil {
			t.Errorf("the peer with the wrong clock: %v", a.Err)
		}
	}
	for i := range 12 {
		step(time.Duration(i%5-2) * 20 * time.Minute)
		c.Pass(300 * time.Millisecond)
	}
	step(0)
	for _, p := range c.But(wrong) {
		got(t, seek(t, p, "after"))
	}
	l.Stop()
	// What is fresh is a matter of clocks, so that only the calls are judged.
	v := judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
	t.Logf("%d calls of the source", v.Calls)
}

// membersChange adds and removes members, list by list and peer by peer, while others
// are killed.
func membersChange(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.Keep = true })
	c.Start()
	c.Origin.Takes(50 * time.Millisecond)
	l := asking(t, c, 6)
	p1, p2, p3 := c.Named("p1"), c.Named("p2"), c.Named("p3")

	// One is added, and one of the others dies in between: with the old list here and
	// the new one there, the three that are left continue.
	p4 := c.Add(4)
	four := []*fault.Peer{p1, p2, p3, p4}
	p4.List = four
	p4.Start()
	leftOut(t, p4)
	for _, p := range []*fault.Peer{p2, p3} {
		restart(p, four)
		got(t, seek(t, p, "between-"+p.Name))
	}
	p1.Kill()
	haveList(t, 4, 3, p2, p3, p4)
	got(t, seek(t, p4, "k0"))

	// The dead one goes.
	c.Pass(4 * time.Second) // longer than a promise: see the page on the cache
	three := []*fault.Peer{p2, p3, p4}
	for _, p := range three {
		restart(p, three)
		got(t, seek(t, p, "without-"+p.Name))
	}
	haveList(t, 3, 3, three...)

	// All die at once.
	for _, p := range three {
		p.Kill()
	}
	for _, p := range three {
		p.Start()
	}
	haveList(t, 3, 3, three...)
	for _, p := range three {
		got(t, seek(t, p, "after"))
	}
	// One that comes back with the old list gets no votes: it fetches nothing.
	n := len(c.Origin.Calls())
	p1.Start()
	for range 3 {
		if a := p1.Get("alone", "", time.Second); a.Err == nil {
			t.Errorf("%s, which was removed, gave %q", p1.Name, a.Value)
		}
	}
	leftOut(t, p1)
	// Nor does one whose list differs by two, and it says what to do.
	p4.Kill()
	p4.List = []*fault.Peer{p1, p2, p4}
	p4.Start()
	realserver.Eventually(t, patience, "p4 says that its list is another", func() error {
		v, err := p4.Cluster()
		if err == nil && !strings.Contains(v.Trouble, "list of members") {
			err = fmt.Errorf("it says %+v", v)
		}
		return err
	})
	for _, call := range c.Origin.Calls()[n:] {
		if call.Peer == p1.Name {
			t.Errorf("%v, though it was removed", call)
		}
	}
	p1.Kill()
	p4.Kill()
	restart(p4, three)
	judged(t, l)
}

// restart stops a peer, and starts it with another list.
func restart(p *fault.Peer, list []*fault.Peer) {
	p.List = list
	p.Kill()
	p.Start()
}

// leftOut waits until a peer says that the others do not have it in their lists.
func leftOut(t *testing.T, p *fault.Peer) {
	t.Helper()
	realserver.Eventually(t, patience, p.Name+" says that it is left out", func() error {
		v, err := p.Cluster()
		if err == nil && (v.Member || !strings.Contains(v.Trouble, "does not have this peer")) {
			err = fmt.Errorf("it says %+v", v)
		}
		return err
	})
}

// haveList waits until all have a list of so many members, of whom so many are connected.
func haveList(t *testing.T, members, connected int, all ...*fault.Peer) {
	t.Helper()
	for _, p := range all {
		realserver.Eventually(t, 2*patience, fmt.Sprintf("%s has %d members", p.Name, members), func() error {
			v, err := p.Cluster()
			if err == nil && (len(v.Peers) != members || v.Connected != connected || !v.Member || v.Partitioned) {
				err = fmt.Errorf("it says %+v", v)
			}
			return err
		})
	}
}
