package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// startSessions starts sessions in a new database.
func startSessions(t *testing.T, count int) (s *postgres.Store, url string, ids []string) {
	t.Helper()
	url = realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	s = open(t, url)
	for i := range count {
		id := fmt.Sprintf("session-%d", i)
		_, err := s.StartSession(amply(t), lease.Session{ID: id, Instance: lease.NewInstance(id, ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return s, url, ids
}

// renewAll renews all sessions at the same time.
func renewAll(ctx context.Context, s lease.Store, ids []string) (renewed map[string]lease.Renewal, failed map[string]error) {
	renewed, failed = map[string]lease.Renewal{}, map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			r, err := s.RenewSession(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[id] = err
			} else {
				renewed[id] = r
			}
		})
	}
	all.Wait()
	return renewed, failed
}

// Sessions of one process that are renewed at the same time share statements.
func TestRenewedTogether(t *testing.T) {
	s, url, ids := startSessions(t, 50)
	conn := connect(t, url)
	seq := int64(1)
	realserver.Eventually(t, ample, "sessions share a statement", func() error {
		seq++
		renewed, failed := renewAll(amply(t), s, ids)
		for id, err := range failed {
			t.Fatalf("%s: %v", id, err)
		}
		for id, r := range renewed {
			if r.Seq != seq {
				t.Fatalf("%s: renewed %d times; want %d", id, r.Seq, seq)
			}
		}
		var statements int
		if err := conn.QueryRow(t.Context(), "SELECT count(DISTINCT xmin::text) FROM understudy.session").Scan(&statements); err != nil {
			t.Fatal(err)
		}
		if statements > len(ids)/2 {
			return fmt.Errorf("%d statements renewed %d sessions", statements, len(ids))
		}
		return nil
	})
}

// What a renewal brings does not depend on whether it is sent with others; those that have ended are refused.
func TestRenewedTogetherShows(t *testing.T) {
	plain, url, ids := startSessions(t, 4)
	s := postgres.Together{Store: plain}
	holder, waiter, ended, lapsed := ids[0], ids[1], ids[2], ids[3]
	billing := lease.ID{Space: "role", Key: "billing"}
	l, err := s.Acquire(amply(t), lease.Expectation{Lease: billing, Session: holder})
	if err == nil {
		err = s.RequestRelease(amply(t), billing, "next", "operator")
	}
	if err == nil {
		_, err = s.Join(amply(t), billing, waiter)
	}
	if err == nil {
		err = s.EndSession(amply(t), ended, "stopped")
	}
	if err != nil {
		t.Fatal(err)
	}
	exec(t, url, "UPDATE understudy.session SET deadline = clock_timestamp() WHERE id = '"+lapsed+"'")
	renewed, failed := renewAll(amply(t), s, append(ids, "unknown"))
	for _, id := range []string{ended, lapsed, "unknown"} {
		if !errors.Is(failed[id], lease.ErrLapsed) {
			t.Errorf("renewing %s: %v; want ErrLapsed", id, failed[id])
		}
	}
	if r := renewed[holder]; r.Changes != l.Term || len(r.Waits) != 0 {
		t.Errorf("the holder was shown %+v; want that its lease was asked for", r)
	}
	if r := renewed[waiter]; r.Changes != 0 || len(r.Waits) != 1 || r.Waits[0].Session != holder || !r.Waits[0].ReleaseRequested {
		t.Errorf("the standby was shown %+v; want the lease", r)
	}
	exec(t, url, "UPDATE understudy.session SET deadline = clock_timestamp() + '1 hour' WHERE id = '"+lapsed+"'")
	if _, err := s.RenewSession(amply(t), lapsed); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("renewing again what was refused once: %v; want ErrLapsed", err)
	}

	// The first attempt renews it and is undone at its COMMIT; those that follow find no row that they could renew.
	exec(t, url, `CREATE SEQUENCE attempts;
		CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('attempts') > 1 THEN RETURN NULL; END IF; RETURN NEW; END $$;
		CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE serialization_failure; END $$;
		CREATE TRIGGER skip BEFORE UPDATE ON understudy.session FOR EACH ROW EXECUTE FUNCTION skip();
		CREATE CONSTRAINT TRIGGER undo AFTER UPDATE ON understudy.session DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION undo()`)
	if r, err := s.RenewSession(amply(t), waiter); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("a renewal that was undone: %+v, %v; want ErrLapsed", r, err)
	}
}

// A session that someone has locked does not hold up those that are renewed with it.
func TestRenewedBesideALockedOne(t *testing.T) {
	plain, url, ids := startSessions(t, 3)
	s := postgres.Together{Store: plain}
	tx := begin(t, connect(t, url))
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.session WHERE id = $1 FOR UPDATE", ids[0]); err != nil {
		t.Fatal(err)
	}
	var locked sync.WaitGroup
	locked.Go(func() {
		if _, err := s.RenewSession(amply(t), ids[0]); err != nil {
			t.Errorf("the locked session: %v", err)
		}
	})
	if _, failed := renewAll(amply(t), s, ids[1:]); len(failed) > 0 {
		t.Errorf("beside a locked session: %v", failed)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	locked.Wait()
}

// A renewal that was not sent when its caller gave up was not made.
func TestRenewalGivenUp(t *testing.T) {
	plain, _, ids := startSessions(t, 1)
	s := postgres.Together{Store: plain}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, givenUp := s.RenewSession(ctx, ids[0])
	r, err := s.RenewSession(amply(t), ids[0])
	switch {
	case err != nil:
		t.Fatal(err)
	case errors.Is(givenUp, lease.ErrUnavailable) && r.Seq != 2, errors.Is(givenUp, lease.ErrUnknown) && r.Seq > 3:
		t.Errorf("given up with %v, and then renewed as number %d", givenUp, r.Seq)
	case !errors.Is(givenUp, lease.ErrUnavailable) && !errors.Is(givenUp, lease.ErrUnknown):
		t.Errorf("given up with %v", givenUp)
	}
}

// A session that renews again at once, with nobody beside it, waits for nobody.
func TestRenewedAloneAtOnce(t *testing.T) {
	s, url, ids := startSessions(t, 1)
	sabotage(t, url, "renew_sessions", "PERFORM", "RAISE EXCEPTION 'sent as if there were others'; PERFORM")
	for range 20 {
		if _, err := s.RenewSession(amply(t), ids[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// A batch of renewals that hangs does not keep those behind it.
func TestRenewalsBehindABatchThatHangs(t *testing.T) {
	sent, hangs := make(chan int), make(chan struct{})
	defer close(hangs)
	var one atomic.Bool
	go postgres.SendRenewals(1600, 3, func(size int) {
		if !one.Swap(true) {
			<-hangs
		}
		select {
		case sent <- size:
		case <-t.Context().Done():
		}
	})
	total := 0
	for total < 1100 { // all but the 500 of the first batch
		select {
		case size := <-sent:
			total += size
		case <-amply(t).Done():
			t.Fatalf("%d of 1,100 renewals behind a batch that hangs were sent", total)
		}
	}
}

// However many batches hang, other calls have a connection left.
func TestRenewalsLeaveAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for connections := 2; connections <= 4; connections++ {
			hangs := make(chan struct{})
			var under atomic.Int32
			go postgres.SendRenewals(1600, connections, func(int) {
				under.Add(1)
				<-hangs
			})
			synctest.Wait()
			if n := under.Load(); n != int32(min(2, connections-1)) {
				t.Errorf("%d batches hang on %d connections", n, connections)
			}
			close(hangs)
			synctest.Wait()
		}
	})
}
