//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// smallDisk gives the first peer a disk of its own, as small as it may be; the others
// keep what they have in ordinary directories. options are those of the mount.
func smallDisk(t *testing.T, programs fault.Programs, options string) (*fault.Peers, *fault.Peer) {
	t.Helper()
	realserver.NeedRoot(t, "a mount")
	dir := t.TempDir()
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) {
		cfg.Keep, cfg.TTL = true, time.Minute
		cfg.Wrap = func(n int) []string {
			if n != 1 {
				return nil
			}
			// A mount that nobody else sees, and that ends with the process.
			return []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"`, "--", options, dir}
		}
	})
	p := c.Named("p1")
	p.Options = []string{"--data", dir}
	return c, p
}

// fullDisk fills a peer's disk while it runs, and makes room again.
func fullDisk(t *testing.T, programs fault.Programs) {
	c, p := smallDisk(t, programs, "size=2m")
	c.Start()
	filler := filepath.Join(fmt.Sprintf("/proc/%d/root", p.PID()), p.Options[1], "filler")
	fill := func() {
		t.Helper()
		err := os.WriteFile(filler, make([]byte, 4<<20), 0o600)
		if err == nil {
			t.Fatal("the disk is not full")
		}
	}
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Size: 64 << 10} })
	fill()
	from, asking := c.Now(), fault.NewCacheClient(t, c.All()...)
	for i := range 30 {
		a := p.Ask(t.Context(), asking, fmt.Sprint("k", i), client.Options{}, patience)
		if a.Err != nil {
			t.Errorf("with a full disk at one peer: %v", a.Err)
		}
	}
	p.Says("storing", patience)
	realserver.Eventually(t, patience, "it counts what it could not save", func() error {
		if p.Metric("save_failures_total") == 0 {
			return errors.New("nothing")
		}
		return nil
	})
	for i := range 30 {
		if a := p.Get(fmt.Sprint("k", i), "max-stale=1h", patience); a.Err != nil {
			t.Errorf("it has k%d in memory, and gave %v", i, a.Err)
		}
	}
	// What it has promised to use is used up after a while: it neither stands nor votes.
	c.Pass(from + 3*c.Announce - c.Now())
	third := c.Named("p3")
	third.Pause()
	n := len(c.Origin.Calls())
	own := p.Get("new", "", 1500*time.Millisecond)
	other := c.Named("p2").Get("new", "", 1500*time.Millisecond)
	t.Logf("of two voters one cannot store: it says %v, the other %v", own.Err, other.Err)
	if own.Err == nil || other.Err == nil {
		t.Errorf("there are values of terms %d and %d", own.Term, other.Term)
	}
	if more := c.Origin.Calls()[n:]; len(more) > 0 {
		t.Errorf("%v, though one of two voters cannot store its vote", more)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	got(t, seek(t, c.Named("p2"), "new"))
	third.GoOn()
	p.Says("the storage works again", patience)
	got(t, seek(t, p, "newer"))
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
}

// diskRemoved takes a peer's directory away while it runs.
func diskRemoved(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.Keep = true })
	c.Start()
	p := c.Named("p1")
	got(t, seek(t, p, "a"))
	if err := os.RemoveAll(p.Data()); err != nil {
		t.Fatal(err)
	}
	l := asking(t, c, 6)
	wellAgain(t, c, "a", "b")
	c.Pass(3 * c.Announce)
	if a := p.Get("a", "", patience); a.Err != nil {
		t.Errorf("it has a copy in memory, and gave %v", a.Err)
	}
	wellAgain(t, c, "c")
	p.Kill()
	p.Start()
	c.Ready()
	wellAgain(t, c, "a", "d")
	judged(t, l)
}

// diskReadOnly starts a peer that cannot write: it says so, and ends.
func diskReadOnly(t *testing.T, programs fault.Programs) {
	c, p := smallDisk(t, programs, "size=2m,ro")
	for _, one := range c.All() {
		one.Start()
	}
	realserver.Eventually(t, patience, "it has ended", func() error {
		if !p.Exited() {
			return errors.New("it runs")
		}
		return nil
	})
	p.Says("read-only", patience)
	for _, one := range c.But(p) {
		got(t, seek(t, one, "a"))
	}
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
}
