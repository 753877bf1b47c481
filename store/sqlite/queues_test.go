package sqlite_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func TestClaimConformance(t *testing.T) {
	claimtest.Run(t, func(t *testing.T) *claimtest.Harness {
		opens, step := stepped(t)
		return &claimtest.Harness{Open: func(t *testing.T) claimtest.Store { return opens(t) }, Step: step}
	})
}

func TestDispatchConformance(t *testing.T) {
	dispatchtest.Run(t, func(t *testing.T) *dispatchtest.Harness {
		opens, step := stepped(t)
		return &dispatchtest.Harness{Open: func(t *testing.T) dispatchtest.Store { return opens(t) }, Step: step}
	})
}

func TestClaimsAreLinearizable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	claimtest.CheckLinearizable(t, func(t *testing.T) claimtest.Store {
		return open(t, sqlite.Config{Path: path})
	}, claimtest.Concurrent{})
}

func TestDispatchKeepsOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	dispatchtest.CheckOrder(t, func(t *testing.T) dispatchtest.Store {
		return open(t, sqlite.Config{Path: path})
	}, dispatchtest.Concurrent{})
}

// After a reboot nobody works on what was started before it: the keys of those
// sessions are free as soon as the wall clock says that they have lapsed, also
// those in a step.
func TestClaimsAfterAReboot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	before := open(t, sqlite.Config{Path: path, BootID: "before", Clock: c, Wall: c.Wall})
	fresh := &clock{Clock: lease.BootClock()}
	fresh.step(-fresh.Now())
	after := open(t, sqlite.Config{Path: path, BootID: "after", Clock: fresh, Wall: c.Wall})

	timing := lease.Timing{Interval: 10 * time.Second, Timeout: time.Minute}
	old := session(t, before, "old", timing)
	work := before.Claims()
	if err := work.Offer(t.Context(), "work", []string{"idle", "step"}, 0); err != nil {
		t.Fatal(err)
	}
	held, err := work.ClaimKeys(t.Context(), claim.ClaimRequest{Space: "work", Session: old.ID, Limit: 10, Fresh: 10})
	if err != nil || len(held) != 2 {
		t.Fatalf("Take = %+v, %v", held, err)
	}
	for _, h := range held {
		if h.Key == "step" {
			if _, err := work.StartSteps(t.Context(), "work", old.ID, time.Hour, []claim.Claim{h}); err != nil {
				t.Fatal(err)
			}
		}
	}
	me := session(t, after, "me", patient)
	take := func() []claim.Claim {
		t.Helper()
		got, err := after.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: "work", Session: me.ID, Limit: 10, Fresh: 10})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := take(); len(got) != 0 {
		t.Errorf("taken before the old sessions can have lapsed: %+v", got)
	}
	c.step(timing.Timeout + 10*time.Second)
	rows, err := after.Claims().List(t.Context(), claim.Query{Space: "work"})
	if err != nil || len(rows) != 2 || !rows[0].IsFree() || !rows[1].IsFree() || rows[1].Holder != old.Instance {
		t.Errorf("List = %+v, %v; want both free", rows, err)
	}
	got := take()
	if len(got) != 2 || got[0].Interrupted == got[1].Interrupted {
		t.Errorf("taken after it: %+v; want both, one of them interrupted", got)
	}
	if _, err := work.StartSteps(t.Context(), "work", old.ID, time.Hour, held); err != nil && !errors.Is(err, lease.ErrLapsed) {
		t.Error(err)
	}
	if got, err := after.Claims().StartSteps(t.Context(), "work", old.ID, time.Hour, held); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("StartSteps by a session of another boot = %+v, %v", got, err)
	}
}

// The clock that was stepped back behind the last renewal says nothing.
func TestClaimsAfterARebootIntoThePast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	past := &clock{Clock: lease.BootClock()}
	past.step(-48 * time.Hour)
	before := open(t, sqlite.Config{Path: path, BootID: "before"})
	after := open(t, sqlite.Config{Path: path, BootID: "after", Clock: past, Wall: past.Wall})
	old := session(t, before, "old", patient)
	if err := before.Claims().Offer(t.Context(), "work", []string{"x"}, -72*time.Hour); err != nil {
		t.Fatal(err)
	}
	for who, s := range map[*sqlite.Store]lease.Session{before: old} {
		if got, err := who.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: "work", Session: s.ID, Limit: 1, Fresh: 1}); err != nil || len(got) != 1 {
			t.Fatalf("Take = %+v, %v", got, err)
		}
	}
	me := session(t, after, "me", patient)
	got, err := after.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: "work", Session: me.ID, Limit: 1, Fresh: 1})
	if err != nil || len(got) != 1 {
		t.Errorf("Take = %+v, %v; want the key", got, err)
	}
}

// In a bubble the store lives by its injected clocks.
func TestQueuesInABubble(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &leasetest.BubbleClock{}
		l := newLine(t, sqlite.Config{Path: filepath.Join(dir, "store.db"), Clock: c, Wall: c.Wall})
		l.me = session(t, l.Store, "me", lease.Timing{Interval: time.Hour, Timeout: 24 * time.Hour})
		woken := make(chan lease.Change, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan error)
		go func() { over <- l.Watch(ctx, func(c lease.Change) { woken <- c }) }()
		<-woken
		if _, err := l.Claims().Join(ctx, claim.Member{Space: dispatch.Space(jobs), Session: l.me.ID, Asleep: true}); err != nil {
			t.Fatal(err)
		}
		db := plain(t, l.path)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Enqueue(t.Context(), tx, batch("k", "1")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		want := lease.Change{Lease: claim.WakeID(dispatch.Space(jobs)), Free: true, Successor: l.me.ID}
		if got := <-woken; got != want {
			t.Errorf("woken by %+v, want %+v", got, want)
		}
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("woken after %v", took)
		}
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Watch: %v", err)
		}
		a := l.turn(nil, l.take(1)).Begun[0]
		out := l.turn([]dispatch.Result{{Key: a.Key, Term: a.Term, Seq: 1, State: dispatch.Delayed, After: dispatch.RetryLater, Wait: time.Hour, Attempt: 1}}, nil)
		if out.Holdings["k"] != dispatch.Released {
			t.Errorf("standing %q", out.Holdings["k"])
		}
		time.Sleep(time.Hour - time.Millisecond)
		if got := l.take(1); len(got) != 0 {
			t.Errorf("taken too soon: %+v", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := l.turn(nil, l.take(1)).Begun; len(got) != 1 || got[0].Attempt != 2 {
			t.Errorf("begun after an hour: %+v", got)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A store of the first schema gets the later ones with all that it has.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	n := session(t, s, "a", patient)
	held := take(t, s, n, "r")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := plain(t, path)
	for _, text := range []string{
		"DROP VIEW batches", "DROP VIEW batch_statuses", "DROP VIEW service_id_claims", "DROP VIEW vnf_table_1", "DROP VIEW vnf_table_2", "DROP VIEW hb_common", "DROP TRIGGER understudy_monitor_member_left",
		"DROP TABLE understudy_monitor", "DROP TABLE understudy_monitor_event", "DROP TABLE understudy_monitor_count",
		"DROP TABLE understudy_monitor_source", "DROP TABLE understudy_monitor_beat", "DROP TABLE understudy_monitor_path",
		"DROP TABLE understudy_monitor_alarm", "DROP TABLE understudy_monitor_report", "DROP TABLE understudy_monitor_sink", "DROP TABLE understudy_monitor_member",
		"DROP TABLE understudy_shard", "DROP TABLE understudy_shard_node", "DROP TABLE understudy_shard_lock",
		"DROP TABLE understudy_shard_command", "DROP TABLE understudy_shard_wake", "DROP VIEW understudy_enqueue", "DROP TABLE understudy_batch", "DROP TABLE understudy_scheduled", "DROP TABLE understudy_payload", "DROP TABLE understudy_queue",
		"DROP TABLE understudy_wake", "DROP TABLE understudy_member", "DROP TABLE understudy_claim", "DROP TRIGGER understudy_session_left",
		"DROP TABLE understudy_token", "DROP TABLE understudy_lease_state", "ALTER TABLE understudy_lease DROP COLUMN places", "DROP TABLE understudy_job", "DROP TABLE understudy_job_run",
		"DELETE FROM understudy_schema WHERE version > 1", "DROP TABLE understudy_step",
	} {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	s = open(t, sqlite.Config{Path: path, NoMigrate: true})
	if info, err := s.Inspect(t.Context()); err != nil || info.Schema != 1 {
		t.Fatalf("Inspect = %+v, %v; want schema 1", info, err)
	}
	if from, to, err := s.Migrate(t.Context()); err != nil || from != 1 || to != 14 {
		t.Fatalf("Migrate = %d, %d, %v", from, to, err)
	}
	if l, err := s.Get(t.Context(), held.ID); err != nil || l.Term != held.Term || l.Session != n.ID {
		t.Errorf("after the upgrade the lease is %+v, %v", l, err)
	}
	if err := s.QueueAdmin().CreateQueue(t.Context(), jobs); err != nil {
		t.Error(err)
	}
}

// Payloads are read as far as there is room; whose turn did not come is ready.
func TestATurnReadsBoundedPayloads(t *testing.T) {
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	for _, key := range []string{"a", "b", "c"} {
		if _, err := l.QueueAdmin().Add(t.Context(), []dispatch.Message{{Queue: jobs, Key: key, Payload: make([]byte, 7<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	out := l.turn(nil, l.take(3))
	if len(out.Begun) != 2 || out.Holdings["c"] != dispatch.Ready {
		t.Fatalf("begun %d, standing %v; want 2, and c ready", len(out.Begun), out.Holdings)
	}
	results, next := committed(out.Begun)
	out = l.turn(results, append(next, claim.Claim{Key: "c", Term: l.term("c")}))
	if len(out.Begun) != 1 || out.Begun[0].Key != "c" || len(out.Begun[0].Payload) != 7<<20 || out.Holdings["a"] != dispatch.Released {
		t.Errorf("then begun %d, standing %v", len(out.Begun), out.Holdings)
	}
}

// term is that of a key.
func (l *line) term(key string) int64 {
	l.Helper()
	rows, err := l.Claims().List(l.Context(), claim.Query{Space: dispatch.Space(jobs)})
	if err != nil {
		l.Fatal(err)
	}
	for _, r := range rows {
		if r.Key == key {
			return r.Term
		}
	}
	l.Fatalf("no key %q", key)
	return 0
}

// What is remembered of wakings and members does not grow.
func TestWakingsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &clock{Clock: lease.BootClock()}
	l := newLine(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall})
	join := func(session string) {
		t.Helper()
		if _, err := l.Claims().Join(t.Context(), claim.Member{Space: "work", Session: session, Asleep: true}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		join(session(t, l.Store, "again", lease.Timing{Interval: 5 * time.Second, Timeout: 30 * time.Second}).ID)
		c.step(time.Minute)
	}
	if n := count(t, path, "understudy_member"); n != 1 {
		t.Errorf("%d members, want the last one", n)
	}
	if _, err := plain(t, path).Exec(`
WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 3000)
INSERT INTO understudy_wake (space, session) SELECT 'work', 's' FROM i`); err != nil {
		t.Fatal(err)
	}
	if n := count(t, path, "understudy_wake"); n != 1000 {
		t.Errorf("%d wakings are kept", n)
	}
}

// 25,000 batches wait over 2,500 keys, and in make prove four times as many: the shares, lists and turns still work,
// and the oldest come first.
func TestALongQueue(t *testing.T) {
	batches, keys := 25_000, 2500
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		batches, keys = 100_000, 10_000
	}
	program := realserver.Find(t, "sqlite3") // which is quicker than this driver
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	if out, err := exec.Command(program, l.path, fillSQL(0, batches, keys)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	qs, err := l.QueueAdmin().Queues(t.Context())
	if err != nil || int(qs[0].Depth) != batches || int(qs[0].Keys) != keys {
		t.Fatalf("Queues = %+v, %v", qs, err)
	}
	held := l.take(500)
	if len(held) != 500 {
		t.Fatalf("%d keys taken", len(held))
	}
	as := l.turn(nil, held).Begun
	for round := int64(1); round <= 10; round++ {
		if len(as) != 500 {
			t.Fatalf("round %d: %d batches", round, len(as))
		}
		for _, a := range as {
			if a.Seq != round {
				t.Fatalf("round %d: number %d of %s", round, a.Seq, a.Key)
			}
		}
		results, next := committed(as)
		as = l.turn(results, next).Begun
	}
	if len(as) != 0 {
		t.Errorf("%d batches too many", len(as))
	}
	qs, err = l.QueueAdmin().Queues(t.Context())
	if err != nil || int(qs[0].Depth) != batches-5000 || qs[0].Done != 5000 || int(qs[0].Keys) != keys-500 {
		t.Errorf("Queues = %+v, %v", qs, err)
	}
	for _, want := range []struct {
		n       int
		through bool
	}{{3000, false}, {2000, true}, {0, true}} {
		n, through, err := l.Queue().Prune(t.Context(), jobs, -time.Minute, 3000)
		if err != nil || n != want.n || through != want.through {
			t.Errorf("Prune = %d, %t, %v; want %d, %t", n, through, err, want.n, want.through)
		}
	}
	for _, table := range []string{"understudy_batch", "understudy_payload"} {
		if n := count(t, l.path, table); n != batches-5000 {
			t.Errorf("%s has %d rows left", table, n)
		}
	}
}
