package lease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/script"
	"github.com/understudy-ha/understudy/lease"
)

func TestTakeoverPolicyScript(t *testing.T) {
	const T = 5 * time.Second
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	script.Table(t, "testdata/patience.txt", func() func(script.Words) string {
		var p lease.TakeoverPolicy
		return func(w script.Words) string {
			at := w.Duration(t, "at")
			if w.Has("claim") {
				if _, waited := p.Expectation(at); waited {
					return "waited"
				}
				return "not waited"
			}
			l := lease.Lease{Session: w["session"], Remaining: w.Duration(t, "left"), Reserved: w.Duration(t, "reserved")}
			fmt.Sscan(w["term"], &l.Term)
			fmt.Sscan(w["seq"], &l.Seq)
			if l.Session != "" {
				l.Timing.Timeout = T
			}
			if w.Has("T") {
				l.Timing.Timeout = w.Duration(t, "T")
			}
			l.Ended, l.Foreign = w.Has("ended"), w.Has("foreign")
			l.Since, l.Age = begin, w.Duration(t, "clock")
			p.Observe(l, at, w.Has("for-other"), T)
			got := "due=" + p.Due().String()
			if p.IsUncertain() {
				got += " unsure"
			}
			return got
		}
	})
}

func TestTiming(t *testing.T) {
	script.Table(t, "testdata/timing.txt", func() func(script.Words) string {
		return func(w script.Words) string {
			timing := lease.Timing{Interval: w.Duration(t, "I"), Timeout: w.Duration(t, "T")}.WithDefaults()
			grace := w.Duration(t, "grace")
			got := fmt.Sprintf("I=%v T=%v grace=%v ", timing.Interval, timing.Timeout, grace)
			err := timing.Validate(grace)
			if err == nil {
				return got + "ok"
			}
			if !errors.Is(err, lease.ErrUnsafeTiming) {
				t.Errorf("%v is no ErrUnsafeTiming", err)
			}
			if _, better, ok := strings.Cut(err.Error(), "with T = "); ok {
				return got + "unsafe, try T=" + strings.Fields(better)[0]
			}
			return got + "unsafe"
		}
	})
}

func TestTimingArithmetic(t *testing.T) {
	d := lease.Timing{}.WithDefaults()
	if got := d.WorstTakeover(); got != 6*time.Second {
		t.Errorf("the worst takeover is %v, want T + I", got)
	}
	if got := d.CallTimeout(); got != 2*time.Second {
		t.Errorf("a call may take %v; two must fit into T-I", got)
	}
	if got := (lease.Timing{Interval: time.Second, Timeout: 2100 * time.Millisecond}).CallTimeout(); got != time.Second {
		t.Errorf("a call may take %v, want at least I", got)
	}
	// A holder whose clock is slow by the tolerance stops before a contender
	// whose clock is fast by it has counted T.
	for _, timing := range []lease.Timing{d, {Interval: time.Second, Timeout: 2001 * time.Millisecond}, {Interval: time.Second, Timeout: time.Hour}} {
		e := timing.RateTolerance()
		trust := float64(timing.Timeout-timing.Interval) / (1 - e)
		patience := float64(timing.Timeout) * (1 - 2*e) / (1 + e)
		if trust > patience {
			t.Errorf("%+v: trust lasts %v, patience %v", timing, time.Duration(trust), time.Duration(patience))
		}
	}
}

func TestTrust(t *testing.T) {
	var never lease.Trust
	if never.Remaining(0) != 0 {
		t.Error("the zero trust is valid")
	}
	trust := lease.NewTrust(10*time.Second, lease.Timing{Interval: time.Second, Timeout: 5 * time.Second})
	for now, want := range map[time.Duration]time.Duration{
		10 * time.Second: 4 * time.Second, 13 * time.Second: time.Second,
		14 * time.Second: 0, time.Hour: 0,
	} {
		if got := trust.Remaining(now); got != want {
			t.Errorf("at %v, %v remains, want %v", now, got, want)
		}
	}
}
