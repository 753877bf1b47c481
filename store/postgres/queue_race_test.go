package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

func TestQueueInterleavings(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	interleave(t, func(t *testing.T) string {
		url, _, _ := workplace(t, server)
		stepped(t, url)
		return url
	}, []interleaving{
		{"a take waits for no begin and never wins over it", beginUnderWay, "claim_lapsed_keys", "FOR NO KEY UPDATE SKIP LOCKED", ""},
		{"a take that saw no step looks again", stepSeenLate, "claim_lapsed_keys", "WHERE coalesce(x.step_ends_at <= t, true)", ""},
		{"a take beside a renewal under way", takeBesideRenewal, "claim_lapsed_keys", "FOR SHARE SKIP LOCKED", ""},
		{"a take whose commit outlasts its session is found", takeOutlastsSession, "claim_keys", "PERFORM " + postgres.InSQL("{{rules}}.keep_member"), "PERFORM concat"},
		{"… also by a join that looked before the commit", joinLooksBeforeTake, "join_space",
			postgres.InSQL("AND NOT EXISTS (SELECT FROM {{schema}}.claim c WHERE c.session = x.session AND c.session <> '' AND c.space = p_space)"), ""},
		{"the order is that of the commits", commitOrder, "number_batches", "FOR NO KEY UPDATE", ""},
		{"an idle mark beside an enqueuer", idleBesideEnqueue, "mark_idle", "FOR NO KEY UPDATE SKIP LOCKED", ""},
		{"who falls asleep sees what is being committed", asleepBesideEnqueue, "number_batches", "pg_advisory_xact_lock_shared", "concat"},
		{"… to an idle key", asleepBesideIdleKey, "make_key_ready", "pg_advisory_xact_lock_shared", "concat"},
		{"who falls asleep sees what is being offered", asleepBesideOffer, "wake_members", "pg_advisory_xact_lock_shared", "concat"},
		{"an old snapshot does not number", oldSnapshot, "append_to_key", "IF v_current THEN", "IF true THEN"},
		{"a queue that is removed gets no message", removalBesideEnqueue(false), "number_batches", "pg_advisory_xact_lock_shared", "concat"},
		{"… nor for a key that it had", removalBesideEnqueue(true), "remove_queue", postgres.InSQL("DELETE FROM {{schema}}.tail e WHERE e.queue = p_queue;"), ""},
		{"… nor loses one that is being committed", removalBesideCommit, "remove_queue", "ORDER BY e.key FOR UPDATE", ""},
		{"what is due does not wait for an open transaction", dueBesideEnqueue(false), "enqueue_due", "WHEN lock_not_available", "WHEN division_by_zero"},
		{"… that has numbered its message", dueBesideEnqueue(true), "enqueue_due", postgres.InSQL("SET CONSTRAINTS {{schema}}.number_batches IMMEDIATE;"), ""},
		{"a pruner waits for no retry", pruneBesideRetry, "prune_key", "x.ended < p_before FOR UPDATE SKIP LOCKED", "x.ended < p_before"},
		{"numbers are kept when all batches are pruned", pruneKeepsNumbers, "prune_key", "IF e.last < v_last THEN", "IF false THEN"},
	})
}

// enqueue enqueues in a transaction that is left open.
func enqueue(t testing.TB, tx pgx.Tx, key, id string) {
	t.Helper()
	added, err := postgres.Enqueue(t.Context(), tx, dispatch.Message{Queue: work, Key: key, ID: id, Payload: []byte(id)})
	if err != nil || !added[0] {
		t.Fatalf("Enqueue = %v, %v", added, err)
	}
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func takeKeys(t testing.TB, s *postgres.Store, session string) []claim.Claim {
	t.Helper()
	got, err := s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space(work), Session: session, Limit: 10, Fresh: 10})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// beginTurn starts with claims, in a transaction if there is one.
var beginTurn = postgres.InSQL(`SELECT coalesce(work, '') FROM {{rules}}.exchange('work', $1, false, 36000000000, ARRAY[$2], ARRAY[$3::bigint],
	ARRAY[NULL::bigint], ARRAY[0::bigint], ARRAY[''], ARRAY[''], ARRAY[0::bigint], ARRAY[0], ARRAY[0], ARRAY[''], ARRAY[''], 10000)`)

// lapsing returns a claim whose holder lapses when it is gone.
func lapsing(t *testing.T, url string, s *postgres.Store) (lease.Session, claim.Claim) {
	t.Helper()
	tx := begin(t, connect(t, url))
	key := "k-" + lease.NewID()
	enqueue(t, tx, key, key)
	commit(t, tx)
	a := start(t, s, "a", time.Hour)
	taken := takeKeys(t, s, a.ID)
	step(t, url, 40*time.Minute)
	return a, taken[0]
}

// gone has its holder lapse, if it was not renewed since.
func gone(t *testing.T, url string, s *postgres.Store, id string) {
	t.Helper()
	step(t, url, 40*time.Minute)
	live, err := s.Sessions(t.Context())
	if err != nil || slices.ContainsFunc(live, func(n lease.Session) bool { return n.ID == id }) {
		t.Fatalf("it lives: %v", err)
	}
}

// beginUnderWay: a begin has locked the key, and its session lapses before it
// commits.
func beginUnderWay(t *testing.T, url string) error {
	s := open(t, url)
	a, c := lapsing(t, url, s)
	tx := begin(t, connect(t, url))
	var assigned string
	if err := tx.QueryRow(t.Context(), beginTurn, a.ID, c.Key, c.Term).Scan(&assigned); err != nil || assigned != "send" {
		return fmt.Errorf("begin: %q, %v", assigned, err)
	}
	gone(t, url, s, a.ID)
	next := start(t, s, "b", time.Hour)
	var got []claim.Claim
	err := waitsForNobody(t, url, func(ctx context.Context) (err error) {
		got, err = s.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: dispatch.Space(work), Session: next.ID, Limit: 10, Fresh: 10})
		return err
	})
	if err != nil {
		return fmt.Errorf("a take beside a begin: %w", err)
	}
	commit(t, tx)
	if slices.ContainsFunc(got, func(n claim.Claim) bool { return n.Key == c.Key }) {
		return errors.New("a key was taken while a step on it was being begun")
	}
	return nil
}

// stepSeenLate holds a take up between its look and its locks, and lets the step
// begin and commit meanwhile.
func stepSeenLate(t *testing.T, url string) error {
	s := open(t, url)
	exec(t, url, "DELETE FROM understudy.member") // those of before
	a, c := lapsing(t, url, s)
	live := begin(t, connect(t, url))
	var assigned string
	if err := live.QueryRow(t.Context(), beginTurn, a.ID, c.Key, c.Term).Scan(&assigned); err != nil || assigned != "send" {
		return fmt.Errorf("begin: %q, %v", assigned, err)
	}
	gone(t, url, s, a.ID)
	// The gate is in the statement that locks, which has its snapshot by then.
	const gate = `CREATE OR REPLACE FUNCTION {{rules}}.step_ends_at(c understudy.claim) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
		BEGIN %s RETURN (SELECT h.hold FROM {{rules}}.head('work', c.key, c.done) h WHERE h.term = c.term); END $$`
	exec(t, url, fmt.Sprintf(postgres.InSQL(gate), "PERFORM pg_advisory_xact_lock_shared(7);"))
	closed := begin(t, connect(t, url))
	if _, err := closed.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)"); err != nil {
		t.Fatal(err)
	}
	next := start(t, s, "b", time.Hour)
	var got []claim.Claim
	taken := later(func() (err error) {
		got, err = s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space(work), Session: next.ID, Limit: 10, Fresh: 10})
		return err
	})
	waiting(t, url, 1)
	commit(t, live)
	commit(t, closed)
	if err := <-taken; err != nil {
		return err
	}
	if len(got) > 0 {
		return errors.New("a key was taken though a step on it had begun")
	}
	return nil
}

func takeBesideRenewal(t *testing.T, url string) error {
	s := open(t, url)
	a, c := lapsing(t, url, s)
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), postgres.InSQL("SELECT {{rules}}.renew_session($1, 10000)"), a.ID); err != nil {
		t.Fatal(err)
	}
	gone(t, url, s, a.ID) // as it was before
	got := takeKeys(t, s, start(t, s, "b", time.Hour).ID)
	commit(t, tx)
	if slices.ContainsFunc(got, func(n claim.Claim) bool { return n.Key == c.Key }) {
		return errors.New("a key was taken from a session that was being renewed")
	}
	return nil
}

// takeUncommitted has a session that has joined, and holds nothing, take a key in a transaction that is left open, and lapse.
func takeUncommitted(t *testing.T, url string, s *postgres.Store) (a lease.Session, key string, tx pgx.Tx) {
	t.Helper()
	key = "k-" + lease.NewID()
	tx = begin(t, connect(t, url))
	enqueue(t, tx, key, key)
	commit(t, tx)
	a = start(t, s, "a", time.Hour)
	if _, err := s.Claims().Join(t.Context(), claim.Member{Space: dispatch.Space(work), Session: a.ID}); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, connect(t, url))
	var got string
	sql := postgres.InSQL("SELECT key FROM {{rules}}.claim_keys($1, $2, 10, 10, 0, NULL, 10000) WHERE key IS NOT NULL")
	if err := tx.QueryRow(t.Context(), sql, dispatch.Space(work), a.ID).Scan(&got); err != nil || got != key {
		t.Fatalf("taken %q, %v", got, err)
	}
	step(t, url, 40*time.Minute)
	gone(t, url, s, a.ID)
	return a, key, tx
}

// isFound is an error if a key, whose holder has lapsed, is not found by the next one.
func isFound(t *testing.T, s *postgres.Store, session, key string) error {
	t.Helper()
	got := takeKeys(t, s, session)
	if !slices.ContainsFunc(got, func(n claim.Claim) bool { return n.Key == key }) {
		return fmt.Errorf("a lapsed session keeps its key: taken %+v", got)
	}
	for _, c := range got { // so that the next round has none
		if _, err := deliver(t, s, session, c); err != nil {
			return err
		}
	}
	return nil
}

// takeOutlastsSession: another joins before the commit of a take, and its session is dead by then.
func takeOutlastsSession(t *testing.T, url string) error {
	s := open(t, url)
	_, key, tx := takeUncommitted(t, url, s)
	next := start(t, s, "b", 24*time.Hour)
	if err := waitsForNobody(t, url, func(ctx context.Context) error {
		_, err := s.Claims().Join(ctx, claim.Member{Space: dispatch.Space(work), Session: next.ID})
		return err
	}); err != nil {
		return fmt.Errorf("a join beside a take: %w", err)
	}
	commit(t, tx)
	return isFound(t, s, next.ID, key)
}

// joinLooksBeforeTake: the snapshot of a join is from before the commit of the take, and its locks are from after it.
func joinLooksBeforeTake(t *testing.T, url string) error {
	s := open(t, url)
	a, key, tx := takeUncommitted(t, url, s)
	next := start(t, s, "b", 24*time.Hour)
	exec(t, url, fmt.Sprintf(postgres.InSQL(`CREATE OR REPLACE FUNCTION {{rules}}.is_alive(p_session text, t timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
		BEGIN
			IF p_session = '%s' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
			RETURN EXISTS (SELECT FROM {{schema}}.session s WHERE s.id = p_session AND NOT s.ended AND s.deadline > t);
		END $$`), a.ID))
	closed := begin(t, connect(t, url))
	if _, err := closed.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)"); err != nil {
		t.Fatal(err)
	}
	joined := later(func() error {
		_, err := s.Claims().Join(amply(t), claim.Member{Space: dispatch.Space(work), Session: next.ID})
		return err
	})
	waiting(t, url, 1)
	commit(t, tx)
	commit(t, closed)
	if err := <-joined; err != nil {
		return err
	}
	return isFound(t, s, next.ID, key)
}

// commitOrder: who enqueued first commits last. Nothing is delivered out of that
// order, and nothing is lost.
func commitOrder(t *testing.T, url string) error {
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	key := "k-" + lease.NewID()
	first, second := begin(t, connect(t, url)), begin(t, connect(t, url))
	enqueue(t, first, key, key+" first")
	enqueue(t, second, key, key+" second")
	commit(t, second)
	c := takeKeys(t, s, a.ID)
	if len(c) != 1 || c[0].Key != key {
		return fmt.Errorf("taken %+v", c)
	}
	got, err := deliver(t, s, a.ID, c[0])
	if err != nil || got != key+" second" {
		return fmt.Errorf("delivered %q, %v", got, err)
	}
	commit(t, first)
	// Two whose commits meet: the second waits for the first's.
	one, two := begin(t, connect(t, url)), begin(t, connect(t, url))
	enqueue(t, one, key, key+" one")
	enqueue(t, two, key, key+" two")
	if _, err := two.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	other := later(func() error { return one.Commit(context.Background()) })
	if over, err := overOrWaits(t, url, other); over {
		return fmt.Errorf("a commit did not wait for the one before: %v", err)
	}
	commit(t, two)
	if err := <-other; err != nil {
		return err
	}
	var order []string
	for range 3 {
		for _, c := range takeKeys(t, s, a.ID) {
			for {
				got, err := deliver(t, s, a.ID, c)
				if err != nil || got == "" {
					break
				}
				order = append(order, strings.TrimPrefix(got, key+" "))
			}
		}
	}
	if fmt.Sprint(order) != "[first two one]" {
		return fmt.Errorf("then delivered %q", order)
	}
	return nil
}

// deliver delivers the head of a key and returns its id, "" when there is none.
func deliver(t testing.TB, s *postgres.Store, session string, c claim.Claim) (string, error) {
	t.Helper()
	turn := dispatch.Exchange{Queue: work, Session: session, Begin: []claim.Claim{c}, Window: time.Minute}
	out, err := s.Queue().Exchange(t.Context(), turn)
	if err != nil || len(out.Begun) == 0 {
		return "", err
	}
	a := out.Begun[0]
	turn.Begin, turn.Results = nil, []dispatch.Result{{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: 1}}
	out, err = s.Queue().Exchange(t.Context(), turn)
	if err == nil && !out.Receipts[0].Accepted {
		err = errors.New("not accepted")
	}
	return a.ID, err
}

// idleBesideEnqueue: a key runs dry while an enqueuer has its number and has not
// committed.
func idleBesideEnqueue(t *testing.T, url string) error {
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	key := "k-" + lease.NewID()
	tx := begin(t, connect(t, url))
	enqueue(t, tx, key, key+" 1")
	commit(t, tx)
	c := takeKeys(t, s, a.ID)[0]
	if _, err := deliverHeld(t, s, a.ID, c, func() {
		tx = begin(t, connect(t, url))
		enqueue(t, tx, key, key+" 2")
		if _, err := tx.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		return err
	}
	commit(t, tx)
	var got string
	for tries := 0; got == "" && tries < 10; tries++ {
		step(t, url, time.Second) // longer than a key waits for a long commit
		for _, c := range takeKeys(t, s, a.ID) {
			var err error
			if got, err = deliver(t, s, a.ID, c); err != nil {
				return err
			}
		}
	}
	if got != key+" 2" {
		return errors.New("a batch that was enqueued while its key ran dry is left behind")
	}
	return nil
}

// removalBesideEnqueue has a transaction enqueue to a new key of a queue, or to a known one, and commit while the queue's removal is
// under way.
func removalBesideEnqueue(known bool) func(t *testing.T, url string) error {
	return func(t *testing.T, url string) error {
		queue, key := spare(t, url)
		if !known {
			key = lease.NewID()
		}
		user, removal := begin(t, connect(t, url)), begin(t, connect(t, url))
		if _, err := postgres.Enqueue(t.Context(), user, dispatch.Message{Queue: queue, Key: key, ID: lease.NewID()}); err != nil {
			t.Fatal(err)
		}
		if verdict, err := removes(t, removal, queue); err != nil || verdict != "removed" {
			t.Fatalf("%s, %v", verdict, err)
		}
		committed := later(func() error { return user.Commit(t.Context()) })
		over, err := overOrWaits(t, url, committed)
		commit(t, removal)
		if !over {
			err = <-committed
		}
		if err == nil {
			return errors.New("a message was committed to a queue that is gone")
		}
		return nil
	}
}

// removalBesideCommit: a queue is removed while a message of a known key is being committed, which it counts.
func removalBesideCommit(t *testing.T, url string) error {
	queue, key := spare(t, url)
	user, removal := begin(t, connect(t, url)), begin(t, connect(t, url))
	if _, err := postgres.Enqueue(t.Context(), user, dispatch.Message{Queue: queue, Key: key, ID: lease.NewID()}); err != nil {
		t.Fatal(err)
	}
	if _, err := user.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil { // as COMMIT does first
		t.Fatal(err)
	}
	var verdict string
	removed := later(func() (err error) { verdict, err = removes(t, removal, queue); return err })
	over, err := overOrWaits(t, url, removed)
	commit(t, user)
	if !over {
		err = <-removed
	}
	if err != nil || verdict != "refused" {
		return fmt.Errorf("a queue with a message was removed as one without: %s, %w", verdict, err)
	}
	return nil
}

// spare makes a queue that can be removed, and a key in which there was a message.
func spare(t *testing.T, url string) (queue, key string) {
	t.Helper()
	queue, key = "q"+strings.ToLower(lease.NewID()), "k"
	admin := open(t, url).QueueAdmin()
	err := admin.CreateQueue(t.Context(), queue)
	if err == nil {
		_, err = admin.Add(t.Context(), []dispatch.Message{{Queue: queue, Key: key, ID: "first"}})
	}
	if err == nil {
		err = admin.Act(t.Context(), queue, "first", dispatch.Cancel, "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	return queue, key
}

// removes removes a queue without messages, in a transaction that is left open.
func removes(t *testing.T, tx pgx.Tx, queue string) (verdict string, err error) {
	err = tx.QueryRow(t.Context(), postgres.InSQL("SELECT verdict FROM {{rules}}.remove_queue($1, 0, 'test', 60000)"), queue).Scan(&verdict)
	return verdict, err
}

// deliverHeld delivers a key's head and calls between after the begin.
func deliverHeld(t *testing.T, s *postgres.Store, session string, c claim.Claim, between func()) (dispatch.ExchangeResult, error) {
	t.Helper()
	out, err := s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: work, Session: session, Begin: []claim.Claim{c}, Window: time.Minute})
	if err != nil || len(out.Begun) != 1 {
		return out, fmt.Errorf("begin: %+v, %w", out, err)
	}
	between()
	a := out.Begun[0]
	return s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: work, Session: session,
		Results: []dispatch.Result{{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: 1}}})
}

// gateBehindLook closes a gate behind what someone who falls asleep sees when he looks.
func gateBehindLook(t *testing.T, url string) (closed pgx.Tx) {
	t.Helper()
	closed = begin(t, connect(t, url))
	var there bool
	if err := closed.QueryRow(t.Context(), "SELECT to_regproc('understudy.gated') IS NOT NULL FROM pg_advisory_xact_lock(7)").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if !there {
		exec(t, url, postgres.InSQL(`CREATE FUNCTION understudy.gated(p_space text, p_from timestamptz, t timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
			DECLARE seen boolean := {{rules}}.has_free_key(p_space, p_from, t);
			BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN seen; END $$`))
		sabotage(t, url, "recheck_free_keys", postgres.InSQL("{{rules}}.has_free_key"), "understudy.gated")
	}
	return closed
}

func asleepBesideEnqueue(t *testing.T, url string) error {
	return asleepBesideKey(t, url, "k-"+lease.NewID())
}

func asleepBesideIdleKey(t *testing.T, url string) error {
	key := "k-" + lease.NewID()
	tx := begin(t, connect(t, url))
	enqueue(t, tx, key, lease.NewID()) // asleepBeside delivers it
	commit(t, tx)
	return asleepBesideKey(t, url, key)
}

func asleepBesideKey(t *testing.T, url, key string) error {
	return asleepBeside(t, url, func(tx pgx.Tx) {
		enqueue(t, tx, key, lease.NewID())
		if _, err := tx.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
	})
}

func asleepBesideOffer(t *testing.T, url string) error {
	offer := postgres.InSQL("SELECT {{rules}}.offer_keys($1, ARRAY[$2], 0, 10000)")
	return asleepBeside(t, url, func(tx pgx.Tx) {
		if _, err := tx.Exec(t.Context(), offer, dispatch.Space(work), "k-"+lease.NewID()); err != nil {
			t.Fatal(err)
		}
	})
}

// asleepBeside: one falls asleep while somebody who has made a key ready, and has seen nobody
// sleep, has not committed. It is told that there is something, or woken.
func asleepBeside(t *testing.T, url string, ready func(pgx.Tx)) error {
	s := open(t, url)
	a := start(t, s, "a", time.Hour)
	for _, c := range takeKeys(t, s, a.ID) {
		if _, err := deliver(t, s, a.ID, c); err != nil {
			return err
		}
	}
	exec(t, url, "UPDATE understudy.member SET asleep = false") // whom the last round left behind
	tx := begin(t, connect(t, url))
	ready(tx)
	closed := gateBehindLook(t, url)
	var share claim.Share
	joined := later(func() (err error) {
		share, err = s.Claims().Join(t.Context(), claim.Member{Space: dispatch.Space(work), Session: a.ID, Asleep: true})
		return err
	})
	// It has said that it sleeps, and has looked once, in vain. It looks again for a moment alone.
	waiting(t, url, 1)
	commit(t, tx)
	commit(t, closed)
	if err := <-joined; err != nil {
		return err
	}
	if !share.Free {
		return errors.New("it fell asleep beside a commit and was not told")
	}
	return nil
}

// oldSnapshot: a transaction of a higher isolation level that began before
// another's commit to the same key is told to try again, in the way that is known for it.
func oldSnapshot(t *testing.T, url string) error {
	key := "k-" + lease.NewID()
	tx := begin(t, connect(t, url))
	enqueue(t, tx, key, key+" 0")
	commit(t, tx)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		old, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, old, key, key+string(level))
		tx := begin(t, connect(t, url))
		enqueue(t, tx, key, key+" beside "+string(level))
		commit(t, tx)
		if err := old.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "40001") {
			return fmt.Errorf("%s: commit: %v, want a serialization failure", level, err)
		}
		again, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, again, key, key+string(level))
		if err := again.Commit(t.Context()); err != nil {
			return fmt.Errorf("%s, again: %w", level, err)
		}
	}
	return nil
}

// dueBesideEnqueue: a transaction has enqueued the ID of a message that is due, or has a number in its key, and stays open. What is
// due for other keys does not wait for it; its own key keeps its order.
func dueBesideEnqueue(numbered bool) func(t *testing.T, url string) error {
	return func(t *testing.T, url string) error {
		s, conn := open(t, url), connect(t, url)
		var now time.Time
		if err := conn.QueryRow(t.Context(), "SELECT understudy.clock()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		held, other := "k-"+lease.NewID(), "k-"+lease.NewID()
		ids := []string{lease.NewID(), lease.NewID(), lease.NewID()}
		messages := make([]dispatch.Message, len(ids))
		for i, key := range []string{held, held, other} {
			messages[i] = dispatch.Message{Queue: work, Key: key, ID: ids[i], NotBefore: now.Add(time.Hour + time.Duration(i)*time.Second)}
		}
		if _, err := s.QueueAdmin().Add(t.Context(), messages); err != nil {
			t.Fatal(err)
		}
		user := begin(t, conn)
		seqs := []int64{1, 2, 1}
		if numbered {
			enqueue(t, user, held, lease.NewID())
			if _, err := user.Exec(t.Context(), "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			seqs = []int64{2, 3, 1}
		} else {
			enqueue(t, user, held, ids[0])
		}
		step(t, url, 2*time.Hour)
		if n, err := s.Queue().EnqueueDue(t.Context(), work, 10); err != nil || n != 1 {
			return fmt.Errorf("EnqueueDue = %d, %w, beside an open transaction", n, err)
		}
		if n, err := s.Queue().EnqueueDue(t.Context(), work, 10); n != 0 || !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), held) {
			return fmt.Errorf("EnqueueDue = %d, %w, where all that is due is held", n, err)
		}
		commit(t, user)
		if n, err := s.Queue().EnqueueDue(t.Context(), work, 10); err != nil || n != 2 {
			return fmt.Errorf("EnqueueDue = %d, %w, then", n, err)
		}
		for i, seq := range seqs {
			if r, err := s.QueueAdmin().Message(t.Context(), work, ids[i]); err != nil || r.State != dispatch.Queued || r.Seq != seq {
				return fmt.Errorf("message %d is %s with number %d, %w", i, r.State, r.Seq, err)
			}
		}
		return nil
	}
}

// pruneBesideRetry: a retry has locked an old dead letter, and not yet the end of its key.
func pruneBesideRetry(t *testing.T, url string) error {
	s, key := open(t, url), "k-"+lease.NewID()
	add := begin(t, connect(t, url))
	enqueue(t, add, key, key)
	commit(t, add)
	a := start(t, s, "a", 24*time.Hour)
	c := takeKeys(t, s, a.ID)[0]
	turn := dispatch.Exchange{Queue: work, Session: a.ID, Begin: []claim.Claim{c}, Window: time.Minute}
	out, err := s.Queue().Exchange(t.Context(), turn)
	if err != nil || len(out.Begun) != 1 {
		return fmt.Errorf("begin: %+v, %w", out, err)
	}
	turn.Begin, turn.Results = nil, []dispatch.Result{{Key: key, Term: c.Term, Seq: out.Begun[0].Seq, State: dispatch.Failed, After: dispatch.Next, Attempt: 1}}
	if _, err := s.Queue().Exchange(t.Context(), turn); err != nil {
		return err
	}
	step(t, url, time.Hour)
	counts := func() dispatch.Overview {
		all, err := s.QueueAdmin().Queues(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[slices.IndexFunc(all, func(o dispatch.Overview) bool { return o.Queue == work })]
	}
	before := counts()
	retry := begin(t, connect(t, url))
	if _, err := retry.Exec(t.Context(), "SELECT FROM understudy.batch WHERE id = $1 FOR UPDATE", key); err != nil {
		t.Fatal(err)
	}
	if err := waitsForNobody(t, url, func(ctx context.Context) error {
		_, _, err := s.Queue().Prune(ctx, work, time.Minute, 100)
		return err
	}); err != nil {
		return fmt.Errorf("a pruner beside a retry: %w", err)
	}
	var said string
	if err := retry.QueryRow(t.Context(), postgres.InSQL("SELECT {{rules}}.apply_action($1, $2, 'retry', 'x', 10000)"), work, key).Scan(&said); err != nil || said != "done" {
		return fmt.Errorf("the retry: %q, %w", said, err)
	}
	commit(t, retry)
	if now := counts(); now.DeadLetters != before.DeadLetters-1 || now.Done != before.Done {
		return fmt.Errorf("then %+v, and before %+v", now, before)
	}
	return isFound(t, s, a.ID, key)
}

func pruneKeepsNumbers(t *testing.T, url string) error {
	s := open(t, url)
	key := "k-" + lease.NewID()
	if _, err := s.QueueAdmin().Add(t.Context(), []dispatch.Message{{Queue: work, Key: key, ID: key}}); err != nil {
		return err
	}
	if err := s.QueueAdmin().Act(t.Context(), work, key, dispatch.Cancel, "x"); err != nil {
		return err
	}
	// As if whoever cancelled it had not had the time to mark the key idle.
	exec(t, url, fmt.Sprintf("UPDATE understudy.tail SET last = 0 WHERE key = '%s'", key))
	if n, _, err := s.Queue().Prune(t.Context(), work, 0, 100); err != nil || n == 0 {
		return fmt.Errorf("Prune = %d, %w", n, err)
	}
	if _, err := s.QueueAdmin().Add(t.Context(), []dispatch.Message{{Queue: work, Key: key, ID: key}}); err != nil {
		return err
	}
	if r, err := s.QueueAdmin().Message(t.Context(), work, key); err != nil || r.Seq != 2 {
		return fmt.Errorf("seq %d after the first was pruned, %w", r.Seq, err)
	}
	return nil
}

// TestEnqueueUnderLoad: transactions of all kinds to a few keys in any order,
// beside several that deliver. Nothing is lost or doubled, what one client committed
// first is delivered first, and transactions at READ COMMITTED never fail.
func TestEnqueueUnderLoad(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, _ := workplace(t, server)
	clients, rounds := 5, 120
	if testing.Short() {
		clients, rounds = 3, 40
	}
	var mu sync.Mutex
	committed, delivered := map[string]bool{}, map[string][]string{} // by key, in order
	var enqueueing, delivering sync.WaitGroup
	for n := range clients {
		conn := connect(t, url)
		enqueueing.Go(func() {
			for i := range rounds {
				ids, err := anyTransaction(t.Context(), conn, fmt.Sprintf("%d %04d", n, i))
				if err != nil {
					t.Errorf("client %d: %v", n, err)
				}
				mu.Lock()
				for _, id := range ids {
					committed[id] = true
				}
				mu.Unlock()
			}
		})
	}
	var done atomic.Bool
	for range 3 {
		s, me := open(t, url), start(t, s, "d", time.Hour)
		delivering.Go(func() {
			for idle := 0; idle < 2; {
				over := done.Load()
				claims := takeKeys(t, s, me.ID)
				if len(claims) == 0 && over {
					idle++
					<-time.After(150 * time.Millisecond) // longer than a key waits for a long commit
				}
				for _, c := range claims {
					for {
						id, err := deliver(t, s, me.ID, c)
						if err != nil {
							t.Errorf("deliver: %v", err)
						}
						if id == "" {
							break
						}
						mu.Lock()
						delivered[c.Key] = append(delivered[c.Key], id)
						mu.Unlock()
					}
				}
			}
		})
	}
	enqueueing.Wait()
	done.Store(true)
	delivering.Wait()
	total := 0
	for key, ids := range delivered {
		last := map[byte]string{}
		for _, id := range ids {
			total++
			if !committed[id] {
				t.Errorf("%s: delivered %q twice, or it was never committed", key, id)
			}
			delete(committed, id)
			if last[id[0]] >= id {
				t.Errorf("%s: delivered %q after %q of the same client", key, id, last[id[0]])
			}
			last[id[0]] = id
		}
	}
	if len(committed) > 0 {
		t.Errorf("%d of %d batches were left behind", len(committed), total+len(committed))
	}
	t.Logf("%d batches", total)
}

// anyTransaction enqueues to a few keys in any order, at any isolation level, with
// savepoints and rollbacks, and returns what it has committed.
func anyTransaction(ctx context.Context, conn *pgx.Conn, name string) (ids []string, err error) {
	level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[rand.N(4)]
	for try := 0; ; try++ {
		ids = nil
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			return nil, err
		}
		for i := range 1 + rand.N(4) {
			key := fmt.Sprint("k", rand.N(5))
			id := fmt.Sprintf("%s %d %d %s", name, i, try, key)
			part := tx
			if rand.N(3) == 0 {
				if part, err = tx.Begin(ctx); err != nil {
					return nil, err
				}
			}
			if _, err = postgres.Enqueue(ctx, part, dispatch.Message{Queue: work, Key: key, ID: id}); err != nil {
				break
			}
			kept := true
			if part != tx {
				if kept = rand.N(2) == 0; kept {
					err = part.Commit(ctx)
				} else {
					err = part.Rollback(ctx)
				}
			}
			if kept {
				ids = append(ids, id)
			}
		}
		if err == nil && rand.N(10) == 0 {
			return nil, tx.Rollback(ctx)
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err == nil {
			return ids, nil
		}
		_ = tx.Rollback(ctx)
		if level == pgx.ReadCommitted || !strings.Contains(err.Error(), "40001") && !strings.Contains(err.Error(), "40P01") {
			return nil, fmt.Errorf("%s: %w", level, err)
		}
	}
}
