//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/realserver"
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
				if p.URL == wrong.URL && p.Skew != nil && (*p.Skew-by).Abs() < 10*time.Second {
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

// membersChange adds and removes members while others are killed.
func membersChange(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.Keep = true })
	c.Start()
	c.Origin.Takes(50 * time.Millisecond)
	l := asking(t, c, 6)
	p1, p2 := c.Named("p1"), c.Named("p2")

	// One joins while a member dies: the two others are the majority that agrees.
	p4 := c.Add(4)
	p4.Start("--join")
	p1.Kill()
	agreed(t, p2, func() error { return p2.AddMember(p4) })
	members(t, 2, c.But(p1)...)
	got(t, seek(t, p4, "k0"))

	// The dead one goes, while the one that was asked dies too.
	changing := make(chan error, 1)
	go func() { changing <- p2.RemoveMember(p1) }()
	p2.Kill()
	if err := <-changing; err == nil {
		t.Log("it was removed before the one that was asked had died")
	}
	p2.Start()
	agreed(t, p4, func() error { return p4.RemoveMember(p1) })
	members(t, 3, p2, c.Named("p3"), p4)

	// All die at once, and remember.
	for _, p := range []*fault.Peer{p2, c.Named("p3"), p4} {
		p.Kill()
	}
	p2.Start()
	c.Named("p3").Start()
	p4.Start("--join")
	members(t, 3, p2, c.Named("p3"), p4)
	for _, p := range []*fault.Peer{p2, c.Named("p3"), p4} {
		got(t, seek(t, p, "after"))
	}
	// Who comes back from before gets no votes: it fetches nothing.
	n := len(c.Origin.Calls())
	p1.Start()
	for range 3 {
		if a := p1.Get("alone", "", time.Second); a.Err == nil {
			t.Errorf("%s, which was removed, gave %q", p1.Name, a.Value)
		}
	}
	for _, call := range c.Origin.Calls()[n:] {
		if call.Peer == p1.Name {
			t.Errorf("%v, though it was removed", call)
		}
	}
	p1.Kill()
	judged(t, l)
}

// agreed repeats a change until it is in force.
func agreed(t *testing.T, p *fault.Peer, change func() error) {
	t.Helper()
	realserver.Eventually(t, 2*patience, p.Name+" changes the members", func() error {
		err := change()
		if fault.Status(err) == 409 {
			return nil // an earlier attempt has done it; see members
		}
		return err
	})
}

// members waits until all have a configuration.
func members(t *testing.T, number int64, all ...*fault.Peer) {
	t.Helper()
	for _, p := range all {
		realserver.Eventually(t, 2*patience, fmt.Sprintf("%s has configuration %d", p.Name, number), func() error {
			v, err := p.Cluster()
			if err == nil && (v.Config < number || !v.Member || v.Partitioned) {
				err = fmt.Errorf("it says %+v", v)
			}
			return err
		})
	}
}
