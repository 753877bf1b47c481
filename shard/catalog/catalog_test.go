package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
)

// shelf is a registry of which only what a catalog uses is there.
type shelf struct {
	shard.Registry
	mu     sync.Mutex
	views  map[string]shard.View
	fail   error
	lists  int
	looks  int
	wake   func(string)
	watch  error  // of Watch
	asked  int    // how often Watch was called
	during func() // called by List before it answers
	slow   time.Duration
}

func newShelf(names ...string) *shelf {
	s := &shelf{views: map[string]shard.View{}}
	for _, n := range names {
		s.views[n] = shard.View{Row: shard.Row{Name: n, Rev: 1, Secret: "secret"}}
	}
	return s
}

func (s *shelf) List(_ context.Context, after string, limit int) ([]shard.View, error) {
	s.mu.Lock()
	s.lists++
	fail, during, slow := s.fail, s.during, s.slow
	s.mu.Unlock()
	if during != nil {
		during()
	}
	time.Sleep(slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	var out []shard.View
	for _, v := range s.views {
		if v.Row.Name > after {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b shard.View) int { return strings.Compare(a.Row.Name, b.Row.Name) })
	return out[:min(limit, len(out))], nil
}

func (s *shelf) ReadView(_ context.Context, name string) (shard.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.fail != nil {
		return shard.View{}, s.fail
	}
	v, ok := s.views[name]
	if !ok {
		return v, shard.ErrNotFound
	}
	return v, nil
}

func (s *shelf) Watch(ctx context.Context, _ string, wake func(string)) error {
	s.mu.Lock()
	s.wake = wake
	s.asked++
	err := s.watch
	s.mu.Unlock()
	if err != nil {
		return err
	}
	wake("")
	<-ctx.Done()
	return nil
}

// do changes the registry, and tells of a shard unless tell is "".
func (s *shelf) do(tell string, f func()) {
	s.mu.Lock()
	f()
	wake := s.wake
	s.mu.Unlock()
	if tell != "" {
		wake(tell)
	}
}

func (s *shelf) counts() (lists, looks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.looks
}

var _ catalog.AgedViews = (*catalog.Catalog)(nil)

// runs a catalog in a bubble, and stops it at the end.
func runs(t *testing.T, s *shelf, f func(d *catalog.Catalog)) {
	synctest.Test(t, func(t *testing.T) {
		d, err := catalog.New(catalog.Config{Registry: s, Clock: bubbleClock{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		f(d)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// bubbleClock is the time of a bubble.
type bubbleClock struct{}

func (bubbleClock) Now() time.Duration {
	return time.Since(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
}
func (bubbleClock) Wall() time.Time { return time.Now() }
func (bubbleClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func names(d *catalog.Catalog) string {
	var out []string
	for _, v := range d.Shards() {
		out = append(out, v.Row.Name)
	}
	return strings.Join(out, " ")
}

func is(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCatalogReads(t *testing.T) {
	s := newShelf("b", "a")
	runs(t, s, func(d *catalog.Catalog) {
		if got := names(d); got != "a b" {
			t.Fatalf("shards %q", got)
		}
		v, ok := d.Shard("a")
		if !ok || v.Row.Rev != 1 || v.Row.Secret != "" {
			t.Errorf("shard a: %+v, %t", v.Row, ok)
		}
		if age, err := d.Freshness(); age != 0 || err != nil {
			t.Errorf("freshness %v, %v", age, err)
		}
		time.Sleep(time.Second) // the store's first wake-up has ended
		changed := d.Changed()
		s.do("", func() { s.views["c"] = shard.View{Row: shard.Row{Name: "c"}}; delete(s.views, "a") })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(d); got != "b c" || !is(changed) {
			t.Errorf("shards %q, changed %t", got, is(changed))
		}
	})
}

func TestCatalogIsWoken(t *testing.T) {
	s := newShelf("a", "b")
	runs(t, s, func(d *catalog.Catalog) {
		time.Sleep(time.Second)
		synctest.Wait()
		lists, looks := s.counts()
		changed := d.Changed()
		s.do("a", func() { v := s.views["a"]; v.Row.Rev, v.Row.Primary = 2, "p"; s.views["a"] = v })
		synctest.Wait()
		if v, _ := d.Shard("a"); v.Row.Primary != "p" || !is(changed) {
			t.Errorf("the change was not seen at once: %+v", v.Row)
		}
		s.do("b", func() { delete(s.views, "b") })
		synctest.Wait()
		if got := names(d); got != "a" {
			t.Errorf("shards %q", got)
		}
		if l, k := s.counts(); l != lists || k != looks+2 {
			t.Errorf("%d readings of all, %d of one", l-lists, k-looks)
		}
	})
}

// TestCatalogTells tells what is a change and what is none.
func TestCatalogTells(t *testing.T) {
	record := shard.Record{ID: "n", Address: "h:1", Role: shard.Replica, Condition: shard.Up, Timeout: time.Second, Link: &shard.Upstream{Up: true}}
	for _, c := range []struct {
		name string
		edit func(*shard.View, *shard.Record)
		want bool
	}{
		{"nothing", func(*shard.View, *shard.Record) {}, false},
		{"txn", func(_ *shard.View, r *shard.Record) { r.Txn, r.Updated, r.Keys = 9, 9, 9 }, false},
		{"age", func(_ *shard.View, r *shard.Record) { r.Age = time.Second }, false},
		{"input", func(_ *shard.View, r *shard.Record) { r.Link = &shard.Upstream{Up: true, Input: time.Second} }, false},
		{"silent", func(_ *shard.View, r *shard.Record) { r.Age = time.Second + 1 }, true},
		{"row", func(v *shard.View, _ *shard.Record) { v.Row.Rev++ }, true},
		{"role", func(_ *shard.View, r *shard.Record) { r.Role = shard.Primary }, true},
		{"announced", func(_ *shard.View, r *shard.Record) { r.Announced = "x:1" }, true},
		{"condition", func(_ *shard.View, r *shard.Record) { r.Condition = shard.Down }, true},
		{"link", func(_ *shard.View, r *shard.Record) { r.Link = nil }, true},
		{"restart", func(_ *shard.View, r *shard.Record) { r.Run = "new" }, true},
		{"lease", func(v *shard.View, _ *shard.Record) { v.Lease = lease.Lease{Session: "s", Remaining: time.Second} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShelf("a")
			put := func(edit func(*shard.View, *shard.Record)) {
				v, r := s.views["a"], record
				edit(&v, &r)
				v.Nodes = []shard.Record{r}
				s.views["a"] = v
			}
			put(func(*shard.View, *shard.Record) {})
			runs(t, s, func(d *catalog.Catalog) {
				time.Sleep(time.Second)
				changed := d.Changed()
				s.do("a", func() { put(c.edit) })
				synctest.Wait()
				if got := is(changed); got != c.want {
					t.Errorf("changed: %t", got)
				}
			})
		})
	}
}

func TestCatalogKeepsWhatItHad(t *testing.T) {
	s := newShelf("a")
	runs(t, s, func(d *catalog.Catalog) {
		s.do("", func() { s.fail = lease.ErrUnavailable })
		time.Sleep(time.Minute)
		if got := names(d); got != "a" {
			t.Errorf("shards %q", got)
		}
		age, err := d.Freshness()
		if age < 58*time.Second || !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("freshness %v, %v", age, err)
		}
		if lists, _ := s.counts(); lists > 100 {
			t.Errorf("%d readings in a minute", lists)
		}
		s.do("", func() { s.fail = nil; delete(s.views, "a") })
		time.Sleep(2 * time.Second)
		if age, err := d.Freshness(); names(d) != "" || age > 2*time.Second || err != nil {
			t.Errorf("shards %q, freshness %v, %v", names(d), age, err)
		}
	})
}

func TestCatalogPages(t *testing.T) {
	s := newShelf()
	for i := range 1001 {
		n := fmt.Sprintf("s%04d", i)
		s.views[n] = shard.View{Row: shard.Row{Name: n}}
	}
	runs(t, s, func(d *catalog.Catalog) {
		if got := len(d.Shards()); got != 1001 {
			t.Fatalf("%d shards", got)
		}
		s.do("", func() {
			delete(s.views, "s0199")
			delete(s.views, "s0200")
			delete(s.views, "s1000")
			delete(s.views, "s0000")
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := len(d.Shards()); got != 997 {
			t.Errorf("%d shards", got)
		}
	})
}

// endless has more shards than a catalog keeps.
type endless struct{ *shelf }

func (endless) List(_ context.Context, after string, limit int) ([]shard.View, error) {
	n, _ := strconv.Atoi(after)
	out := make([]shard.View, limit)
	for i := range out {
		out[i].Row.Name = fmt.Sprintf("%06d", n+i+1)
	}
	return out, nil
}

// TestTooManyShards: those that are left out are warned of once, not in every round.
func TestTooManyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d, err := catalog.New(catalog.Config{Registry: endless{newShelf()}, Clock: bubbleClock{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || len(d.Shards()) != catalog.MaxShards {
			t.Errorf("%d warnings for %d shards:\n%.1000s", n, len(d.Shards()), log.String())
		}
	})
}

// TestCatalogWhileReading shows that a change need not wait for a long reading of all, which
// also rests longer than it works.
func TestCatalogWhileReading(t *testing.T) {
	s := newShelf()
	s.slow = 100 * time.Millisecond
	for i := range 1000 {
		n := fmt.Sprintf("s%04d", i)
		s.views[n] = shard.View{Row: shard.Row{Name: n}}
	}
	runs(t, s, func(d *catalog.Catalog) {
		time.Sleep(150 * time.Millisecond) // within the second page
		s.do("s0000", func() { s.views["s0000"] = shard.View{Row: shard.Row{Name: "s0000", Rev: 7}} })
		time.Sleep(60 * time.Millisecond)
		if v, _ := d.Shard("s0000"); v.Row.Rev != 7 {
			t.Errorf("rev %d after the second page", v.Row.Rev)
		}
		time.Sleep(time.Minute)
		if lists, _ := s.counts(); lists > 160 { // six pages when half of what is believed for 5 s has passed
			t.Errorf("%d pages in a minute, each of a tenth of a second", lists)
		}
	})
}

func TestCatalogWatch(t *testing.T) {
	for _, err := range []error{errors.ErrUnsupported, errors.New("broken")} {
		s := newShelf("a")
		s.watch = err
		runs(t, s, func(d *catalog.Catalog) {
			time.Sleep(time.Minute)
			if got := names(d); got != "a" {
				t.Errorf("%v: shards %q", err, got)
			}
		})
	}
	if _, err := catalog.New(catalog.Config{}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("no registry: %v", err)
	}
}

// A store that has no notifications, as behind a pooler, is asked again: seldom, but not never.
func TestCatalogWatchIsTriedAgain(t *testing.T) {
	s := newShelf("a")
	s.watch = errors.ErrUnsupported
	runs(t, s, func(*catalog.Catalog) {
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asked < 50 || s.asked > 61 {
			t.Errorf("asked %d times in an hour, want about once a minute", s.asked)
		}
	})
}
