package intake

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRejectedInputs(t *testing.T) {
	l := NewRejectedInputs(3)
	body := []byte(strings.Repeat("x", 5000))
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 7 {
		l.Add(RejectedInput{At: begun.Add(time.Duration(i) * time.Second), Cause: Kind, Detail: fmt.Sprint("kind ", i), Body: body})
		if i%3 == 0 {
			l.Add(RejectedInput{At: begun.Add(time.Duration(i) * time.Second), Cause: Syntax, Detail: fmt.Sprint("syntax ", i), Body: body[:2]})
		}
	}
	clear(body)
	var got []string
	for _, input := range l.List() {
		got = append(got, input.Detail)
		if n := len(input.Body); n != maxBody && n != 2 || input.Body[0] != 'x' {
			t.Errorf("%s: %d bytes, %q…", input.Detail, n, input.Body[:1])
		}
	}
	// Of one moment the order is open.
	want := []string{"kind 6", "syntax 6", "kind 5", "kind 4", "syntax 3", "syntax 0"}
	if got[0] != want[0] {
		got[0], got[1] = got[1], got[0]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"kind": 7, "syntax": 3}, l.Counts()); diff != "" {
		t.Error(diff)
	}
	var none *RejectedInputs
	none.Add(RejectedInput{})
	if len(none.List()) != 0 || len(none.Counts()) != 0 {
		t.Error("nil keeps inputs")
	}
}

func TestRejectedInputsFromMany(t *testing.T) {
	l := NewRejectedInputs(0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				l.Add(RejectedInput{At: time.Now(), Cause: []Cause{Kind, Syntax}[i%2], Body: []byte("{}")})
				if i%100 == 0 {
					l.List()
				}
			}
		})
	}
	wg.Wait()
	if got := l.Counts(); got["kind"] != 4000 || got["syntax"] != 4000 || len(l.List()) != 2*defaultRejected {
		t.Errorf("%v, %d kept", got, len(l.List()))
	}
}
