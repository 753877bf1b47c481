package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
)

func TestMonitorConformance(t *testing.T) {
	ways(t, func(t *testing.T, empty func(*testing.T) freshStore) {
		monitortest.Run(t, func(t *testing.T) monitortest.Rig { return monitorRig(t, empty(t)) })
	})
}

// monitorRig is an empty store.
func monitorRig(t *testing.T, f freshStore) monitortest.Rig {
	s := f.open(t)
	return monitortest.Rig{
		Table: s.Monitor(), Sessions: s, History: s,
		Open: func(t *testing.T) monitor.Store { return f.open(t).Monitor() },
		Step: f.step,
		Sent: func(t *testing.T, sink string) []monitor.Notification { return noticesOf(t, s.QueueAdmin(), sink) },
		View: func(t *testing.T, name string) ([]string, [][]string) {
			return view(t, f.direct, "s1."+name)
		},
	}
}

// TestSinkAfterInterruptedRemoval: the queue of a sink that is configured again is empty, also if a removal was cut short.
func TestSinkAfterInterruptedRemoval(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	s := open(t, url)
	me := start(t, s, "a", time.Hour)
	queue := monitor.SinkQueue("hook")
	add := func(ids ...string) {
		t.Helper()
		var all []dispatch.Message
		for _, id := range ids {
			all = append(all, dispatch.Message{Queue: queue, Key: "k", ID: id})
		}
		if _, err := s.QueueAdmin().Add(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	register := func(sinks ...string) {
		t.Helper()
		if err := s.Monitor().RegisterMember(t.Context(), monitor.Member{Session: me.ID, Instance: me.Instance, Sinks: sinks}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.QueueAdmin().CreateQueue(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	add("a", "b", "c")
	exec(t, url, "DELETE FROM understudy.queue") // as far as a removal gets that is cut short at once
	register("hook")
	if left, err := s.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: queue}); err != nil || len(left) != 0 {
		t.Errorf("messages that were removed: %+v, %v", left, err)
	}
	add("d")
	register("hook", "mail") // what is in a queue stays in it
	held, err := s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space(queue), Session: me.ID, Limit: 10, Fresh: 10})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: queue, Session: me.ID, Begin: held, Window: time.Minute})
	if err != nil || len(x.Begun) != 1 || x.Begun[0].Seq != 1 || x.Begun[0].ID != "d" {
		t.Errorf("Exchange = %+v, %v; want the first message", x.Begun, err)
	}
}

// noticesOf reads what was enqueued for a sink, key by key.
func noticesOf(t *testing.T, d dispatch.Admin, sink string) (out []monitor.Notification) {
	t.Helper()
	q := dispatch.MessageQuery{Queue: monitor.SinkQueue(sink)}
	for {
		page, err := d.Messages(t.Context(), q)
		if err != nil {
			t.Fatalf("the queue of %s: %v", sink, err)
		}
		for _, r := range page {
			b, err := d.Message(t.Context(), r.Queue, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, monitor.Notification{Sink: sink, Key: b.Key, ID: b.ID, Payload: b.Payload})
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
		}
		if len(page) < dispatch.MaxPage {
			return out
		}
	}
}

// view reads all of a view as text.
func view(t *testing.T, url, name string) (columns []string, out [][]string) {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(), "SELECT * FROM "+name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rows.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	out, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) ([]string, error) {
		values, err := r.Values()
		texts := make([]string, len(values))
		for i, v := range values {
			if v != nil {
				texts[i] = fmt.Sprint(v)
			}
		}
		return texts, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return columns, out
}
