package target

import (
	"testing"
	"time"
)

// TestSilence: a place is not waited for when it could not be searched for goneAfter, however often that was tried.
func TestSilence(t *testing.T) {
	var s silence
	at := time.Now()
	for _, step := range []struct {
		after    time.Duration
		searched bool
		want     bool
	}{
		{0, false, false},
		{time.Second, false, false},
		{goneAfter, false, true},
		{time.Minute, false, true},
		{time.Minute, true, false},
		{goneAfter, false, false},
		{2 * silenceForgotten, false, false},
		{time.Second, false, false},
	} {
		at = at.Add(step.after)
		if got := s.isGone(at, step.searched); got != step.want {
			t.Errorf("%+v: gone %t", step, got)
		}
	}
}
