package lease_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// script replays a file: sections that start with "--" and a name, lines of an
// input and what must come of it, divided by "->". A word of the input is a flag
// or key=value. begin is called for each section.
func script(t *testing.T, file string, begin func() (step func(words map[string]string) string)) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var step func(map[string]string) string
	name, lines := "", 0
	for n, line := range strings.Split(string(text), "\n") {
		if section, ok := strings.CutPrefix(line, "--"); ok {
			name, step = strings.TrimSpace(section), begin()
			continue
		}
		input, want, ok := strings.Cut(line, "->")
		if !ok {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				t.Errorf("%s:%d: no result: %q", file, n+1, line)
			}
			continue
		}
		words := map[string]string{}
		for w := range strings.FieldsSeq(input) {
			key, value, _ := strings.Cut(w, "=")
			words[key] = value
		}
		lines++
		if got := step(words); got != strings.TrimSpace(want) {
			t.Errorf("%s:%d: %s:\n %s\n  is %q", file, n+1, name, line, got)
		}
	}
	if lines == 0 {
		t.Errorf("%s: nothing in it", file)
	}
}

func TestPatience(t *testing.T) {
	const T = 5 * time.Second
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	script(t, "testdata/patience.txt", func() func(map[string]string) string {
		var p lease.TakeoverPolicy
		return func(w map[string]string) string {
			at := duration(t, w["at"])
			if _, claim := w["claim"]; claim {
				if _, waited := p.Expectation(at); waited {
					return "waited"
				}
				return "not waited"
			}
			l := lease.Lease{Session: w["session"], Remaining: duration(t, w["left"]), Reserved: duration(t, w["reserved"])}
			fmt.Sscan(w["term"], &l.Term)
			fmt.Sscan(w["seq"], &l.Seq)
			if l.Session != "" {
				l.Timing.Timeout = T
			}
			if other, ok := w["T"]; ok {
				l.Timing.Timeout = duration(t, other)
			}
			_, l.Ended = w["ended"]
			_, l.Foreign = w["foreign"]
			l.Since, l.Age = begin, duration(t, w["clock"])
			_, reserved := w["for-other"]
			p.Observe(l, at, reserved, T)
			got := "due=" + p.Due().String()
			if p.IsUncertain() {
				got += " unsure"
			}
			return got
		}
	})
}

func duration(t *testing.T, s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTiming(t *testing.T) {
	script(t, "testdata/timing.txt", func() func(map[string]string) string {
		return func(w map[string]string) string {
			timing := lease.Timing{Interval: duration(t, w["I"]), Timeout: duration(t, w["T"])}.WithDefaults()
			grace := duration(t, w["grace"])
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
