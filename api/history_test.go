package api

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
)

// Events of queues and tokens are stored under the parts that earlier versions write. Readers see, and ask for, queue and token.
func TestHistoryNamesParts(t *testing.T) {
	events := []history.Event{
		{Part: "batch", Subject: "orders/a", Reason: "blocked"}, {Part: "role", Subject: "web"}, {Part: "access", Subject: "ci", Reason: "made"},
	}
	t.Run("read", func(t *testing.T) {
		g := newQueueRig(t)
		for _, e := range events {
			if err := g.store.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for query, want := range map[string][]string{
			"": {"queue", "role", "token"}, "?part=role": {"role"}, "?part=queue": {"queue"}, "?part=token": {"token"},
			"?part=batch": {"queue"}, "?part=access": {"token"},
		} {
			var got []string
			var answer apitype.Events
			g.do("GET", "/v1/history"+query, "").into(&answer)
			for _, e := range answer.Events {
				got = append(got, e.Part)
			}
			if !slices.Equal(slices.Compact(got), want) {
				t.Errorf("%q: %v, want %v", query, got, want)
			}
		}
	})
	t.Run("stream", func(t *testing.T) {
		g := newWire(t, nil)
		for query, want := range map[string]string{"?part=queue": "queue", "?part=batch": "queue", "?part=token": "token"} {
			live, leave := g.open(query, "")
			replayed, leaveToo := g.open(query+"&after=0", "")
			for _, e := range events {
				if err := g.store.Append(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			for how, c := range map[string]<-chan frame{"live": live, "replayed": replayed} {
				var e apitype.Event
				if err := json.Unmarshal([]byte(next(t, c).data), &e); err != nil || e.Part != want {
					t.Errorf("%s, %s: %+v, %v", query, how, e, err)
				}
			}
			leave()
			leaveToo()
		}
	})
	t.Run("overview", func(t *testing.T) {
		for i := range events {
			events[i].At = time.Now()
		}
		var got []string
		for _, c := range groupChanges(events, time.Now().Add(-time.Hour)).Groups {
			got = append(got, c.Part)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"queue", "role", "token"}) {
			t.Errorf("groups of %v", got)
		}
	})
}
