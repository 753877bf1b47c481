package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// TestLedgerViews: programs that read the tables of Grid find what they look for.
func TestLedgerViews(t *testing.T) {
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	if _, err := l.QueueAdmin().Add(t.Context(), []dispatch.Message{
		{Queue: jobs, Key: "abcde-12345::a001", ID: "1", Payload: []byte("one")}, {Queue: jobs, Key: "----", ID: "2", Payload: []byte("two")},
		{Queue: jobs, Key: "----", ID: "3"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, a := range l.turn(nil, l.take(10)).Begun {
		if a.ID == "1" {
			l.turn([]dispatch.Result{{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: 1}}, nil)
		}
	}
	columns, rows := view(t, l.path, "(SELECT * FROM batches ORDER BY batch_id)")
	if diff := cmp.Diff([]string{"service_id", "batch_id", "data_change_id", "signer_public_key", "trace", "serialized_batch", "submitted", "created_at"}, columns); diff != "" {
		t.Error(diff)
	}
	var got [][]string
	for _, r := range rows {
		got = append(got, []string{r[0], r[1], r[5], r[6]})
	}
	if diff := cmp.Diff([][]string{{"abcde-12345::a001", "1", "one", "1"}, {"----", "2", "two", "1"}, {"----", "3", "", "0"}}, got); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if _, rows := view(t, l.path, "(SELECT service_id, batch_id, dlt_status FROM batch_statuses)"); len(rows) != 1 || rows[0][1] != "1" || rows[0][2] != "Committed" {
		t.Errorf("batch_statuses: %v", rows)
	}
	if _, rows := view(t, l.path, "(SELECT service_id, claimant FROM service_id_claims WHERE claimant <> '')"); len(rows) != 1 || rows[0][0] != "----" || rows[0][1] != l.me.Instance.ID {
		t.Errorf("service_id_claims: %v", rows)
	}
}
