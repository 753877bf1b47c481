package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/resolve"
)

// network is servers by host, which answer without sockets: those would stop the time of a bubble.
type network struct {
	hosts map[string]http.HandlerFunc

	mu    sync.Mutex
	asked map[string]int
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked[r.URL.Host]++
	n.mu.Unlock()
	answer := httptest.NewRecorder()
	n.hosts[r.URL.Host](answer, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// clientOf asks servers a and b, in this order; with b nil only a.
func clientOf(t *testing.T, a, b http.HandlerFunc) (*resolve.Client, *network) {
	t.Helper()
	n := &network{hosts: map[string]http.HandlerFunc{"a": a, "b": b}, asked: map[string]int{}}
	cfg := resolve.ClientConfig{Servers: []string{"http://a", "http://b"}, HTTP: &http.Client{Transport: n}, Clock: &leasetest.BubbleClock{}}
	if b == nil {
		cfg.Servers = cfg.Servers[:1]
	}
	c, err := resolve.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

// isSilent answers nothing.
func isSilent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// answers with a status and a body, after a while.
func answers(after time.Duration, status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if lease.Sleep(r.Context(), &leasetest.BubbleClock{}, after) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
}

// holds answers that web-1 holds whatever role is asked for, for so long.
func holds(after, left time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		role := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		answers(after, http.StatusOK, fmt.Sprintf(
			`{"role":%q,"primaries":[{"id":"1","name":"web-1","address":"10.0.0.1:80","term":7,"expires_in_ms":%d}]}`, role, left.Milliseconds()))(w, r)
	}
}

// moving answers that a is the primary of the shard orders, which is about to move: nobody may remember it.
func moving(after time.Duration) http.HandlerFunc {
	return answers(after, http.StatusOK, `{"shard":"orders","primary":{"node_id":"a","address":"a:1","epoch":9},"left_ms":4000,"plan":{}}`)
}

func refuses(w http.ResponseWriter, r *http.Request) {
	answers(0, http.StatusUnauthorized, `{"code":"unauthorized"}`)(w, r)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A server that is silent leaves some of the caller's time to the next, and is asked last from then on.
func TestPastASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := clientOf(t, isSilent, holds(0, time.Minute))
		for _, role := range []string{"billing", "orders"} {
			if a, err := c.Lookup(within(t, time.Second), role); err != nil || len(a.Holders) != 1 || a.Holders[0].Name != "web-1" {
				t.Errorf("%s: %v, %v", role, a, err)
			}
		}
		if n.asked["a"] != 1 || n.asked["b"] != 2 {
			t.Errorf("asked %v", n.asked)
		}
	})
}

// Nor does a server that is slow move back because a caller has gone.
func TestACallerThatGoesBlamesNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := clientOf(t, holds(200*time.Millisecond, time.Minute), isSilent)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := c.Lookup(ctx, "billing"); !errors.Is(err, resolve.ErrStale) || !errors.Is(err, context.Canceled) {
			t.Errorf("whoever went has %v", err)
		}
		if _, err := c.Lookup(t.Context(), "billing"); err != nil || n.asked["a"] != 2 || n.asked["b"] != 0 {
			t.Errorf("%v, asked %v", err, n.asked)
		}
	})
}

// A server that refuses is passed over; only if all do is that the answer, and the end of a watch.
func TestPastARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := clientOf(t, refuses, holds(0, time.Minute))
		for _, role := range []string{"billing", "orders"} {
			if a, err := c.Lookup(t.Context(), role); err != nil || len(a.Holders) != 1 {
				t.Errorf("%s: %v, %v", role, a, err)
			}
		}
		if n.asked["a"] != 1 {
			t.Errorf("asked %v", n.asked)
		}

		never := func(resolve.Answer) error { return errors.New("fn was called") }
		c, _ = clientOf(t, refuses, refuses)
		if _, err := c.Lookup(t.Context(), "billing"); err == nil || errors.Is(err, resolve.ErrStale) || !strings.Contains(err.Error(), "401") {
			t.Errorf("all refuse: %v", err)
		}
		if err := c.Watch(within(t, time.Minute), "billing", never); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("a watch that all refuse: %v", err)
		}
		for name, other := range map[string]http.HandlerFunc{"is down": answers(0, 503, ""), "is behind a proxy that refuses": answers(0, 403, "<html>")} {
			c, _ = clientOf(t, refuses, other)
			if _, err := c.Lookup(t.Context(), "billing"); !errors.Is(err, resolve.ErrStale) || !strings.Contains(err.Error(), "401") {
				t.Errorf("one refuses, the other %s: %v", name, err)
			}
			if err := c.Watch(within(t, time.Minute), "billing", never); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one refuses, the other %s: watch: %v", name, err)
			}
		}
	})
}

// lookupAtOnce looks a name up so many times at once, and returns the errors.
func lookupAtOnce(t *testing.T, c *resolve.Client, name string, times int) []error {
	errs := make([]error, times)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = c.Lookup(within(t, 2*time.Second), name) })
	}
	all.Wait()
	return errs
}

// Whoever asks while another asks gets the same answer, also one that nobody may remember.
func TestOneQuestionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			server http.HandlerFunc
			lookup string
			want   error
		}{
			"not to be remembered": {moving(200 * time.Millisecond), "primary/orders", nil},
			"unknown":              {answers(200*time.Millisecond, 404, `{"code":"not_found"}`), "primary/orders", resolve.ErrUnknown},
			"broken":               {answers(200*time.Millisecond, 503, ""), "billing", resolve.ErrStale},
		} {
			c, n := clientOf(t, x.server, nil)
			for range 2 { // an outcome is of those alone who waited for it
				for _, err := range lookupAtOnce(t, c, x.lookup, 20) {
					if !errors.Is(err, x.want) {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
			if n.asked["a"] != 2 {
				t.Errorf("%s: asked %d times", name, n.asked["a"])
			}
		}
		c, _ := clientOf(t, isSilent, isSilent)
		for _, err := range lookupAtOnce(t, c, "billing", 20) {
			if !errors.Is(err, resolve.ErrStale) {
				t.Errorf("all are silent: %v", err)
			}
		}
	})
}

// What came of a caller's haste is not the answer for those with more time.
func TestHasteIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, b := range map[string]http.HandlerFunc{"the other is silent": isSilent, "the other is down": answers(0, 503, "")} {
			c, _ := clientOf(t, holds(200*time.Millisecond, time.Minute), b)
			var hasty, patient error
			var both sync.WaitGroup
			both.Go(func() { _, hasty = c.Lookup(within(t, 100*time.Millisecond), "billing") })
			synctest.Wait() // it asks
			both.Go(func() { _, patient = c.Lookup(within(t, 10*time.Second), "billing") })
			both.Wait()
			if !errors.Is(hasty, resolve.ErrStale) || patient != nil {
				t.Errorf("%s: %v and %v", name, hasty, patient)
			}
		}

		var asked atomic.Bool
		c, _ := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if holds(200*time.Millisecond, time.Minute)(w, r); !asked.Swap(true) {
				panic("a transport of the caller's")
			}
		}, nil)
		go func() {
			defer func() { _ = recover() }()
			_, _ = c.Lookup(t.Context(), "billing")
		}()
		synctest.Wait() // it asks
		if _, err := c.Lookup(within(t, 10*time.Second), "billing"); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	})
}

// An answer that ended on its way is none, and the next server is asked.
func TestAnswerThatEndedOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := 1500 * time.Millisecond
		for name, x := range map[string]struct {
			lookup string
			late   http.HandlerFunc
		}{
			"a role":         {"billing", holds(late, time.Second)},
			"a shard":        {"primary/orders", answers(late, 200, `{"shard":"orders","primary":{"node_id":"a","address":"a:1","epoch":9},"left_ms":1400}`)},
			"one that moves": {"primary/orders", answers(late, 200, `{"shard":"orders","primary":{"node_id":"a","address":"a:1","epoch":9},"left_ms":1400,"plan":{}}`)},
		} {
			c, _ := clientOf(t, x.late, nil)
			if a, err := c.Lookup(t.Context(), x.lookup); !errors.Is(err, resolve.ErrStale) {
				t.Errorf("%s: %v for %v, %v", name, a, a.TTL, err)
			}
			next := moving(0)
			if x.lookup == "billing" {
				next = holds(0, time.Minute)
			}
			c, _ = clientOf(t, x.late, next)
			if a, err := c.Lookup(t.Context(), x.lookup); err != nil || len(a.Holders) != 1 {
				t.Errorf("%s, from the next server: %v, %v", name, a, err)
			}
		}

		c, _ := clientOf(t, holds(0, 0), nil) // as after a restart of the server's host
		if a, err := c.Lookup(t.Context(), "billing"); !errors.Is(err, resolve.ErrVacant) {
			t.Errorf("a holder of another boot: %v, %v", a, err)
		}
		c, n := clientOf(t, answers(late, 404, `{"code":"vacant"}`), nil)
		for range 2 { // that nobody holds it leads nobody anywhere
			if _, err := c.Lookup(t.Context(), "billing"); !errors.Is(err, resolve.ErrVacant) {
				t.Errorf("vacant, late: %v", err)
			}
		}
		if n.asked["a"] != 2 {
			t.Errorf("asked %d times for what may not be remembered", n.asked["a"])
		}
		c, _ = clientOf(t, holds(late, time.Minute), nil)
		if a, err := c.Lookup(t.Context(), "billing"); err != nil || a.TTL != resolve.DefaultMaxAge-late {
			t.Errorf("an answer that took %v: for %v, %v", late, a.TTL, err)
		}
	})
}
