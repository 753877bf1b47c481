package recorder

import (
	"slices"
	"testing"
	"testing/synctest"
)

// Catches proves a suite: run puts each twin, which is broken, through the topic that by names, which must find something.
// Each of topics must be needed by a twin; nil: they are not known. Each twin has a bubble: where it pauses, all others
// continue until they wait, so that what breaks only when two calls meet breaks each time.
func Catches[Twin any](t *testing.T, topics []string, twins map[string]Twin, by func(Twin) string, run func(t *testing.T, r testing.TB, broken Twin)) {
	needed := map[string]bool{}
	for name, broken := range twins {
		topic := by(broken)
		if needed[topic] = true; topics != nil && !slices.Contains(topics, topic) {
			t.Fatalf("no topic is called %q", topic)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []string
			synctest.Test(t, func(t *testing.T) { found = Found(t, func(r testing.TB) { run(t, r, broken) }) })
			if found == nil {
				t.Fatalf("not caught by %q", topic)
			}
			t.Logf("caught: %.300s", found[0])
		})
	}
	for _, topic := range topics {
		if !needed[topic] {
			t.Errorf("nothing that is broken proves the topic %q", topic)
		}
	}
}
