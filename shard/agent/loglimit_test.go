package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// bubbleClock is the clock of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() time.Duration { return time.Since(c.start) }

func (c bubbleClock) Wall() time.Time { return time.Now() }

func (c bubbleClock) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// unclosable is a node whose fence cannot be closed as long as fail says so.
type unclosable struct {
	shard.Engine
	fail func() error
}

func (n unclosable) SetFence(context.Context, shard.Fence, int) error { return n.fail() }

// A fence that cannot be closed for a minute is tried often, and told rarely.
func TestFenceLogsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncbuffer.Buffer
		clock := bubbleClock{time.Now()}
		var tries atomic.Int64
		var err atomic.Value
		set := func(e error) { err.Store(&e) }
		g := &fence{clock: clock, trust: newTrust(clock), callTimeout: 500 * time.Millisecond, log: slog.New(slog.NewTextHandler(&log, nil)),
			onHung: func() {}, onTrustEnd: func() {}, wake: make(chan struct{}, 1), acknowledged: make(chan struct{})}
		g.engine = unclosable{fail: func() error {
			e := *err.Load().(*error)
			if n := tries.Add(1); e != nil {
				return fmt.Errorf("%w, as from port %d", e, 40000+n)
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.run(ctx) }()
		told := func(what string) int { return strings.Count(log.String(), what) }

		set(context.DeadlineExceeded)
		g.requestClose()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := told("could not be closed"); tries.Load() < 60 || n < 3 || n > 7 {
			t.Errorf("told %d times of %d tries in a minute", n, tries.Load())
		}
		before := told("could not be closed")
		set(shard.ErrNodeAccess)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := told("could not be closed"); n != before+1 {
			t.Errorf("a trouble of another kind was told %d times", n-before)
		}
		set(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if told("fence is closed now") != 1 || g.isClosing() {
			t.Errorf("its end was not told once:\n%s", log.String())
		}
		cancel()
		<-done
	})
}

// The timing that a refusal names is taken.
func TestConfigNamesSafeTiming(t *testing.T) {
	for _, timing := range []lease.Timing{
		{Interval: time.Second, Timeout: 3 * time.Second},
		{Interval: time.Second, Timeout: 3740 * time.Millisecond},
		{Interval: 11 * time.Millisecond, Timeout: 20 * time.Millisecond},
		{Interval: 333333333, Timeout: time.Second},
		{Interval: time.Hour, Timeout: time.Second},
	} {
		err := Config{Timing: timing}.validateTiming("I", "T")
		if !errors.Is(err, lease.ErrUnsafeTiming) {
			t.Errorf("%v: %v", timing, err)
			continue
		}
		_, safe, _ := strings.Cut(err.Error(), "safe are ")
		for one := range strings.SplitSeq(safe, ", or ") {
			what, value, _ := strings.Cut(one, " ")
			d, err := time.ParseDuration(value)
			next := timing
			switch what {
			case "T":
				next.Timeout = d
			case "I":
				next.Interval = d
			}
			if err == nil {
				err = Config{Timing: next}.validateTiming("I", "T")
			}
			if err != nil || next == timing {
				t.Errorf("%v: %q is named as safe, and refused: %v", timing, one, err)
			}
		}
	}
	for _, timing := range []lease.Timing{{Interval: 1, Timeout: 1}, {Interval: 8 * time.Hour, Timeout: 24 * time.Hour}} {
		if err := (Config{Timing: timing}).validateTiming("I", "T"); !errors.Is(err, lease.ErrUnsafeTiming) || strings.Contains(err.Error(), "safe are") {
			t.Errorf("%v, for which there is no safe one: %v", timing, err)
		}
	}
}
