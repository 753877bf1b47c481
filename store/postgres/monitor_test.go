package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/dispatch"
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
