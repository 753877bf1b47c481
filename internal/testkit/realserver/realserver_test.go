package realserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/testkit/recorder"
)

func TestNeedRoot(t *testing.T) {
	for _, c := range []struct {
		name, prove string
		user        int
		want        []string
	}{
		{"root", "1", 0, []string{"it went on"}},
		{"a user", "", 1000, nil}, // skipped
		{"a user in make prove", "1", 1000, []string{"a mount needs root and UNDERSTUDY_PROVE=1: run it as root"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(proveEnv, c.prove)
			got := recorder.Found(t, func(tb testing.TB) {
				needRoot(tb, "a mount", c.user)
				tb.Error("it went on")
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
