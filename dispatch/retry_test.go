package dispatch_test

import (
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// logged is a log that a test reads while it is written.
type logged struct{ syncbuffer.Buffer }

// lines returns those that match, without their time.
func (l *logged) lines(pattern string) (out []string) {
	for line := range strings.Lines(l.String()) {
		if regexp.MustCompile(pattern).MatchString(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func (l *logged) on(c *dispatch.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// TestDeadTargetIsReported: one line when it fails first, one a minute with how often it failed since, one when it works.
func TestDeadTargetIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newTarget(), &logged{}
		g.set(func(dispatch.Assignment) dispatch.Answer {
			return dispatch.Answer{Outcome: dispatch.Busy, Code: 503, Detail: "HTTP 503: closed"}
		})
		p.start("a", g, log.on)
		for _, key := range []string{"k1", "k2", "k3"} {
			p.add(key, 1)
		}
		time.Sleep(2 * time.Second)
		if got := log.lines("level=WARN"); len(got) != 1 || !strings.Contains(got[0], `msg="target failing; sending again"`) ||
			!strings.Contains(got[0], "queue=q") || !strings.Contains(got[0], "count=1 key=k") || !strings.Contains(got[0], `code=503 detail="HTTP 503: closed" target=test`) {
			t.Errorf("at first it says %q", got)
		}
		time.Sleep(4*time.Minute + 10*time.Second)
		got := log.lines("level=WARN")
		if len(got) != 5 {
			t.Errorf("%d lines in four minutes: %q", len(got), got)
		}
		for _, line := range got[1:] {
			if strings.Contains(line, "count=1 ") || !strings.Contains(line, "count=") {
				t.Errorf("without counts: %s", line)
			}
		}
		g.set(nil)
		time.Sleep(2 * time.Minute)
		if got := log.lines("takes messages again"); len(got) != 1 || !strings.Contains(got[0], "failures=") || !strings.Contains(got[0], "after=") {
			t.Errorf("at the end it says %q", got)
		}
		if n := len(log.lines("level=WARN")); n != 5 {
			t.Errorf("%d lines in all", n)
		}
		for _, id := range []string{"k1-0001", "k2-0001", "k3-0001"} {
			if r := p.record(id); r.State != dispatch.Committed {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestFlappingTargetIsReported: a target that fails now and then does not fill the log.
func TestFlappingTargetIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newTarget(), &logged{}
		n := 0
		g.set(func(dispatch.Assignment) dispatch.Answer {
			if n++; n%2 == 0 {
				return dispatch.Answer{Outcome: dispatch.Busy, Detail: "not sent: connection refused"}
			}
			return dispatch.Answer{Outcome: dispatch.Done}
		})
		p.start("a", g, log.on)
		p.add("k", 1000)
		time.Sleep(3*time.Minute + 30*time.Second)
		if bad := log.lines("code=0"); len(bad) > 0 {
			t.Errorf("without an answer there is no code: %q", bad)
		}
		if n := len(log.lines("target")); n < 4 || n > 8 {
			t.Errorf("%d lines in three minutes: %q", n, log.lines("target"))
		}
	})
}

// TestBlockedKeysAreReported: those that an operator must look at, one line at once and the others together.
func TestBlockedKeysAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newTarget(), &logged{}
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			return dispatch.Answer{Outcome: dispatch.InvalidMessage, Code: 400, Detail: "HTTP 400: no such account"}
		})
		p.start("a", g, func(c *dispatch.Config) { log.on(c); c.OnFailure = dispatch.OnFailureBlock })
		for _, key := range []string{"k1", "k2", "k3"} {
			p.add(key, 1)
		}
		time.Sleep(2 * time.Minute)
		got := log.lines("level=WARN")
		if len(got) != 2 || !strings.Contains(got[0], `msg="keys blocked; see understudy queue keys --blocked"`) || !strings.Contains(got[0], "count=1 key=k") ||
			!strings.Contains(got[0], `state=invalid code=400 detail="HTTP 400: no such account"`) || !strings.Contains(got[1], "count=2 ") {
			t.Errorf("it says %q", got)
		}
	})
}

// TestFirstRetries: the pauses are those that are documented, though nothing else wakes the instance.
func TestFirstRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return dispatch.Answer{Outcome: dispatch.Busy, Code: 503}
		})
		p.start("a", g, func(c *dispatch.Config) { c.Jitter = func() float64 { return 0.9 } })
		time.Sleep(10 * time.Second)
		p.add("k", 1)
		time.Sleep(4 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}
		if len(at) < 4 {
			t.Fatalf("sent at %v", at)
		}
		for i, pause := range want {
			if got := at[i+1] - at[i]; got < pause/2 || got > pause+20*time.Millisecond {
				t.Errorf("pause %d is %v, not up to %v", i+1, got, pause)
			}
		}
	})
}

// TestRefusedForGood: what can never succeed is dead-lettered after a few minutes, and its key continues; a receiver that was
// gone for a moment costs nothing.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, log := newPlace(t), newTarget(), &logged{}
		began := time.Now()
		gone := dispatch.Answer{Outcome: dispatch.Misconfigured, Permanent: true, Code: 404, Detail: "HTTP 404: Not Found"}
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			switch age := time.Since(began); {
			case a.ID == "never-0001", a.Key == "twice" && age < 4*time.Minute, a.Key == "twice" && age > 5*time.Minute && age < 9*time.Minute:
				return gone
			case a.Key == "twice" && age < 9*time.Minute:
				return dispatch.Answer{Outcome: dispatch.Busy, Code: 429}
			}
			return dispatch.Answer{Outcome: dispatch.Done}
		})
		p.start("a", g, log.on)
		p.add("never", 2)
		p.add("twice", 1)
		time.Sleep(4 * time.Minute)
		if r := p.record("never-0001"); r.State != dispatch.Delayed {
			t.Errorf("after four minutes it is %s", r.State)
		}
		time.Sleep(3 * time.Minute)
		if r := p.record("never-0001"); r.State != dispatch.Failed || r.Blocks || r.Code != 404 {
			t.Errorf("after seven minutes: %+v", r)
		}
		if r := p.record("never-0002"); r.State != dispatch.Committed {
			t.Errorf("its key did not go on: %+v", r)
		}
		if got := log.lines("messages dead-lettered"); len(got) != 1 || !strings.Contains(got[0], "id=never-0001") {
			t.Errorf("it says %q", got)
		}
		time.Sleep(5 * time.Minute)
		if r := p.record("twice-0001"); r.State != dispatch.Committed {
			t.Errorf("refused twice for a while: %+v", r)
		}
	})
}

// TestMaxAge: a message that fails when it is too old has failed, and one that succeeds has not.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			if a.Key == "bad" {
				return dispatch.Answer{Outcome: dispatch.Busy, Code: 503}
			}
			return dispatch.Answer{Outcome: dispatch.Done}
		})
		p.add("bad", 1)
		p.add("good", 1)
		time.Sleep(time.Hour)
		p.start("a", g, func(c *dispatch.Config) { c.Retry.MaxAge = 30 * time.Minute })
		time.Sleep(10 * time.Second)
		if r := p.record("bad-0001"); r.State != dispatch.Failed || r.Attempts != 1 {
			t.Errorf("%+v", r)
		}
		if r := p.record("good-0001"); r.State != dispatch.Committed {
			t.Errorf("%+v", r)
		}
	})
}
