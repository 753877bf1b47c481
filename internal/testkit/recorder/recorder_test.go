package recorder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFound(t *testing.T) {
	for _, c := range []struct {
		what  string
		check func(testing.TB)
		want  []string
	}{
		{"nothing", func(t testing.TB) { t.Helper(); t.Log("well") }, nil},
		{"many things", func(t testing.TB) { t.Error("one", 1); t.Errorf("%d", 2); t.Fail() }, []string{"one1", "2", "failed"}},
		{"what ends it", func(t testing.TB) { t.Fatal("one", 1); t.Error("more") }, []string{"one1"}},
		{"what ends it, formatted", func(t testing.TB) { t.Fatalf("%d", 1); t.Error("more") }, []string{"1"}},
		{"an end without a word", func(t testing.TB) { t.FailNow(); t.Error("more") }, []string{"failed"}},
		{"a skip", func(t testing.TB) { t.Skip("why"); t.Error("more") }, nil},
		{"a skip, formatted", func(t testing.TB) { t.Skipf("why"); t.Error("more") }, nil},
		{"a skip without a word", func(t testing.TB) { t.SkipNow(); t.Error("more") }, nil},
		{"a panic", func(t testing.TB) { t.Error("before"); panic("why") }, []string{"before", "panic: why"}},
		{"what went before", func(t testing.TB) {
			if t.Error("one"); t.Failed() {
				t.Error("failed by then")
			}
		}, []string{"one", "failed by then"}},
	} {
		if diff := cmp.Diff(c.want, Found(t, c.check)); diff != "" {
			t.Errorf("%s (-want +found):\n%s", c.what, diff)
		}
	}
}
