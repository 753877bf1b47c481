package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// The window of the steps of those who deliver, and are killed. Nobody else may be so slow
// as to have his effect after it.
const quickWindow = 10 * time.Second

// deliverer is an instance at its simplest: it takes what there is, and has an
// effect for each batch in a file that plays the target.
type deliverer struct {
	store  *sqlite.Store
	target *sql.DB
	me     atomic.Pointer[string] // its session
}

func childDelivers(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*ample)
	defer cancel()
	if err := deliver(ctx, path); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func deliver(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	target, err := sql.Open("sqlite", path+".target?_pragma=busy_timeout(120000)")
	if err != nil {
		return err
	}
	d := &deliverer{store: s, target: target}
	if err := d.start(ctx); err != nil {
		return err
	}
	go d.renew(ctx)
	var results []dispatch.Result
	for {
		me := *d.me.Load()
		held, err := s.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: dispatch.Space(jobs), Session: me, Limit: 10, Fresh: 10})
		if errors.Is(err, lease.ErrLapsed) { // on a machine that is busy with others
			if err = d.start(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.After == dispatch.Next {
				held = append(held, claim.Claim{Key: r.Key, Term: r.Term})
			}
		}
		if len(held)+len(results) == 0 {
			<-time.After(2 * time.Millisecond)
			continue
		}
		t, err := s.Queue().Exchange(ctx, dispatch.Exchange{Queue: jobs, Session: me, Results: results, Begin: held, Window: quickWindow})
		if err != nil {
			return err
		}
		results = results[:0]
		for _, a := range t.Begun {
			r, err := d.send(a)
			if err != nil {
				return err
			}
			results = append(results, r)
		}
	}
}

// start starts a session.
func (d *deliverer) start(ctx context.Context) error {
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(fmt.Sprint(os.Getpid()), ""), Timing: quick}
	_, err := d.store.StartSession(ctx, n)
	if err == nil {
		d.me.Store(&n.ID)
	}
	return err
}

// renew renews the session that it is in.
func (d *deliverer) renew(ctx context.Context) {
	for {
		<-time.After(quick.Interval)
		if _, err := d.store.RenewSession(ctx, *d.me.Load()); err != nil && !errors.Is(err, lease.ErrLapsed) {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
}

// send has the effect, or finds out whether someone had it, or fails.
func (d *deliverer) send(a dispatch.Assignment) (dispatch.Result, error) {
	r := dispatch.Result{
		Key: a.Key, Term: a.Term, Seq: a.Seq, Attempt: a.Attempt, State: dispatch.Committed, After: dispatch.Next, Code: 200,
	}
	if a.Work == dispatch.Resolve {
		var had int
		err := d.target.QueryRow("SELECT count(*) FROM effect WHERE id = ?", a.ID).Scan(&had)
		if had == 0 {
			r.State, r.After, r.Code = dispatch.Delayed, dispatch.RetryLater, 404
		}
		return r, err
	}
	chance := rand.N(10)
	if chance == 0 { // it did not take it
		r.State, r.After, r.Wait, r.Code = dispatch.Delayed, dispatch.RetryLater, 5*time.Millisecond, 503
		return r, nil
	}
	_, err := d.target.Exec("INSERT INTO effect (key, seq, id, pid) VALUES (?, ?, ?, ?)", a.Key, a.Seq, a.ID, os.Getpid())
	if chance == 1 { // its answer was lost
		r.State, r.After, r.Wait, r.Code = dispatch.Unknown, dispatch.RetryLater, 5*time.Millisecond, 0
	}
	return r, err
}

// Those who deliver are killed, at any moment: nothing is lost, nothing has its
// effect twice, and no key gets out of order.
func TestDeliverersAreKilled(t *testing.T) {
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	target := plain(t, l.path+".target?_pragma=busy_timeout(120000)&_journal_mode=WAL")
	if _, err := target.Exec("CREATE TABLE effect (n INTEGER PRIMARY KEY, key TEXT, seq INTEGER, id TEXT, pid INTEGER); CREATE INDEX effect_id ON effect (id)"); err != nil {
		t.Fatal(err)
	}
	kills, batches := 40, 2000
	if testing.Short() {
		kills, batches = 10, 600
	}
	start := func() *realserver.Process { return realserver.Start(t, child(t, "deliver", l.path)) }
	procs := []*realserver.Process{start(), start(), start()}
	enqueued := make(chan error, 1)
	go func() { enqueued <- enqueueMany(t.Context(), l, batches) }()
	for range kills {
		<-time.After(time.Duration(100+rand.N(400)) * time.Millisecond)
		i := rand.N(len(procs))
		if procs[i].Exited() {
			t.Fatalf("one who delivers ended by itself: %s", procs[i].Output())
		}
		procs[i].Kill()
		procs[i] = start()
	}
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	realserver.Eventually(t, 2*ample, "all of it delivered", func() error {
		qs, err := l.QueueAdmin().Queues(t.Context())
		if err != nil || len(qs) != 1 || qs[0].Depth != 0 || qs[0].Done != int64(batches) {
			return fmt.Errorf("%+v, %v", qs, err)
		}
		return nil
	})
	for _, p := range procs {
		p.Kill()
	}
	judge(t, l, target, batches)
}

// enqueueMany enqueues for 15 keys, in the manner of a user's program.
func enqueueMany(ctx context.Context, l *line, batches int) error {
	db, err := sql.Open("sqlite", l.path+"?_pragma=busy_timeout(120000)")
	if err != nil {
		return err
	}
	defer db.Close()
	for i := 0; i < batches; i += 10 {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		var some []dispatch.Message
		for n := range 10 {
			some = append(some, batch(fmt.Sprint("k", rand.N(15)), fmt.Sprint(i+n)))
		}
		if _, err := sqlite.Enqueue(ctx, tx, some...); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
	return nil
}

func judge(t *testing.T, l *line, target *sql.DB, batches int) {
	t.Helper()
	rows, err := target.Query("SELECT key, seq, id FROM effect ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last, n := map[string]int64{}, 0
	for rows.Next() {
		var key, id string
		var seq int64
		if err := rows.Scan(&key, &seq, &id); err != nil {
			t.Fatal(err)
		}
		if seq != last[key]+1 {
			t.Errorf("%s: number %d (%s) has its effect after number %d", key, seq, id, last[key])
		}
		last[key] = seq
		n++
	}
	if n != batches {
		t.Errorf("%d effects of %d batches", n, batches)
	}
	if n := count(t, l.path, "understudy_batch WHERE state <> 'committed'"); n != 0 {
		t.Errorf("%d batches are not committed", n)
	}
	asked := count(t, l.path, `understudy_batch WHERE trail LIKE '%"unknown"%'`)
	interrupted := count(t, l.path, `understudy_batch WHERE trail LIKE '%interrupted%'`)
	t.Logf("%d batches, %d of them unknown for a while, %d because their instance was killed", batches, asked, interrupted)
	if interrupted == 0 {
		t.Error("nobody was killed in the middle of a step: this proves little")
	}
	if got := integrity(t, plain(t, l.path)); got != "ok" {
		t.Errorf("integrity check: %s", got)
	}
}
