package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// bubbleClock is the boot clock of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.start) + time.Hour }
func (c bubbleClock) Wall() time.Time    { return time.Now() }
func (c bubbleClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// fetchBench is fetches with an origin that says when it runs, in a bubble.
type fetchBench struct {
	*fetches
	mu      sync.Mutex
	results []protocol.Fetched
	causes  map[string]error // of the end of each key's context
	running []string
	most    int  // calls at a time
	twice   bool // two of one key
}

// newFetchBench has an origin that takes as long as its key says, and returns when
// its context ends, unless the key says that it is stubborn.
func newFetchBench(limit int) *fetchBench {
	b := &fetchBench{causes: map[string]error{}}
	cfg := Config{Fetches: limit, Clock: bubbleClock{time.Now()}, Origin: b.source}.withDefaults()
	b.fetches = newFetches(cfg, &counters{}, func(f protocol.Fetched) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results = append(b.results, f)
	})
	return b
}

func (b *fetchBench) source(ctx context.Context, f Fetch) (Value, error) {
	b.mu.Lock()
	if slices.Contains(b.running, f.Key) {
		b.twice = true
	}
	b.running = append(b.running, f.Key)
	b.most = max(b.most, len(b.running))
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running = slices.DeleteFunc(b.running, func(k string) bool { return k == f.Key })
		b.causes[f.Key] = context.Cause(ctx)
	}()
	kind, rest, _ := strings.Cut(f.Key, " ")
	took, _ := time.ParseDuration(strings.Fields(rest + " 0s")[0])
	if kind == "panic" {
		panic("no")
	}
	if kind == "stubborn" {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return Value{}, ctx.Err()
	}
	switch kind {
	case "fails":
		return Value{}, errors.New("it fails")
	case "large":
		return Value{Data: make([]byte, 17<<20)}, nil
	case "later":
		return Value{}, fmt.Errorf("busy: %w", &RetryAfter{time.Minute, errors.New("come later")})
	case "missing":
		return Value{}, fmt.Errorf("looked twice: %w", ErrNotFound)
	}
	return Value{Data: []byte("value"), TTL: time.Minute}, nil
}

func (b *fetchBench) in(d time.Duration) time.Duration { return b.clock.Now() + d }

func (b *fetchBench) begin(key string, until time.Duration) {
	b.start(protocol.StartFetch{Key: key, Term: 1, Until: b.in(until), Deadline: b.in(time.Minute)}, nil)
}

func (b *fetchBench) outcome() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.results {
		out = append(out, strings.Fields(f.Key)[0]+": "+string(f.Value)+f.Err)
	}
	return out
}

func (b *fetchBench) cause(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.causes[key]
}

func (b *fetchBench) want(t *testing.T, want ...string) {
	t.Helper()
	if got := b.outcome(); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestFetchOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(64)
		for _, key := range []string{"ok 1s", "fails 2s", "large 3s", "later 4s", "missing 5s", "panic"} {
			b.begin(key, time.Minute)
		}
		time.Sleep(10 * time.Second)
		b.want(t, "panic: the origin panicked: no", "ok: value", "fails: it fails",
			"large: cache: too large: the origin returned 17825792 bytes; at most 16777216 may be",
			"later: busy: come later", "missing: cache: the origin has no such key: looked twice")
		if got := b.results[4].Wait; got != time.Minute {
			t.Errorf("to be asked again after %v", got)
		}
		if got := b.results[1].TTL; got != time.Minute {
			t.Errorf("TTL %v", got)
		}
	})
}

// A call ends at the time that the last Trust set, by its own timer: nobody else
// does anything here. The machine is told, for it may have heard of a promise just
// before, and think that the call continues.
func TestFetchEndsWithItsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(64)
		b.begin("kept 5s", 2*time.Second)
		b.begin("lost 5s", 2*time.Second)
		b.begin("shortened 5s", 2*time.Second)
		time.Sleep(time.Second)
		b.trust(protocol.Trust{Key: "kept 5s", Term: 1, Until: b.in(6 * time.Second)})
		b.trust(protocol.Trust{Key: "lost 5s", Term: 2, Until: b.in(6 * time.Second)}) // of another call
		b.trust(protocol.Trust{Key: "shortened 5s", Term: 1, Until: b.in(100 * time.Millisecond)})
		time.Sleep(200 * time.Millisecond)
		if cause := b.cause("shortened 5s"); !errors.Is(cause, errTrustEnded) {
			t.Errorf("shortened: %v", cause)
		}
		if b.cause("lost 5s") != nil {
			t.Error("ended before its time")
		}
		time.Sleep(900 * time.Millisecond)
		if cause := b.cause("lost 5s"); !errors.Is(cause, errTrustEnded) {
			t.Errorf("lost: %v", cause)
		}
		b.trust(protocol.Trust{Key: "lost 5s", Term: 1, Until: b.in(6 * time.Second)}) // too late
		b.begin("late 1s", 0)
		time.Sleep(time.Minute)
		b.want(t, "shortened: "+errTrustEnded.Error(), "lost: "+errTrustEnded.Error(), "late: "+errTrustEnded.Error(), "kept: value")
		for _, f := range b.results {
			if f.TrustEnded != (f.Err != "") || f.Stopped {
				t.Errorf("%s is reported as %+v", f.Key, f)
			}
		}
	})
}

func TestFetchDeadlineIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(64)
		b.begin("slow 5m", time.Minute)
		// Decided a while ago, and held for the disk until now.
		b.start(protocol.StartFetch{Key: "held 5m", Term: 1, Until: b.in(50 * time.Second), Deadline: b.in(50 * time.Second)}, nil)
		b.start(protocol.StartFetch{Key: "expired 5m", Term: 1, Until: b.in(0), Deadline: b.in(0)}, nil)
		time.Sleep(2 * time.Minute)
		for _, key := range []string{"slow 5m", "held 5m"} {
			if cause := b.cause(key); !errors.Is(cause, errDeadline) {
				t.Errorf("%s ended with %v", key, cause)
			}
		}
		b.want(t, "expired: "+errDeadline.Error(), "held: "+errDeadline.Error(), "slow: "+errDeadline.Error())
	})
}

// A value that comes after its time does not count, even when no timer has said so.
func TestFetchTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(64)
		b.begin("stubborn 3s", 2*time.Second)
		b.begin("stubborn 4s", 2*time.Second)
		b.fetches.mu.Lock()
		for _, list := range b.calls {
			list[0].timer.Stop() // as late as a timer can be
		}
		b.fetches.mu.Unlock()
		time.Sleep(10 * time.Second)
		b.want(t, "stubborn: "+errTrustEnded.Error(), "stubborn: "+errTrustEnded.Error())
	})
}

func TestFetchAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(1)
		b.begin("first 5s", time.Minute)
		b.begin("waits 5s", time.Minute)
		b.begin("third 1s", time.Minute)
		time.Sleep(time.Second)
		b.abort(protocol.Abort{Key: "waits 5s", Term: 1, Why: "not wanted"})
		b.abort(protocol.Abort{Key: "first 5s", Term: 7, Why: "of another term"})
		b.abort(protocol.Abort{Key: "first 5s", Term: 1, Why: "because"})
		synctest.Wait()
		if cause := b.cause("first 5s"); cause == nil || !strings.Contains(cause.Error(), "because") {
			t.Errorf("ended with %v", cause)
		}
		time.Sleep(time.Minute)
		b.want(t, "third: value")
		if len(b.calls) != 0 || len(b.waiting.order) != 0 || b.fetches.running != 0 {
			t.Errorf("left behind: %d calls, %d waiting, %d running", len(b.calls), len(b.waiting.order), b.fetches.running)
		}
	})
}

// TestFetchExpiresInTheQueue: calls that end while they wait for a place, as when the origin hangs in all places, leave
// nothing behind, and those behind them still start.
func TestFetchExpiresInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(1)
		b.begin("stubborn 10m", time.Second)
		synctest.Wait()
		for i := range 20 {
			b.start(protocol.StartFetch{Key: fmt.Sprintf("waits 1s %d", i), Term: 1, Until: b.in(time.Second)}, i%3)
		}
		b.start(protocol.StartFetch{Key: "lasts 1s", Term: 1, Until: b.in(time.Hour), Deadline: b.in(time.Hour)}, 0)
		time.Sleep(time.Minute)
		b.fetches.mu.Lock()
		queued := 0
		for _, calls := range b.waiting.calls {
			queued += len(calls)
		}
		if queued != 1 || len(b.waiting.order) != 1 || len(b.calls) != 2 {
			t.Errorf("%d calls of %d clients wait; %d keys", queued, len(b.waiting.order), len(b.calls))
		}
		b.fetches.mu.Unlock()
		time.Sleep(time.Hour)
		if got := b.outcome(); got[len(got)-1] != "lasts: value" {
			t.Errorf("at the end %q", got)
		}
	})
}

func TestFetchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(3)
		for i := range 20 {
			b.begin(fmt.Sprintf("ok 1s %d", i), time.Minute)
		}
		time.Sleep(30 * time.Second)
		if n := len(b.outcome()); n != 20 || b.most != 3 {
			t.Errorf("%d results, %d calls at a time, want 20 and 3", n, b.most)
		}
	})
}

// A new call of a key waits for the old one, which does not obey its context.
func TestFetchNeverTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(64)
		b.begin("stubborn 5s", time.Minute)
		synctest.Wait()
		b.abort(protocol.Abort{Key: "stubborn 5s", Term: 1, Why: "another fetches"})
		b.start(protocol.StartFetch{Key: "stubborn 5s", Term: 2, Until: b.in(time.Minute)}, nil)
		b.begin("other 1s", time.Minute)
		time.Sleep(9 * time.Second)
		b.want(t, "other: value")
		time.Sleep(2 * time.Second)
		b.want(t, "other: value", "stubborn: value")
		if b.twice {
			t.Error("two calls of one key at a time")
		}
		if term := b.results[1].Term; term != 2 {
			t.Errorf("the value of term %d was reported", term)
		}
	})
}

func TestFetchesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(1)
		b.begin("first 5m", time.Hour)
		b.begin("second 5m", time.Hour)
		synctest.Wait()
		if !b.stop(time.Second) {
			t.Error("not over")
		}
		b.begin("third 1s", time.Hour)
		time.Sleep(time.Hour)
		if cause := b.cause("first 5m"); !errors.Is(cause, errStopping) {
			t.Errorf("ended with %v", cause)
		}
		// The machine counts on them all, in whatever order it hears so.
		slices.SortFunc(b.results, func(x, y protocol.Fetched) int { return strings.Compare(x.Key, y.Key) })
		b.want(t, "first: "+errStopping.Error(), "second: "+errStopping.Error(), "third: "+errStopping.Error())
	})
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(1)
		b.begin("stubborn 5m", time.Hour)
		synctest.Wait()
		if b.stop(time.Second) {
			t.Error("over, although the origin runs")
		}
		b.want(t) // others must not make the call before it has returned
		time.Sleep(time.Hour)
		b.want(t, "stubborn: value") // nobody has to make it again
	})
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(2)
		b.begin("runs 5m", time.Hour)
		b.begin("fails 1ms", time.Hour)
		time.Sleep(time.Millisecond / 2)
		b.stop(time.Second)
		time.Sleep(time.Hour)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.results {
			if !f.Stopped {
				t.Errorf("%s is reported as a failure of the origin: %s", f.Key, f.Err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newFetchBench(3)
		b.report = func(protocol.Fetched) { time.Sleep(time.Hour) } // the loop waits for the disk
		b.begin("ok 1s", time.Minute)
		b.begin("expires 5m", 2*time.Second)
		b.begin("runs 5m", time.Minute)
		b.begin("waits 5m", time.Minute)
		time.Sleep(3 * time.Second)
		if !b.stop(10 * time.Second) {
			t.Error("not over, although the origin has returned")
		}
		time.Sleep(time.Hour)
	})
}

func TestFailureText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{errors.New(""), "an error without a text"},
		{errors.New("a\xffb"), "a�b"},
		{ErrNotFound, ErrNotFound.Error()},
	} {
		if got := failureText(c.err); got != c.want {
			t.Errorf("%q became %q, want %q", c.err, got, c.want)
		}
	}
	long := failureText(errors.New("a" + strings.Repeat("é", 300)))
	if len(long) > maxText || !utf8.ValidString(long) || len(long) < maxText-3 {
		t.Errorf("%d bytes: %q", len(long), long)
	}
	f := &Failure{Text: failureText(fmt.Errorf("no row: %w", ErrNotFound))}
	if !errors.Is(f, ErrFailed) || !errors.Is(f, ErrNotFound) {
		t.Errorf("%v is not known as what it is", f)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("it fails"), "cache: the origin failed: it fails"},
		{fmt.Errorf("%w: 17 bytes", ErrTooLarge), "cache: the origin failed: too large: 17 bytes"},
		{ErrNotFound, "cache: the origin has no such key"},
		{fmt.Errorf("no row: %w", ErrNotFound), "cache: the origin has no such key: no row"},
		{fmt.Errorf("origin: sh: %w: no such", ErrNotFound), "cache: the origin has no such key: origin: sh: no such"},
	} {
		if got := (&Failure{Text: failureText(c.err)}).Error(); got != c.want {
			t.Errorf("%q is told as %q, want %q", c.err, got, c.want)
		}
	}
	if errors.Is(&Failure{Text: "other"}, ErrNotFound) {
		t.Error("any failure is taken for a missing key")
	}
}
