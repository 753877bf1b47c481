package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// TestEnqueueInSQL: what callers in other languages may do, and with which rights.
func TestEnqueueInSQL(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, me := workplace(t, server)
	exec(t, url, `CREATE ROLE app LOGIN; CREATE ROLE inserter LOGIN;
		GRANT USAGE ON SCHEMA understudy TO app, inserter;
		GRANT INSERT (queue, key, id, payload, content_type) ON understudy.batch TO inserter;
		GRANT USAGE ON SEQUENCE understudy.batch_n TO inserter;
		CREATE SCHEMA trap AUTHORIZATION app`)
	app := connect(t, strings.Replace(url, "postgres@", "app@", 1))
	inserter := connect(t, strings.Replace(url, "postgres@", "inserter@", 1))
	// What the application has in its path must not get the rights of the owner.
	if _, err := app.PgConn().Exec(t.Context(), `CREATE FUNCTION trap.now_owner(text) RETURNS text LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'trapped as %', current_user; END $$;
		CREATE FUNCTION trap.lower(text) RETURNS text LANGUAGE sql AS 'SELECT trap.now_owner($1)';
		CREATE FUNCTION trap.eq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT trap.now_owner($1) = ''''';
		CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.eq);
		SET search_path = trap, pg_catalog`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	one := func(conn *pgx.Conn, sql string, args ...any) *string {
		t.Helper()
		var id *string
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&id); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return id
	}
	if id := one(app, "SELECT understudy.enqueue('work', 'k', 'payload', id => 'mine')"); id == nil || *id != "mine" {
		t.Errorf("enqueue returned %v", id)
	}
	if id := one(app, "SELECT understudy.enqueue('work', 'k', 'other', 'mine')"); id != nil {
		t.Errorf("a duplicate returned %q", *id)
	}
	random := one(app, "SELECT understudy.enqueue('work', 'k', 'payload')")
	if random == nil || len(*random) != 32 {
		t.Errorf("without an id: %v", random)
	}
	if _, err := inserter.Exec(t.Context(), "INSERT INTO understudy.batch (queue, key, id, payload) VALUES ('work', 'k', 'plain', 'x'), ('work', 'j', 'plain too', 'y')"); err != nil {
		t.Errorf("a plain INSERT: %v", err)
	}
	if _, err := inserter.CopyFrom(t.Context(), pgx.Identifier{"understudy", "batch"}, []string{"queue", "key", "id", "payload"},
		pgx.CopyFromRows([][]any{{work, "k", "copied", []byte("x")}})); err != nil {
		t.Errorf("COPY: %v", err)
	}
	for what, sql := range map[string]string{
		"read":            "SELECT payload FROM understudy.batch",
		"choose a number": "INSERT INTO understudy.batch (queue, key, id, seq) VALUES ('work', 'k', 'first', 0)",
		"finish":          "UPDATE understudy.batch SET over = true",
		"change a claim":  "DELETE FROM understudy.claim",
	} {
		for _, conn := range []*pgx.Conn{app, inserter} {
			if _, err := conn.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "42501") {
				t.Errorf("a role that only enqueues may %s: %v", what, err)
			}
		}
	}
	var got []string
	for _, c := range takeKeys(t, s, me.ID) {
		for {
			id, err := deliver(t, s, me.ID, c)
			if err != nil || id == "" {
				break
			}
			got = append(got, c.Key+" "+strings.ReplaceAll(id, *random, "random"))
		}
	}
	if fmt.Sprint(got) != "[k mine k random k plain k copied j plain too]" {
		t.Errorf("delivered %q", got)
	}
}

func TestEnqueueRefuses(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, _ := workplace(t, server)
	conn := connect(t, url)
	tx := begin(t, conn)
	if _, err := postgres.Enqueue(t.Context(), tx, dispatch.Batch{Queue: "nowhere", Key: "k"}); !errors.Is(err, dispatch.ErrNoQueue) || !strings.Contains(err.Error(), "US002") {
		t.Errorf("an unknown queue: %v, want ErrNoQueue", err)
	}
	_ = tx.Rollback(t.Context())
	tx = begin(t, conn)
	if _, err := postgres.Enqueue(t.Context(), tx, dispatch.Batch{Queue: work, Key: " k"}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a bad key: %v, want ErrInvalid", err)
	}
	if added, err := postgres.Enqueue(t.Context(), tx, dispatch.Batch{Queue: work, Key: "k", ID: "fine"}); err != nil || !added[0] {
		t.Errorf("after a refusal that was not sent: %v", err)
	}
	if added, err := postgres.Enqueue(t.Context(), tx); err != nil || len(added) != 0 {
		t.Errorf("nothing: %v, %v", added, err)
	}
	if _, err := postgres.EnqueueIn(t.Context(), tx, `a"b`, dispatch.Batch{Queue: work, Key: "k"}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a schema that is none: %v", err)
	}
	commit(t, tx)
	for what, c := range map[string]struct{ sql, code string }{
		"an unknown queue":          {"SELECT understudy.enqueue('nowhere', 'k', '')", "US002"},
		"no queue":                  {"SELECT understudy.enqueue(NULL, 'k', '')", "US002"},
		"an unknown queue, plainly": {"INSERT INTO understudy.batch (queue, key) VALUES ('nowhere', 'k')", "US002"},
		"no key":                    {"SELECT understudy.enqueue('work', NULL, '')", "23502"},
		"an empty key":              {"SELECT understudy.enqueue('work', '', '')", "23514"},
		"a control character":       {"SELECT understudy.enqueue('work', E'a\\nb', '')", "23514"},
		"white space at the end":    {"SELECT understudy.enqueue('work', 'a ', '')", "23514"},
		"a long key":                {"SELECT understudy.enqueue('work', repeat('k', 201), '')", "23514"},
		"a long id":                 {"SELECT understudy.enqueue('work', 'k', '', repeat('i', 201))", "23514"},
		"a header in the type":      {"SELECT understudy.enqueue('work', 'k', '', content_type => E'a\\r\\nX-Evil: 1')", "23514"},
		"a huge payload":            {"SELECT understudy.enqueue('work', 'k', convert_to(repeat('x', 16777217), 'UTF8'))", "23514"},
	} {
		if _, err := conn.Exec(t.Context(), c.sql); err == nil || !strings.Contains(err.Error(), c.code) {
			t.Errorf("%s: %v, want SQLSTATE %s", what, err, c.code)
		}
	}
	if got, err := s.Desk().Batches(t.Context(), dispatch.BatchQuery{Queue: work}); err != nil || len(got) != 1 {
		t.Errorf("stored: %+v, %v", got, err)
	}
}

// TestCosts: with very many batches finished, no operation looks at more than a few
// rows for each key that it is about, or that is busy.
func TestCosts(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, me := workplace(t, server)
	const keys, finished = 100, 50_000
	// First a little, for which plans are made, and then what they are not made for.
	other := open(t, url)
	fill(t, url, keys, 2*keys)
	d := &deliverer{store: other, session: me.ID, size: keys}
	d.drain(t, 2*keys)
	fill(t, url, keys, finished)
	exec(t, url, `UPDATE understudy.batch SET state = 'committed', over = true, begun = enqueued, ended = clock_timestamp(), attempts = 1;
		UPDATE understudy.claim c SET ready_at = NULL, session = '', done = (SELECT max(seq) FROM understudy.batch b WHERE b.key = c.key)`)
	fill(t, url, 20, 60)
	if _, err := s.Desk().Add(t.Context(), []dispatch.Batch{{Queue: work, Key: "a", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	var claims []claim.Claim
	var begun dispatch.Turned
	ctx := t.Context()
	for _, op := range []struct {
		name string
		most int64
		do   func(s *postgres.Store) error
	}{
		{"take", 300, func(s *postgres.Store) (err error) {
			claims, err = s.Claims().Take(ctx, claim.Want{Space: dispatch.Space(work), Session: me.ID, Most: 100, Fresh: 100})
			return err
		}},
		{"join", 200, func(s *postgres.Store) error {
			_, err := s.Claims().Join(ctx, claim.Member{Space: dispatch.Space(work), Session: me.ID, Asleep: true})
			return err
		}},
		{"begin", 300, func(s *postgres.Store) (err error) {
			begun, err = s.Queue().Turn(ctx, dispatch.Turn{Queue: work, Session: me.ID, Begin: claims, Window: time.Minute})
			return err
		}},
		{"turn", 500, func(s *postgres.Store) (err error) {
			turn := dispatch.Turn{Queue: work, Session: me.ID, Begin: claims, Window: time.Minute}
			for _, a := range begun.Begun {
				turn.Results = append(turn.Results, dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next})
			}
			out, err := s.Queue().Turn(ctx, turn)
			if err == nil && len(out.Begun) < 15 {
				err = fmt.Errorf("only %d begun", len(out.Begun))
			}
			return err
		}},
		{"release", 300, func(s *postgres.Store) error {
			return s.Claims().Release(ctx, dispatch.Space(work), me.ID, claims)
		}},
		{"add", 50, func(s *postgres.Store) error {
			_, err := s.Desk().Add(ctx, []dispatch.Batch{{Queue: work, Key: "key-1"}, {Queue: work, Key: "another", ID: "another"}})
			return err
		}},
		{"act", 50, func(s *postgres.Store) error { return s.Desk().Act(ctx, work, "another", dispatch.Cancel, "x") }},
		{"queues", 12 * keys, func(s *postgres.Store) error { _, err := s.Desk().Queues(ctx); return err }},
		{"keys", 12 * keys, func(s *postgres.Store) error {
			_, err := s.Desk().Keys(ctx, dispatch.KeyQuery{Queue: work, Idle: true})
			return err
		}},
		{"queued", 12 * keys, func(s *postgres.Store) error {
			_, err := s.Desk().Batches(ctx, dispatch.BatchQuery{Queue: work, State: dispatch.Queued})
			return err
		}},
		{"submitting", 12 * keys, func(s *postgres.Store) error {
			_, err := s.Desk().Batches(ctx, dispatch.BatchQuery{Queue: work, State: dispatch.Submitting})
			return err
		}},
		{"cancelled", 12 * keys, func(s *postgres.Store) error {
			_, err := s.Desk().Batches(ctx, dispatch.BatchQuery{Queue: work, State: dispatch.Cancelled})
			return err
		}},
		{"a page", 12 * keys, func(s *postgres.Store) error {
			_, err := s.Desk().Batches(ctx, dispatch.BatchQuery{Queue: work, Limit: 20, AfterKey: "key-42", AfterSeq: 100})
			return err
		}},
		{"a batch", 50, func(s *postgres.Store) error { _, err := s.Desk().Batch(ctx, work, "a"); return err }},
		{"prune", 12 * keys, func(s *postgres.Store) error { _, _, err := s.Queue().Prune(ctx, work, time.Hour, 100); return err }},
	} {
		before := rowsRead(t, url)
		counted := open(t, url)
		if err := op.do(counted); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		counted.Close() // the server counts what a connection did when it ends
		realserver.Eventually(t, 10*time.Second, "connections end", func() error {
			var n int
			err := connect(t, url).QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'understudy' AND datname = current_database()").Scan(&n)
			if err == nil && n > 4 {
				err = fmt.Errorf("%d", n)
			}
			return err
		})
		if n := rowsRead(t, url) - before; n > op.most {
			t.Errorf("%s read %d rows, with %d batches finished; want at most %d", op.name, n, finished, op.most)
		} else {
			t.Logf("%s read %d rows", op.name, n)
		}
	}
}

// rowsRead counts the rows of the schema's tables that were read by whatever plan.
func rowsRead(t *testing.T, url string) (n int64) {
	t.Helper()
	err := connect(t, url).QueryRow(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
		FROM pg_stat_user_tables WHERE schemaname = 'understudy' AND relname <> 'event'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
