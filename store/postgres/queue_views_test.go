package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestLedgerViews: programs that read the tables of Grid find what they look for.
func TestLedgerViews(t *testing.T) {
	url, s, me := workplace(t, realserver.Postgres(t, realserver.PostgresOptions{}))
	if _, err := s.QueueAdmin().Add(t.Context(), []dispatch.Message{
		{Queue: work, Key: "abcde-12345::a001", ID: "1", Payload: []byte("one")}, {Queue: work, Key: "----", ID: "2", Payload: []byte("two")},
		{Queue: work, Key: "----", ID: "3"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range takeKeys(t, s, me.ID) {
		if c.Key != "----" {
			if _, err := deliver(t, s, me.ID, c); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: work, Session: me.ID, Begin: []claim.Claim{c}}); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, url)
	read := func(sql string) (out []string) {
		t.Helper()
		rows, err := conn.Query(t.Context(), sql)
		if err == nil {
			out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for sql, want := range map[string][]string{
		`SELECT concat_ws(' ', service_id, batch_id, convert_from(serialized_batch, 'UTF8'), submitted) FROM understudy.batches
			WHERE data_change_id IS NULL AND signer_public_key IS NULL AND NOT trace AND created_at > 1e9 ORDER BY batch_id`: {"abcde-12345::a001 1 one t", "---- 2 two t", "---- 3  f"},
		`SELECT concat_ws(' ', service_id, batch_id, dlt_status) FROM understudy.batch_statuses WHERE updated_at >= created_at`: {"abcde-12345::a001 1 Committed"},
		`SELECT concat_ws(' ', service_id, claimant) FROM understudy.service_id_claims WHERE expiry > now()`:                    {"---- " + me.Instance.ID},
	} {
		if diff := cmp.Diff(want, read(sql)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sql, diff)
		}
	}
}
