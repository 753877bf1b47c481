package monitor

import "testing"

// Callers that leave take no room in the queue, however many come and go while nothing is taken out.
func TestQueueOfThoseWhoLeave(t *testing.T) {
	q := queue{arrived: make(chan struct{}, 1), room: 10}
	push := func(source string) *call {
		c := &call{beats: []Heartbeat{{Source: source}}}
		if err := q.push(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	push("first")
	for n := range 10_000 {
		if n == 5000 {
			push("second")
		}
		if c := push("leaves"); !q.abandon(c) || c.beats != nil {
			t.Fatal("a call that waited was not taken out")
		}
		if len(q.calls) > 10 {
			t.Fatalf("%d calls are in the queue after %d have left", len(q.calls), n+1)
		}
	}
	if n := q.waiting(); n != 2 {
		t.Errorf("%d beats wait", n)
	}
	for _, want := range []string{"first", "second"} {
		if p, ok := q.pop(10); !ok || p.beats[0].Source != want {
			t.Fatalf("%v, %v instead of the %s", p, ok, want)
		}
	}
	if p, ok := q.pop(10); ok || q.gone != 0 {
		t.Errorf("at the end there is %v, and %d have left", p, q.gone)
	}
}
