package strictyaml

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"interval", "intervall", 1}, {"missed", "mised", 1}, {"ab", "ba", 1}, {"ulr", "url", 1}, {"grace", "schedule", 7}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
