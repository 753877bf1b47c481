package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/messagerouter"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// answer is what a poll gets.
type pollAnswer struct {
	items []string
	err   error
	after time.Duration
}

// topic answers polls from a script, then with nothing after the long poll.
type topic struct {
	answers []pollAnswer
	polls   []time.Duration // since the beginning
	limits  []int
	begun   time.Time
}

func (c *topic) Close() {}

func (c *topic) Consume(ctx context.Context, _, _ string, wait time.Duration, limit int) ([]json.RawMessage, error) {
	c.polls = append(c.polls, time.Since(c.begun))
	c.limits = append(c.limits, limit)
	if len(c.answers) == 0 {
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
		return nil, nil
	}
	a := c.answers[0]
	c.answers = c.answers[1:]
	if !sleep(ctx, a.after) {
		return nil, ctx.Err()
	}
	var items []json.RawMessage
	for _, s := range a.items {
		items = append(items, json.RawMessage(s))
	}
	return items, a.err
}

func msg(source string) string { return fmt.Sprintf(`{"event":"e","source":%q}`, source) }

func beat(source string) monitor.Heartbeat { return monitor.Heartbeat{Check: "e", Source: source} }

// bubble runs a router on a script for a while of virtual time.
func bubble(t *testing.T, c RouterConfig, f *flow, answers []pollAnswer, d time.Duration, then func(r *Router, c *topic, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := &topic{answers: answers, begun: time.Now()}
		log := &journal{}
		c.Name, c.Group, c.Consumer, c.Flow, c.Logger = "mr", "g", "c", f, log.logger()
		if c.Rejected == nil {
			c.Rejected = NewRejectedInputs(0)
		}
		r := newRouter(c.withDefaults(), client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := r.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		time.Sleep(d)
		synctest.Wait()
		cancel()
		<-done
		then(r, client, log)
	})
}

// TestD12StoredBeforeTheNextPoll: while the store is away the batch is kept and
// tried again, and the router is not asked for more.
func TestD12StoredBeforeTheNextPoll(t *testing.T) {
	f := &flow{fail: func(take int, _ []monitor.Heartbeat) error {
		return []error{nil, monitor.ErrBusy, fmt.Errorf("%w: cut", lease.ErrUnknown), lease.ErrUnavailable, errors.New("odd"), nil}[min(take, 5)]
	}}
	bubble(t, RouterConfig{}, f, []pollAnswer{{items: []string{msg("a"), msg("b")}}}, 10*time.Second, func(r *Router, c *topic, log *journal) {
		f.want(t, beat("a"), beat("b"))
		if c.polls[1] < 700*time.Millisecond || c.polls[1] > 2*time.Second {
			t.Errorf("polls at %v; four failures take 750 ms to 1.5 s", c.polls)
		}
		if s := r.Stats(); s.Retries != 4 || s.Accepted != 2 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings:\n%s", got, log)
		}
	})
}

// TestStoreAwayForTenMinutes: nothing is dropped, nothing more is read, and what is
// old proves nothing.
func TestStoreAwayForTenMinutes(t *testing.T) {
	var back atomic.Bool
	f := &flow{fail: func(int, []monitor.Heartbeat) error {
		if !back.Load() {
			return lease.ErrUnavailable
		}
		return nil
	}}
	synctest.Test(t, func(t *testing.T) {
		client := &topic{begun: time.Now(), answers: []pollAnswer{{items: []string{msg("a")}}}}
		r := newRouter(RouterConfig{Name: "mr", Flow: f}.withDefaults(), client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(client.polls) != 1 || len(f.taken()) != 0 {
			t.Errorf("%d polls, %d beats", len(client.polls), len(f.taken()))
		}
		if got := r.Stats().Retries; got < 20 || got > 60 {
			t.Errorf("%d attempts in ten minutes", got)
		}
		back.Store(true)
		time.Sleep(pauseMost + time.Second)
		synctest.Wait()
		f.want(t, beat("a"))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		// The first was answered ten minutes before it was stored; the last is under way.
		if got, want := f.proven(), len(client.polls)-2; got != want || want < 1 {
			t.Errorf("%d proofs, want %d", got, want)
		}
		cancel()
		<-done
	})
}

// TestStop: what is in hand when Run is told to stop is tried for a while more.
func TestStop(t *testing.T) {
	for _, c := range []struct {
		name   string
		failed time.Duration // so long the store is away after the stop
		stored bool
	}{{"soon", 2 * time.Second, true}, {"late", time.Hour, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				const stop = time.Minute
				f := &flow{fail: func(int, []monitor.Heartbeat) error {
					if time.Since(begun) < stop+c.failed {
						return lease.ErrUnavailable
					}
					return nil
				}}
				log := &journal{}
				r := newRouter(RouterConfig{Name: "mr", Flow: f, Logger: log.logger()}.withDefaults(), &topic{begun: begun, answers: []pollAnswer{{items: []string{msg("secret")}}}})
				ctx, cancel := context.WithTimeout(t.Context(), stop)
				defer cancel()
				_ = r.Run(ctx)
				s := r.Stats()
				if took := time.Since(begun) - stop; took > stopGrace {
					t.Errorf("it stopped after %v", took)
				}
				if c.stored != (s.Accepted == 1) || c.stored == (s.Lost == 1) {
					t.Errorf("%+v", s)
				}
				if s.Lost == 1 && !strings.Contains(log.String(), "not stored") || strings.Contains(log.String(), "secret") {
					t.Errorf("%s", log)
				}
			})
		})
	}
}

// TestStopLetsThePollEnd: what the router hands out while Run is told to stop is
// not for nobody.
func TestStopLetsThePollEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flow{}
		client := &topic{begun: time.Now(), answers: []pollAnswer{{after: 4 * time.Second, items: []string{msg("a")}}}}
		r := newRouter(RouterConfig{Name: "mr", Flow: f}.withDefaults(), client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = r.Run(ctx)
		f.want(t, beat("a"))
		if len(client.polls) != 1 {
			t.Errorf("%d polls", len(client.polls))
		}
	})
}

// TestProof: only a poll that found no more proves the path.
func TestProof(t *testing.T) {
	full := []string{msg("a"), msg("b")}
	for _, c := range []struct {
		name    string
		answers []pollAnswer
		proofs  int
		behind  bool
	}{
		{"none", []pollAnswer{{after: 5 * time.Second}}, 1, false},
		{"fewer", []pollAnswer{{items: full[:1]}}, 1, false},
		{"as many as asked for", []pollAnswer{{items: full}, {items: full}, {items: full}}, 0, true},
		{"all of a backlog", []pollAnswer{{items: full}, {items: full}, {items: full[:1]}}, 1, false},
		{"a failure", []pollAnswer{{err: messagerouter.ErrNotSent}}, 0, false},
		{"half an answer", []pollAnswer{{items: full[:1], err: messagerouter.ErrAnswer}}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &flow{}
			last := pollAnswer{after: time.Hour}
			bubble(t, RouterConfig{Limit: 2}, f, append(c.answers, last), time.Minute, func(r *Router, p *topic, _ *journal) {
				if f.proven() != c.proofs {
					t.Errorf("%d proofs after %d polls", f.proven(), len(p.polls))
				}
				if got := r.Stats().Behind; got != c.behind {
					t.Errorf("behind: %t", got)
				}
			})
		})
	}
}

// TestBackOff: pauses grow from 100 ms to 30 s, with jitter, and a fault that lasts is
// logged once.
func TestBackOff(t *testing.T) {
	var answers []pollAnswer
	for range 1000 {
		answers = append(answers, pollAnswer{err: fmt.Errorf("%w: connection refused", messagerouter.ErrNotSent)})
	}
	f := &flow{}
	bubble(t, RouterConfig{}, f, answers, 30*time.Minute, func(r *Router, c *topic, log *journal) {
		for i := 1; i < len(c.polls); i++ {
			most := min(pauseLeast<<min(i-1, 10), pauseMost)
			if d := c.polls[i] - c.polls[i-1]; d < most/2 || d > most {
				t.Errorf("pause %d is %v, want %v to %v", i, d, most/2, most)
			}
		}
		if n := len(c.polls); n < 60 || n > 140 {
			t.Errorf("%d polls in 30 minutes", n)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings:\n%s", got, log)
		}
		if s := r.Stats(); !strings.Contains(s.Error, "refused") || s.Since.IsZero() || s.Failures != s.Polls {
			t.Errorf("%+v", s)
		}
	})
}

// TestD13Conflict: a consumer id that is in use is said clearly, once.
func TestD13Conflict(t *testing.T) {
	twice := pollAnswer{err: &messagerouter.Error{Status: 409, Code: messagerouter.CodeTwice, Message: "twice"}}
	f := &flow{}
	bubble(t, RouterConfig{}, f, []pollAnswer{twice, twice, twice, {items: []string{msg("a")}}, twice}, time.Minute, func(r *Router, c *topic, log *journal) {
		f.want(t, beat("a"))
		if got := strings.Count(log.String(), "a consumer id of its own"); got != 2 {
			t.Errorf("it was said %d times, want once before it worked and once after:\n%s", got, log)
		}
		if s := r.Stats(); s.Error != "" || s.Failures != 4 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	f := &flow{}
	bubble(t, RouterConfig{}, f, []pollAnswer{{err: &messagerouter.Error{Status: 503, RetryAfter: 7 * time.Second}}, {err: &messagerouter.Error{Status: 429, RetryAfter: time.Hour}}}, 2*time.Minute, func(_ *Router, c *topic, _ *journal) {
		if diff := cmp.Diff([]time.Duration{0, 7 * time.Second, 67 * time.Second}, c.polls[:3]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTooLarge: an answer that is too large is read in parts by lower limits, which rise again.
func TestTooLarge(t *testing.T) {
	large := pollAnswer{items: []string{msg("a")}, err: messagerouter.ErrTooLarge}
	answers := []pollAnswer{large, large, large, large}
	for range 2*growAfter + 1 {
		answers = append(answers, pollAnswer{items: []string{msg("b")}})
	}
	f := &flow{}
	rejected := NewRejectedInputs(0)
	bubble(t, RouterConfig{Limit: 10, Rejected: rejected}, f, answers, time.Hour, func(r *Router, c *topic, _ *journal) {
		if diff := cmp.Diff([]int{10, 5, 2, 1, 1}, c.limits[:5]); diff != "" {
			t.Error(diff)
		}
		if got := c.limits[4+growAfter]; got != 2 {
			t.Errorf("after %d good polls the limit is %d", growAfter, got)
		}
		if got := len(f.taken()); got != 4+2*growAfter+1 {
			t.Errorf("%d beats", got)
		}
		if rejected.Counts()["answer"] != 4 {
			t.Errorf("%v", rejected.Counts())
		}
	})
}

// TestNoBusyLoop: a router that answers at once instead of waiting is not asked
// all the time.
func TestNoBusyLoop(t *testing.T) {
	f := &flow{}
	bubble(t, RouterConfig{}, f, make([]pollAnswer, 5000), 10*time.Second, func(_ *Router, c *topic, _ *journal) {
		if n := len(c.polls); n > 105 {
			t.Errorf("%d polls in 10 s", n)
		}
	})
}

// TestRefusedByTheStore: a beat that the store never takes does not hold up the others.
func TestRefusedByTheStore(t *testing.T) {
	f := &flow{fail: func(_ int, beats []monitor.Heartbeat) error {
		for _, b := range beats {
			if b.Source == "poison" {
				return lease.ErrInvalid
			}
		}
		return nil
	}}
	rejected := NewRejectedInputs(0)
	items := []string{msg("a"), msg("b"), msg("poison"), msg("c"), msg("poison")}
	bubble(t, RouterConfig{Rejected: rejected}, f, []pollAnswer{{items: items}}, time.Minute, func(r *Router, _ *topic, _ *journal) {
		f.want(t, beat("a"), beat("b"), beat("c"))
		if s := r.Stats(); s.Accepted != 3 || s.Bad != 2 || rejected.Counts()["refused"] != 2 {
			t.Errorf("%+v %v", s, rejected.Counts())
		}
	})
}

// TestManyInOneMessage: a message may be a batch, and a poll may bring more than
// goes into the store at once.
func TestManyInOneMessage(t *testing.T) {
	whole := string(array(maxItems, func(i int) string { return msg(fmt.Sprint(i)) }))
	half := string(array(maxItems/2-1, func(i int) string { return msg(fmt.Sprint(i)) }))
	f := &flow{fail: func(_ int, beats []monitor.Heartbeat) error {
		if len(beats) > maxItems+maxItems/2 {
			t.Errorf("%d beats at once", len(beats))
		}
		return nil
	}}
	rejected := NewRejectedInputs(0)
	bubble(t, RouterConfig{Rejected: rejected}, f, []pollAnswer{{items: []string{half, whole, whole, strings.Replace(whole, "[", "[0,", 1)}}}, time.Minute, func(r *Router, _ *topic, _ *journal) {
		if got, want := len(f.taken()), 2*maxItems+maxItems/2-1; got != want {
			t.Errorf("%d beats, want %d", got, want)
		}
		if got := rejected.Counts()["syntax"]; got != 1 {
			t.Errorf("%d inputs; a message of too many is one", got)
		}
	})
}
