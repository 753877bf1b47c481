//go:build linux

package fault_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// asking has every peer asked all the time until it is stopped.
func asking(t *testing.T, c *fault.Peers, keys int) *fault.CacheLoad {
	t.Helper()
	l := &fault.CacheLoad{Peers: c, Keys: keys, Seed: 1}
	l.Start()
	return l
}

// judged stops the load and wants no rule broken.
func judged(t *testing.T, l *fault.CacheLoad) fault.CacheVerdict {
	t.Helper()
	l.Stop()
	v := l.Judge()
	t.Logf("%d calls of the source, %d answers, %d refusals, the slowest answer took %v, %d overlaps apart", v.Calls, v.Answered, v.Refused, v.Slowest, v.Apart)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
	return v
}

// wellAgain waits until every peer gives a new value of a key.
func wellAgain(t *testing.T, c *fault.Peers, keys ...string) {
	t.Helper()
	for _, p := range c.All() {
		asking := fault.NewCacheClient(t, p)
		for _, key := range keys {
			realserver.Eventually(t, 3*patience, p.Name+" gives "+key, func() error {
				return p.Ask(t.Context(), asking, key, client.Options{After: time.Now()}, 5*time.Second).Err
			})
		}
	}
}

// A source that fails is told to everyone, and not asked again before its back-off
// has passed.
func sourceFails(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	c.Origin.Answer(func(call fault.Call) fault.Plan {
		switch call.Key {
		case "none":
			return fault.Plan{Status: http.StatusNotFound}
		case "later":
			return fault.Plan{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"30"}}}
		}
		return fault.Plan{Status: http.StatusInternalServerError}
	})
	from := c.Now()
	for _, want := range []struct {
		key    string
		status int
	}{{"k0", 502}, {"none", 404}, {"later", 502}} {
		for _, p := range c.All() {
			if a := p.Get(want.key, "", patience); fault.Status(a.Err) != want.status {
				t.Errorf("%s, asked for %s: %v; want %d", p.Name, want.key, a.Err, want.status)
			}
		}
	}
	l := asking(t, c, 1)
	c.Pass(3 * time.Second)
	calls := map[string]int{}
	for _, call := range c.Origin.Calls() {
		calls[call.Key]++
	}
	// The back-off is 1 s, 2 s, 4 s, …
	if passed := c.Now() - from; calls["k0"] > 2+int(passed/time.Second) || calls["later"] != 1 {
		t.Errorf("in %v the source was called %v", passed, calls)
	}
	c.Origin.Takes(0)
	wellAgain(t, c, "k0", "none")
	judged(t, l)
}

// A source that hangs fails at its deadline.
func sourceHangs(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.Fetch, cfg.TTL = time.Second, time.Second })
	c.Start()
	got(t, seek(t, c.Named("p1"), "old"))
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Hold: true} })
	a := c.Named("p1").Get("a", "", patience)
	if fault.Status(a.Err) != 502 || a.Got-a.Asked < 900*time.Millisecond {
		t.Errorf("after %v: %v; want 502 after a second", a.Got-a.Asked, a.Err)
	}
	l := asking(t, c, 2)
	realserver.Eventually(t, patience, "an old copy is given meanwhile", func() error {
		return c.Named("p1").Get("old", "", patience).Err
	})
	c.Pass(2 * time.Second)
	c.Origin.Takes(0)
	wellAgain(t, c, "a", "k0", "k1", "old")
	judged(t, l)
}

// A value that has expired when it comes is given to whoever waited for it, and is
// not fetched faster than the source can.
func sourceSlow(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.TTL = time.Second })
	c.Start()
	c.Origin.Takes(1500 * time.Millisecond)
	l := asking(t, c, 2)
	for range 2 {
		for _, p := range c.All() {
			if a := p.Ask(t.Context(), fault.NewCacheClient(t, p), "k0", client.Options{After: time.Now()}, patience); a.Err != nil {
				t.Errorf("%s: %v", p.Name, a.Err)
			}
		}
	}
	judged(t, l)
}

func sourceLarge(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, lasting)
	c.Start()
	c.Origin.Answer(func(call fault.Call) fault.Plan {
		if call.Key == "large" {
			return fault.Plan{Size: 10 << 20}
		}
		return fault.Plan{Size: 17 << 20}
	})
	for _, p := range c.All() {
		if a := p.Get("large", "", 2*patience); a.Err != nil || len(a.Value) != 10<<20 {
			t.Errorf("%s gave %d bytes: %v", p.Name, len(a.Value), a.Err)
		}
		if a := p.Get("larger", "", 2*patience); fault.Status(a.Err) != 502 {
			t.Errorf("%s gave %d bytes, more than may be: %v", p.Name, len(a.Value), a.Err)
		}
	}
	fetched := 0
	for _, call := range c.Origin.Calls() {
		if call.Key == "large" {
			fetched++
		}
	}
	if fetched != 1 {
		t.Errorf("one value was fetched %d times", fetched)
	}
	c.Origin.Takes(0)
	wellAgain(t, c, "b")
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls()})
}

func sourceFlaps(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.TTL = time.Second })
	c.Start()
	c.Origin.Answer(func(call fault.Call) fault.Plan {
		p := fault.Plan{Delay: time.Duration(call.N%7) * 30 * time.Millisecond}
		if call.N%2 == 0 {
			p.Status = []int{500, 502, 404, 429}[call.N/2%4]
		}
		return p
	})
	l := asking(t, c, 6)
	c.Pass(6 * time.Second)
	c.Origin.Takes(0)
	wellAgain(t, c, "k0", "k1", "k2", "k3", "k4", "k5")
	if v := judged(t, l); v.Answered < 100 {
		t.Errorf("only %d answers", v.Answered)
	}
}

func sourcePanics(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	for _, p := range c.All() {
		p.Worker, p.Options = true, []string{"-panics", "x"}
	}
	c.Start()
	for _, p := range c.All() {
		asking := fault.NewCacheClient(t, p)
		realserver.Eventually(t, patience, "the failure is told", func() error {
			a := p.Ask(t.Context(), asking, "x", client.Options{}, patience)
			if a.Err == nil {
				t.Fatal("there is a value")
			}
			if !errors.Is(a.Err, client.ErrFailed) {
				return a.Err
			}
			return nil
		})
		got(t, seek(t, p, "a"))
		if p.Exited() {
			t.Errorf("%s has ended", p.Name)
		}
	}
	c.Named("p1").Says("the origin panicked", patience)
}
