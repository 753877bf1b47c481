package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/messagerouter"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/monitor"
)

// until polls a condition, for as long as a busy machine may need.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(60 * time.Second)
	for !holds() {
		select {
		case <-limit:
			t.Fatalf("not in a minute: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

type routerRig struct {
	server   *fakerouter.Server
	flow     *flow
	rejected *RejectedInputs
	log      *journal
	router   *Router
}

// newRouterRig is a stand-in, and how a router reads it that was not started yet.
func newRouterRig(t *testing.T) (*routerRig, RouterConfig) {
	t.Helper()
	r := &routerRig{server: fakerouter.New(t), flow: &flow{}, rejected: NewRejectedInputs(0), log: &journal{}}
	return r, RouterConfig{
		Name: "mr", URL: r.server.URL("t"), Group: "g", Consumer: "c", LongPoll: 200 * time.Millisecond,
		Flow: r.flow, Rejected: r.rejected, Logger: r.log.logger(),
	}
}

// runRouter runs a router against a stand-in, until the test ends.
func runRouter(t *testing.T, change func(*RouterConfig)) *routerRig {
	t.Helper()
	r, c := newRouterRig(t)
	if change != nil {
		change(&c)
	}
	r.start(t, c, 0)
	return r
}

func (r *routerRig) start(t *testing.T, c RouterConfig, maxAnswer int) {
	t.Helper()
	router, err := NewRouter(c)
	if err != nil {
		t.Fatal(err)
	}
	if maxAnswer > 0 {
		config := c.client()
		config.MaxAnswer = maxAnswer
		if router.client, err = messagerouter.New(config); err != nil {
			t.Fatal(err)
		}
	}
	r.router = router
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (r *routerRig) sources() map[string]int {
	out := map[string]int{}
	for _, b := range r.flow.taken() {
		out[b.Source]++
	}
	return out
}

// TestD03PoisonByRouter: every kind of poison, as texts and as objects, costs itself alone; the
// consumer lives on.
func TestD03PoisonByRouter(t *testing.T) {
	for _, kind := range []string{"texts", "objects", "pretty"} {
		t.Run(kind, func(t *testing.T) {
			r := runRouter(t, nil)
			switch kind {
			case "objects":
				r.server.Objects()
			case "pretty":
				r.server.Pretty()
			}
			want := map[string]int64{}
			var messages []string
			for i, p := range poisons() {
				if p.cause == Syntax && kind == "objects" {
					continue // breaks the answer itself: see TestD12BrokenAnswer
				}
				cause := p.cause
				if p.name == "an array" {
					cause = NoSource // of its one item
				}
				want[string(cause)]++
				messages = append(messages, p.message, msg(fmt.Sprint("after ", i)))
			}
			if kind != "objects" {
				messages = append(messages, "", "\x00", "null")
				want["syntax"] += 2
				want["kind"]++
			}
			r.server.Publish("t", messages...)
			r.server.Publish("t", msg("last"))
			until(t, "the last beat", func() bool { return r.sources()["last"] == 1 })
			until(t, "the store's answer for it", func() bool { return int(r.router.Stats().Accepted) == len(r.flow.taken()) })
			if diff := cmp.Diff(want, r.rejected.Counts()); diff != "" {
				t.Error(diff)
			}
			for i, p := range poisons() {
				if (p.cause != Syntax || kind != "objects") && r.sources()[fmt.Sprint("after ", i)] != 1 {
					t.Errorf("the beat after %q is missing", p.name)
				}
			}
			if s := r.router.Stats(); s.Failures != 0 || s.Unknown != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestD12Word: a message may contain the word of the router's error bodies.
func TestD12Word(t *testing.T) {
	r := runRouter(t, nil)
	r.server.Objects()
	r.server.Publish("t", msg("mrstatus"), strings.Replace(ves, `"priority":"Normal"`, `"status":409,"mrstatus":5012`, 1))
	until(t, "both beats", func() bool { return len(r.flow.taken()) == 2 })
	r.flow.want(t, beat("mrstatus"), edge)
}

// TestD12BrokenAnswer: one message that breaks the array does not take along what
// stood before it, and the next poll continues.
func TestD12BrokenAnswer(t *testing.T) {
	r := runRouter(t, nil)
	r.server.Objects()
	r.server.Publish("t", msg("a"), `{"broken": in itself}`, msg("b"), `{`, msg("lost"))
	until(t, "the poll", func() bool { return r.router.Stats().Failures > 0 })
	r.server.Publish("t", msg("c"))
	until(t, "the beat after it", func() bool { return r.sources()["c"] == 1 })
	r.flow.want(t, beat("a"), beat("b"), beat("c"))
	if got := r.rejected.Counts(); got["answer"] != 1 || got["syntax"] != 2 {
		t.Errorf("%v", got)
	}
}

// TestD12HalfAnAnswer: of an answer that breaks off, what came counts; the
// router has forgotten the rest, and nothing is read twice.
func TestD12HalfAnAnswer(t *testing.T) {
	r, c := newRouterRig(t)
	r.server.Fail(fakerouter.Fault{Method: "GET", Half: true})
	r.server.Publish("t", msg("a"), msg("b"), msg("c"), msg("d"))
	r.start(t, c, 0) // its first poll meets the fault, and all four
	until(t, "the fault", func() bool { return r.router.Stats().Failures > 0 })
	r.server.Publish("t", msg("e"))
	until(t, "the beat after it", func() bool { return r.sources()["e"] == 1 })
	if got := r.sources(); got["a"] != 1 || got["d"] != 0 {
		t.Errorf("%v", got)
	}
}

// TestD12Faults: after every kind of fault of a poll the next one is made, and nothing
// is lost.
func TestD12Faults(t *testing.T) {
	r := runRouter(t, nil)
	faults := []fakerouter.Fault{
		{Method: "GET", Status: 409, Code: 5012}, {Method: "GET", Status: 404, Code: 3001}, {Method: "GET", Status: 503, Code: 3002},
		{Method: "GET", Body: `{"status":500,"mrstatus":1004,"message":"inside"}`}, {Method: "GET", Body: `<html>`, Status: 502}, {Method: "GET", Cut: true},
		{Method: "GET", Body: `hello`}, {Method: "GET", Status: 302, Code: 1}, {Method: "GET", Body: `[`},
	}
	r.server.Fail(faults[:4]...)
	until(t, "faults", func() bool { return r.server.Failures() == 0 })
	r.server.Publish("t", msg("a"))
	until(t, "the first beat", func() bool { return r.sources()["a"] == 1 })
	r.server.Fail(faults[4:]...)
	until(t, "faults", func() bool { return r.server.Failures() == 0 })
	r.server.Publish("t", msg("b"))
	until(t, "the second beat", func() bool { return r.sources()["b"] == 1 })
	// One that is cut before its answer is repeated by the transport.
	until(t, "all failures", func() bool { return r.router.Stats().Failures >= int64(len(faults))-1 })
	for _, f := range r.server.Requests() {
		if f.Method != "GET" || f.Limit != defaultLimit || f.Wait != 200*time.Millisecond {
			t.Errorf("%+v", f)
		}
	}
}

// TestRouterDown: nothing is proven while the router is down, and it continues by
// itself afterwards.
func TestRouterDown(t *testing.T) {
	r := runRouter(t, nil)
	until(t, "a proof", func() bool { return r.flow.proven() > 0 })
	r.server.Down()
	until(t, "failures", func() bool { return r.router.Stats().Failures > 2 })
	before := r.flow.proven()
	until(t, "more of them", func() bool { return r.router.Stats().Failures > 4 })
	if r.flow.proven() != before {
		t.Error("the path was proven while the router was down")
	}
	r.server.Up()
	r.server.Publish("t", msg("a"))
	until(t, "the beat", func() bool { return r.sources()["a"] == 1 })
	until(t, "a proof", func() bool { return r.flow.proven() > before })
	if s := r.router.Stats(); s.Error != "" || s.Proven.IsZero() {
		t.Errorf("%+v", s)
	}
}

// TestD13TwoOfOneID: the router lets one of them read; both live, and nothing is lost.
func TestD13TwoOfOneID(t *testing.T) {
	r := runRouter(t, nil)
	second := *r
	second.start(t, r.router.cfg, 0)
	until(t, "the conflict", func() bool { return strings.Contains(r.log.String(), "a consumer id of its own") })
	for i := range 20 {
		r.server.Publish("t", msg(fmt.Sprint(i)))
	}
	until(t, "all beats", func() bool { return len(r.sources()) == 20 })
}

// TestD13Sharing: instances of one group share the messages.
func TestD13Sharing(t *testing.T) {
	r := runRouter(t, func(c *RouterConfig) { c.Limit = 5 })
	second := *r
	c := r.router.cfg
	c.Consumer = "another"
	second.start(t, c, 0)
	want := map[string]int{}
	for i := range 200 {
		r.server.Publish("t", msg(fmt.Sprint(i)))
		want[fmt.Sprint(i)] = 1
	}
	until(t, "all beats", func() bool { return len(r.sources()) == 200 })
	if diff := cmp.Diff(want, r.sources()); diff != "" {
		t.Error(diff)
	}
}

// TestTooLargeForOneAnswer: what fits of an answer that is too large is taken, the next
// is asked for in smaller parts, and a message that is too large by itself is skipped.
func TestTooLargeForOneAnswer(t *testing.T) {
	r, c := newRouterRig(t)
	padded := func(source string, n int) string {
		return fmt.Sprintf(`{"event":"e","source":%q,"pad":%q}`, source, strings.Repeat("x", n))
	}
	r.server.Publish("t", padded("a", 100), padded("b", 100), padded("c", 20_000), padded("d", 100))
	c.Limit = 4
	r.start(t, c, 10_000)
	until(t, "the answer that is too large", func() bool { return r.router.Stats().Failures > 0 })
	r.server.Publish("t", padded("huge", 20_000), padded("huge", 20_000), padded("huge", 20_000), msg("last"))
	until(t, "the last beat", func() bool { return r.sources()["last"] == 1 })
	got := r.sources()
	// The router may hand out again what it had not written when the answer was given up.
	if got["a"] == 0 || got["b"] == 0 || got["huge"] != 0 || r.rejected.Counts()["answer"] < 2 || r.router.Stats().Limit != 1 {
		t.Errorf("%v %v %+v", got, r.rejected.Counts(), r.router.Stats())
	}
}

// TestD07Backlog: a backlog is read as fast as it can be stored, with no pause between
// polls. The original reads 4096 messages in 20 s.
func TestD07Backlog(t *testing.T) {
	const n = 30_000
	r, c := newRouterRig(t)
	messages := make([]string, n)
	for i := range messages {
		messages[i] = msg(fmt.Sprint(i))
	}
	r.server.Publish("t", messages...)
	c.LongPoll = time.Minute
	begun := time.Now()
	r.start(t, c, 0)
	until(t, "all beats", func() bool { return r.router.Stats().Accepted == n })
	t.Logf("%d messages in %v", n, time.Since(begun))
	if got := r.router.Stats().Polls; got > n/defaultLimit+2 {
		t.Errorf("%d polls", got)
	}
	r.server.Down() // or Run waits for a while for the poll that is under way
}

// TestD19NothingInTheLog: neither a password nor what a message says.
func TestD19NothingInTheLog(t *testing.T) {
	r := runRouter(t, func(c *RouterConfig) { c.User, c.Password = "ann", "s3cret" })
	r.server.Guard("ann", "s3cret")
	r.server.Publish("t", msg("private-1"), `{"event":"private-2"}`, `private-3`, `{"event":"x","source":"private-4"}`)
	until(t, "the beat", func() bool { return len(r.flow.taken()) == 1 })
	r.server.Guard("ann", "another")
	until(t, "a refusal", func() bool { return r.router.Stats().Failures > 0 })
	r.flow.mu.Lock()
	r.flow.fail = func(int, []monitor.Heartbeat) error { return monitor.ErrBusy }
	r.flow.mu.Unlock()
	r.server.Guard("ann", "s3cret")
	r.server.Publish("t", msg("private-5"))
	until(t, "a retry", func() bool { return r.router.Stats().Retries > 0 })
	r.flow.mu.Lock()
	r.flow.fail = nil
	r.flow.mu.Unlock()
	shown := r.log.String() + fmt.Sprintf("%v %+v %#v", r.router.cfg, r.router.cfg, r.router.cfg) + fmt.Sprintf("%+v", r.router.Stats())
	if strings.Contains(shown, "private") || strings.Contains(shown, "s3cret") {
		t.Errorf("%s", shown)
	}
	if rejected, _ := json.Marshal(r.rejected.List()); strings.Contains(string(rejected), "s3cret") {
		t.Errorf("%s", rejected)
	}
}
