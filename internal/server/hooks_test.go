package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/settings"
)

func testHook(primary func() bool) *hook {
	cfg := settings.Hook{Command: []string{"true"}, Match: "b*", On: []string{"role", "alarm"}}
	return &hook{cfg: cfg, primary: primary, window: 15 * time.Second, logger: slog.New(slog.DiscardHandler), waiting: make(chan seenEvent, 3)}
}

func TestHookOffer(t *testing.T) {
	h := testHook(nil)
	for i, e := range []history.Event{
		{Part: "role", Subject: "billing"}, {Part: "role", Subject: "other"}, {Part: "batch", Subject: "b/1"},
		{Part: "monitor", Subject: "backup/db"}, {Part: "role", Subject: "b2"}, {Part: "role", Subject: "b3"}, {Part: "role", Subject: "b4"},
	} {
		e.ID = int64(i)
		h.offer(e, time.Now())
	}
	var got []int64
	for len(h.waiting) > 0 {
		got = append(got, (<-h.waiting).ID)
	}
	if !slices.Equal(got, []int64{4, 5, 6}) || h.dropped.Load() != 2 {
		t.Errorf("waiting: %v, given up: %d; want the newest three, and two", got, h.dropped.Load())
	}
}

// TestHookWaitsForItsRole: an event is for the one who is primary when it is seen, or who becomes it soon.
func TestHookWaitsForItsRole(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // from when it is primary
		want  bool
	}{
		"now": {0, true}, "soon": {12 * time.Second, true}, "too late": {20 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			h := testHook(func() bool { return time.Since(began) >= c.after })
			if got := h.waitUntilPrimary(t.Context(), seenEvent{seen: began}); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}

// flaky is a log whose readings fail at first.
type flaky struct {
	history.Log
	fails  int
	events []history.Event
}

func (f *flaky) Read(_ context.Context, q history.Query) ([]history.Event, error) {
	if f.fails--; f.fails >= 0 {
		return nil, errors.New("away")
	}
	if q.Newest {
		return f.events[max(0, len(f.events)-1):], nil
	}
	var out []history.Event
	for _, e := range f.events {
		if e.ID > q.After {
			out = append(out, e)
		}
	}
	return out, nil
}

// TestHooksRead: what is written after the end of the history was found reaches the hooks, once, whatever fails after that.
func TestHooksRead(t *testing.T) {
	log := &flaky{fails: 1, events: []history.Event{{ID: 6, Part: "role", Subject: "b"}, {ID: 7, Part: "role", Subject: "b"}}}
	s := &servedHooks{log: log, hooks: []*hook{testHook(nil)}, logger: slog.New(slog.DiscardHandler)}
	if s.findEnd(t.Context()) == nil {
		t.Error("the end of a history that cannot be read was found")
	}
	if err := s.findEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := 0
	read := func() {
		if err := s.read(t.Context()); err != nil {
			failed++
		}
	}
	log.fails = 2
	for id := int64(8); id <= 9; id++ {
		log.events = append(log.events, history.Event{ID: id, Part: "role", Subject: "b"})
		for range 3 {
			read()
		}
		log.fails = 1
	}
	if n := len(s.hooks[0].waiting); n != 2 || failed != 3 {
		t.Errorf("%d events, %d readings failed", n, failed)
	}
}

// TestHookEnvironment: a hook gets what the server got, but for the server's settings.
func TestHookEnvironment(t *testing.T) {
	got := hookEnviron([]string{"HOME=/srv", "UNDERSTUDY_TOKEN=secret", "UNDERSTUDY_STORE=postgres://u:p@db/a", "UNDERSTUDY_EVENT_ID=of another", "PATH=/bin"})
	if want := []string{"HOME=/srv", "PATH=/bin"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHookInput(t *testing.T) {
	e := newHookEvent(seenEvent{Event: history.Event{ID: 5, Subject: "bil\x00ling", Reason: "say \"why\"\n", Duration: 11*time.Millisecond + 1}, on: "role"})
	if e.DurationMS != 12 {
		t.Errorf("%d ms: not rounded up", e.DurationMS)
	}
	r, err := e.input()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil || strings.Count(string(text), "\n") != 1 {
		t.Fatalf("%q, %v", text, err)
	}
	var got hookEvent
	if err := json.Unmarshal(text, &got); err != nil || got != e {
		t.Errorf("%+v, %v", got, err)
	}
	for _, v := range e.environment() {
		if strings.Contains(v, "\x00") || !strings.HasPrefix(v, "UNDERSTUDY_EVENT_") {
			t.Errorf("%q", v)
		}
	}
	e.Reason = strings.Repeat("x", 1<<20)
	if _, err := e.input(); err == nil {
		t.Error("an event that does not fit into a pipe is written")
	}
}

// TestHookGivesUp: what nobody will run a hook for is counted: at a stop, or when another instance becomes primary
// too late. What the next primary repeats is not.
func TestHookGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		of    string
		until time.Duration // it is primary
		stop  time.Duration // of the server
		want  uint64
	}{
		"each server's, at a stop":     {"", time.Hour, 18 * time.Second, 1},
		"waited for long, at a stop":   {"hooks", time.Hour, 18 * time.Second, 1},
		"waited for long, resigned":    {"hooks", 17 * time.Second, time.Minute, 1},
		"waited briefly, resigned":     {"hooks", 12 * time.Second, time.Minute, 0},
		"never primary":                {"hooks", 0, time.Minute, 0},
		"never primary, and at a stop": {"hooks", 0, 18 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			h := testHook(func() bool { return time.Since(began) < c.until })
			h.cfg.OnlyPrimaryOf = c.of
			for id := range int64(2) { // the program runs for the first until 18 s
				h.offer(history.Event{ID: id, Part: "role", Subject: "billing"}, began)
			}
			<-h.waiting
			for range 18 {
				h.isPrimary() // as is seen with each reading
				time.Sleep(time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.stop-time.Since(began))
			defer cancel()
			h.run(ctx)
			h.giveUpWaiting()
			if got := h.dropped.Load(); got != c.want {
				t.Errorf("%s: %d given up, want %d", name, got, c.want)
			}
		})
	}
}

// TestHookAcrossATakeover: the successor runs the hook for what the former primary ran it for and for what it did not, under
// the same numbers. So a takeover loses nothing that is recent, and may repeat an event.
func TestHookAcrossATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		dead := func() bool { return time.Since(began) >= 2*time.Second }
		former := testHook(func() bool { return !dead() })
		next := testHook(dead)
		var ran [2][]int64
		for id, at := range []time.Duration{0, time.Second, 3 * time.Second} {
			time.Sleep(at - time.Since(began))
			for i, h := range []*hook{former, next} {
				h.offer(history.Event{ID: int64(id), Part: "role", Subject: "billing"}, time.Now())
				if e := <-h.waiting; (i == 1 || !dead()) && h.waitUntilPrimary(t.Context(), e) {
					ran[i] = append(ran[i], e.ID)
				}
			}
		}
		if want := [2][]int64{{0}, {0, 1, 2}}; !slices.Equal(ran[0], want[0]) || !slices.Equal(ran[1], want[1]) {
			t.Errorf("run by the former primary and by the next: %v, want %v", ran, want)
		}
	})
}
