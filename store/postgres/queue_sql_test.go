package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
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
		CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.eq);
		CREATE OPERATOR trap.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.eq);
		CREATE FUNCTION trap.cat(text, text) RETURNS text LANGUAGE sql AS 'SELECT trap.now_owner($1)';
		CREATE OPERATOR trap.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.cat);
		CREATE FUNCTION trap.le(int, int) RETURNS boolean LANGUAGE sql AS $$ SELECT trap.now_owner('') IS NULL $$;
		CREATE OPERATOR trap.<= (LEFTARG = int, RIGHTARG = int, FUNCTION = trap.le);
		CREATE FUNCTION trap.more(int, bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT length(trap.now_owner(''))::bigint $$;
		CREATE OPERATOR trap.+ (LEFTARG = int, RIGHTARG = bigint, FUNCTION = trap.more);
		CREATE FUNCTION trap.at(tid, tid) RETURNS boolean LANGUAGE sql AS $$ SELECT trap.now_owner('') IS NULL $$;
		CREATE OPERATOR trap.= (LEFTARG = tid, RIGHTARG = tid, FUNCTION = trap.at);
		CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT trap.now_owner('')::timestamptz $$;
		CREATE FUNCTION trap.md5(text) RETURNS text LANGUAGE sql AS 'SELECT trap.now_owner($1)';
		CREATE FUNCTION trap.hashtext(text) RETURNS int LANGUAGE sql AS 'SELECT length(trap.now_owner($1))';
		CREATE DOMAIN trap.text AS pg_catalog.text CHECK (trap.now_owner(VALUE) IS NULL);
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
	direct := connect(t, strings.Replace(url, "postgres@", "app@", 1)) // the Go package inserts with the caller's rights and path
	for i, key := range []string{"k", "direct"} {
		for _, want := range []bool{true, false} {
			tx := begin(t, direct)
			if added, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: work, Key: key, ID: fmt.Sprint("direct ", i)}); err != nil || added[0] != want {
				t.Fatalf("from Go: %v, %v, want %v", added, err, want)
			}
			commit(t, tx)
		}
	}
	exec(t, url, "UPDATE understudy.claim SET ready_at = NULL WHERE key = 'direct'")
	if id := one(app, "SELECT understudy.enqueue('work', 'direct', 'payload', 'idle')"); id == nil || *id != "idle" {
		t.Errorf("to an idle key: %v", id)
	}
	if id := one(app, "SELECT understudy.enqueue('work', 'k', 'other', 'mine')"); id != nil {
		t.Errorf("a duplicate returned %q", *id)
	}
	if id := one(app, "SELECT understudy.enqueue_at('work', 'k', 'payload', now() + interval '1 day', 'tomorrow')"); id == nil || *id != "tomorrow" {
		t.Errorf("enqueue_at returned %v", id)
	}
	if id := one(app, "SELECT understudy.enqueue_at('work', 'k', 'payload', now() + interval '2 days', id => 'tomorrow')"); id != nil {
		t.Errorf("enqueue_at again returned %q", *id)
	}
	if id := one(app, `SELECT understudy.enqueue('work', 'h', 'payload', 'with headers', 'a/b', '{"traceparent": "00-1-2-01"}')`); id == nil || *id != "with headers" {
		t.Errorf("with headers: %v", id)
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
	if fmt.Sprint(got) != "[k mine k direct 0 k random k plain k copied direct direct 1 direct idle h with headers j plain too]" {
		t.Errorf("delivered %q", got)
	}
}

// TestEnqueueAfterARevoke: a right that was revoked costs each connection that knew it one transaction.
func TestEnqueueAfterARevoke(t *testing.T) {
	url, _, _ := workplace(t, realserver.Postgres(t, realserver.PostgresOptions{}))
	exec(t, url, "CREATE ROLE revoked LOGIN; GRANT USAGE ON SCHEMA understudy TO revoked")
	conn := connect(t, strings.Replace(url, "postgres@", "revoked@", 1))
	enqueue := func(id string) error {
		tx := begin(t, conn)
		if _, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: work, Key: "k", ID: id}); err != nil {
			return errors.Join(err, tx.Rollback(t.Context()))
		}
		return tx.Commit(t.Context())
	}
	if err := enqueue("before"); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "REVOKE INSERT ON understudy.message FROM PUBLIC")
	if err := enqueue("first"); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Fatalf("the right was not used, or not revoked: %v", err)
	}
	if err := enqueue("second"); err != nil {
		t.Errorf("the function is there for it: %v", err)
	}
}

// The order is that of the statements, whatever else a transaction does with its messages.
func TestEnqueueNumbersEach(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, _, _ := workplace(t, server)
	for what, c := range map[string]struct{ sql, want string }{
		"one":                      {"SELECT understudy.enqueue('work', 'k', '', 'a')", "a1"},
		"two":                      {"SELECT understudy.enqueue('work', 'k', '', 'a'); SELECT understudy.enqueue('work', 'k', '', 'b')", "a1 b2"},
		"the last is taken back":   {"SELECT understudy.enqueue('work', 'k', '', 'a'); SAVEPOINT s; SELECT understudy.enqueue('work', 'k', '', 'b'); ROLLBACK TO s", "a1"},
		"the last is a duplicate":  {"SELECT understudy.enqueue('work', 'k', '', 'a'); SELECT understudy.enqueue('work', 'k', '', 'a')", "a1"},
		"the first is deleted":     {"SELECT understudy.enqueue('work', 'k', '', 'a'); SELECT understudy.enqueue('work', 'k', '', 'b'); DELETE FROM understudy.batch WHERE id = 'a'", "b1"},
		"the only one is changed":  {"SELECT understudy.enqueue('work', 'k', '', 'a'); UPDATE understudy.batch SET payload = 'x' WHERE id = 'a'", "a1"},
		"one is numbered at once":  {"SELECT understudy.enqueue('work', 'k', '', 'a'); SET CONSTRAINTS ALL IMMEDIATE; SELECT understudy.enqueue('work', 'k', '', 'b')", "a1 b2"},
		"several in one statement": {"SELECT understudy.enqueue_all('{work,work}', '{k,k}', '{b,a}', '{x/y,x/y}', ARRAY['', '']::bytea[]); SELECT understudy.enqueue('work', 'k', '', 'c')", "b1 a2 c3"},
	} {
		for _, level := range []string{"READ COMMITTED", "REPEATABLE READ"} {
			exec(t, url, "DELETE FROM understudy.claim; DELETE FROM understudy.batch; DELETE FROM understudy.tail")
			exec(t, url, "BEGIN ISOLATION LEVEL "+level+"; "+c.sql+"; COMMIT")
			var got string
			if err := connect(t, url).QueryRow(t.Context(), "SELECT string_agg(id || seq, ' ' ORDER BY seq) FROM understudy.batch").Scan(&got); err != nil || got != c.want {
				t.Errorf("%s at %s: %q, %v, want %q", what, level, got, err, c.want)
			}
		}
	}
}

func TestEnqueueRefuses(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, _ := workplace(t, server)
	conn := connect(t, url)
	tx := begin(t, conn)
	if _, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: "nowhere", Key: "k"}); !errors.Is(err, dispatch.ErrNoQueue) || err.Error() != "enqueueing: there is no queue 'nowhere' (SQLSTATE US002)" {
		t.Errorf("an unknown queue: %v, want ErrNoQueue", err)
	}
	_ = tx.Rollback(t.Context())
	tx = begin(t, conn)
	if _, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: work, Key: " k"}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a bad key: %v, want ErrInvalid", err)
	}
	if added, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: work, Key: "k", ID: "fine"}); err != nil || !added[0] {
		t.Errorf("after a refusal that was not sent: %v", err)
	}
	if added, err := postgres.Enqueue(t.Context(), tx); err != nil || len(added) != 0 {
		t.Errorf("nothing: %v, %v", added, err)
	}
	if _, err := postgres.EnqueueIn(t.Context(), tx, `a"b`, dispatch.Message{Queue: work, Key: "k"}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a schema that is none: %v", err)
	}
	commit(t, tx)
	const form = " must be text of 1 to 200 bytes without control characters or blanks at its ends"
	for what, c := range map[string]struct{ sql, code, words string }{
		"an unknown queue":          {"SELECT understudy.enqueue('nowhere', 'k', '')", "US002", "there is no queue 'nowhere'"},
		"no queue":                  {"SELECT understudy.enqueue(NULL, 'k', '')", "US002", "there is no queue null"},
		"an unknown queue, plainly": {"INSERT INTO understudy.batch (queue, key) VALUES ('nowhere', 'k')", "US002", "there is no queue 'nowhere'"},
		"a bad key, plainly":        {"INSERT INTO understudy.batch (queue, key) VALUES ('work', ' k')", "23514", "the key" + form},
		"one of many, plainly":      {"INSERT INTO understudy.batch (queue, key) VALUES ('work', 'k'), ('work', 'k ')", "23514", "the key" + form},
		"no key":                    {"SELECT understudy.enqueue('work', NULL, '')", "23502", "the key" + form},
		"an empty key":              {"SELECT understudy.enqueue('work', '', '')", "23514", "the key" + form},
		"a control character":       {"SELECT understudy.enqueue('work', E'a\\nb', '')", "23514", "the key" + form},
		"white space at the end":    {"SELECT understudy.enqueue('work', 'a ', '')", "23514", "the key" + form},
		"a long key":                {"SELECT understudy.enqueue('work', repeat('k', 201), '')", "23514", "the key" + form},
		"one of many":               {"SELECT understudy.enqueue_all('{work,work}', ARRAY['k', 'k '], '{1,2}', '{a,b}', ARRAY[''::bytea, ''])", "23514", "the key" + form},
		"a long id":                 {"SELECT understudy.enqueue('work', 'k', '', repeat('i', 201))", "23514", "the message id" + form},
		"a header in the type":      {"SELECT understudy.enqueue('work', 'k', '', content_type => E'a\\r\\nX-Evil: 1')", "23514", "the content type" + form},
		"headers in a list":         {"SELECT understudy.enqueue('work', 'k', '', 'i', 'a/b', '[]')", "23514", "the headers must be a JSON object of strings"},
		"a header of a number":      {"SELECT understudy.enqueue('work', 'k', '', 'i', 'a/b', '{\"a\": 1}')", "23514", "the headers must be a JSON object of strings"},
		"never":                     {"SELECT understudy.enqueue_at('work', 'k', '', 'infinity')", "23514", "the last year is 9999"},
		"an unknown queue, later":   {"SELECT understudy.enqueue_at('nowhere', 'k', '', '9999-01-01')", "US002", "there is no queue 'nowhere'"},
		"headers in a list, later":  {"SELECT understudy.enqueue_at('work', 'k', '', '9999-01-01', headers => '[]')", "23514", "the headers must be a JSON object of strings"},
		"no payload":                {"SELECT understudy.enqueue('work', 'k', NULL)", "23502", "the payload is null; an empty one is ''"},
		"a huge payload":            {"SELECT understudy.enqueue('work', 'k', convert_to(repeat('x', 16777217), 'UTF8'))", "23514", "more than 16 MiB"},
	} {
		_, err := conn.Exec(t.Context(), c.sql)
		refusal, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refusal.Code != c.code || !strings.Contains(refusal.Message, c.words) {
			t.Errorf("%s: %v, want SQLSTATE %s and %q", what, err, c.code, c.words)
		} else if c.code == "US002" && !strings.Contains(refusal.Hint, "understudy queue add --create") {
			t.Errorf("%s: the hint is %q", what, refusal.Hint)
		}
	}
	if got, err := s.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: work}); err != nil || len(got) != 1 {
		t.Errorf("stored: %+v, %v", got, err)
	}
}

// TestCosts: with very many batches finished, no operation looks at more than a few
// rows for each key that it is about, or that is busy; and no renewal, with very many sessions that wait.
func TestCosts(t *testing.T) {
	const keys = 100
	var me lease.Session
	checkCosts(t, func(t *testing.T, server *realserver.PostgresServer) (url string) {
		url, me = busyQueue(t, server, keys)
		crowdAtALease(t, url)
		return url
	}, func(ctx context.Context) []cost { return append(costsOfQueue(ctx, me, keys), costsOfRenewals(ctx)...) })
}

// busyQueue is a database with very many batches finished, of so many keys, and a few that wait.
func busyQueue(t *testing.T, server *realserver.PostgresServer, keys int) (url string, me lease.Session) {
	t.Helper()
	url, s, me := workplace(t, server)
	// First a little, which there are statistics of, and then what they say nothing of.
	fill(t, url, keys, 2*keys)
	d := &deliverer{store: s, session: me.ID, size: keys}
	d.drain(t, 2*keys)
	exec(t, url, "ANALYZE")
	fill(t, url, keys, 50_000)
	exec(t, url, `UPDATE understudy.batch SET state = 'committed', over = true, begun = enqueued, ended = clock_timestamp(), attempts = 1;
		UPDATE understudy.claim c SET ready_at = NULL, session = '', done = (SELECT max(seq) FROM understudy.batch b WHERE b.key = c.key)`)
	fill(t, url, 20, 60)
	exec(t, url, `INSERT INTO understudy.scheduled (queue, key, id, content_type, payload, not_before)
		SELECT 'work', 'key-' || i % 100, 'later-' || i, 'a/b', 'x', clock_timestamp() + CASE WHEN i % 20 = 0 THEN '-1 s' ELSE '1 day' END::interval
		FROM generate_series(1, 5000) i`)
	if _, err := s.QueueAdmin().Add(t.Context(), []dispatch.Message{{Queue: work, Key: "a", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.QueueAdmin().CreateQueue(t.Context(), "idle"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return url, me
}

// costsOfQueue allows for some scans of what there is one of for each key, which is little.
func costsOfQueue(ctx context.Context, me lease.Session, keys int64) []cost {
	var claims []claim.Claim
	var begun dispatch.ExchangeResult
	return []cost{
		{"take", 6 * keys, func(s *postgres.Store) (err error) {
			claims, err = s.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: dispatch.Space(work), Session: me.ID, Limit: 100, Fresh: 100})
			return err
		}},
		{"join", 6 * keys, func(s *postgres.Store) error {
			_, err := s.Claims().Join(ctx, claim.Member{Space: dispatch.Space(work), Session: me.ID, Asleep: true})
			return err
		}},
		{"begin", 6 * keys, func(s *postgres.Store) (err error) {
			begun, err = s.Queue().Exchange(ctx, dispatch.Exchange{Queue: work, Session: me.ID, Begin: claims, Window: time.Minute})
			return err
		}},
		{"turn", 6 * keys, func(s *postgres.Store) (err error) {
			turn := dispatch.Exchange{Queue: work, Session: me.ID, Begin: claims, Window: time.Minute}
			for _, a := range begun.Begun {
				turn.Results = append(turn.Results, dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next})
			}
			out, err := s.Queue().Exchange(ctx, turn)
			if err == nil && len(out.Begun) < 15 {
				err = fmt.Errorf("only %d begun", len(out.Begun))
			}
			return err
		}},
		{"release", 6 * keys, func(s *postgres.Store) error {
			return s.Claims().Release(ctx, dispatch.Space(work), me.ID, claims)
		}},
		{"add", 6 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Add(ctx, []dispatch.Message{{Queue: work, Key: "key-1"}, {Queue: work, Key: "another", ID: "another"}})
			return err
		}},
		{"act", 6 * keys, func(s *postgres.Store) error { return s.QueueAdmin().Act(ctx, work, "another", dispatch.Cancel, "x") }},
		{"enqueue due", 10 * keys, func(s *postgres.Store) error {
			n, err := s.Queue().EnqueueDue(ctx, work, 100)
			if err == nil && n != 100 {
				err = fmt.Errorf("%d were due", n)
			}
			return err
		}},
		{"enqueue where none is due", 10, func(s *postgres.Store) error {
			_, err := s.Queue().EnqueueDue(ctx, "idle", 100)
			return err
		}},
		// Those of the queue, where there are no statistics.
		{"scheduled", 50 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: work, State: dispatch.Scheduled, Limit: 20, AfterKey: "key-42", AfterSeq: 100})
			return err
		}},
		{"schedule", keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Add(ctx, []dispatch.Message{{Queue: work, Key: "key-1", ID: "one more", NotBefore: time.Now().Add(time.Hour)}})
			return err
		}},
		{"cancel scheduled", 6 * keys, func(s *postgres.Store) error { return s.QueueAdmin().Act(ctx, work, "one more", dispatch.Cancel, "x") }},
		// 5,000 of them are scheduled ones, which are counted.
		{"queues", 80 * keys, func(s *postgres.Store) error { _, err := s.QueueAdmin().Queues(ctx); return err }},
		{"keys", 30 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Keys(ctx, dispatch.KeyQuery{Queue: work, Idle: true})
			return err
		}},
		{"queued", 30 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: work, State: dispatch.Queued})
			return err
		}},
		{"submitting", 30 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: work, State: dispatch.Submitting})
			return err
		}},
		{"cancelled", 30 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: work, State: dispatch.Cancelled})
			return err
		}},
		{"a page", 30 * keys, func(s *postgres.Store) error {
			_, err := s.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: work, Limit: 20, AfterKey: "key-42", AfterSeq: 100})
			return err
		}},
		{"a batch", 6 * keys, func(s *postgres.Store) error { _, err := s.QueueAdmin().Message(ctx, work, "a"); return err }},
		{"prune", 30 * keys, func(s *postgres.Store) error { _, _, err := s.Queue().Prune(ctx, work, time.Hour, 100); return err }},
	}
}
