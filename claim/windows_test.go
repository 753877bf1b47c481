package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/testkit/script"
	"github.com/understudy-ha/understudy/lease"
)

func TestWindows(t *testing.T) {
	script.Table(t, "testdata/windows.txt", func() func(script.Words) string {
		return func(in script.Words) string {
			w := claim.Windows{First: in.Duration(t, "first"), Second: in.Duration(t, "second")}.WithDefaults()
			verdict := "ok"
			if err := w.Validate(in.Duration(t, "step")); err != nil {
				verdict = "unsafe"
				if !errors.Is(err, lease.ErrUnsafeTiming) {
					t.Errorf("%v is no ErrUnsafeTiming", err)
				}
			}
			if w.Timing().Timeout != w.First {
				t.Errorf("a session of %v for a first window of %v", w.Timing(), w.First)
			}
			idle, step := w.WorstTakeover()
			return fmt.Sprintf("first=%v second=%v every=%v %s idle=%v step=%v", w.First, w.Second, w.Timing().Interval, verdict, idle, step)
		}
	})
}

// TestWindowsAdvice: a refusal names windows that would do.
func TestWindowsAdvice(t *testing.T) {
	err := claim.Windows{First: 30 * time.Second, Second: time.Minute}.Validate(2 * time.Minute)
	if err == nil {
		t.Fatal("a step that outlasts the second window is allowed")
	}
	for _, want := range []string{"1m0s", "2m0s", "2m2s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestRowFree(t *testing.T) {
	for name, c := range map[string]struct {
		row  claim.Row
		want bool
	}{
		"nobody's":                           {claim.Row{}, true},
		"held":                               {claim.Row{Session: "s"}, false},
		"held, its step past the window":     {claim.Row{Session: "s", InStep: true, Hold: -1}, false},
		"lapsed":                             {claim.Row{Session: "s", Lapsed: true}, true},
		"lapsed in a step":                   {claim.Row{Session: "s", Lapsed: true, InStep: true, Hold: 1}, false},
		"lapsed in a step at the window":     {claim.Row{Session: "s", Lapsed: true, InStep: true}, true},
		"lapsed in a step past the window":   {claim.Row{Session: "s", Lapsed: true, InStep: true, Hold: -1}, true},
		"lapsed and interrupted, in no step": {claim.Row{Session: "s", Lapsed: true, Interrupted: true}, true},
	} {
		if got := c.row.IsFree(); got != c.want {
			t.Errorf("%s: free is %t", name, got)
		}
	}
}
