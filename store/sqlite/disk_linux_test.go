package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// roomy is the size of a disk that holds more than the log may grow to.
const roomy = "16m"

func TestDiskFull(t *testing.T) {
	dir := realserver.SmallDisk(t, roomy)
	s := openAt(t, filepath.Join(dir, "store.db"))
	n := start(t, s)
	acknowledged := survives(t, s, n, func() func() { return realserver.FillDisk(t, dir) })
	t.Logf("%d leases were taken before and between full disks", acknowledged)
}

// The same where nothing can be mounted: SQLite itself refuses to let the file
// grow.
func TestFileFull(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	n := start(t, s)
	limit := func(pages int) {
		t.Helper()
		var got int
		if err := s.writer.conn.QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	survives(t, s, n, func() func() {
		var pages int
		if err := s.writer.conn.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		limit(pages)
		return func() { limit(1 << 30) }
	})
}

// A turn that does not fit leaves everything as it was, and is done when there is
// room again.
func TestDiskFullDuringTurns(t *testing.T) {
	dir := realserver.SmallDisk(t, roomy)
	s := openAt(t, filepath.Join(dir, "store.db"))
	me := start(t, s)
	const keys, each = 40, 60
	if err := s.QueueAdmin().CreateQueue(t.Context(), "jobs"); err != nil {
		t.Fatal(err)
	}
	for range each {
		var batches []dispatch.Message
		for k := range keys {
			batches = append(batches, dispatch.Message{Queue: "jobs", Key: fmt.Sprint(k), Payload: []byte("x")})
		}
		if _, err := s.QueueAdmin().Add(t.Context(), batches); err != nil {
			t.Fatal(err)
		}
	}
	held, err := s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space("jobs"), Session: me.ID, Limit: keys, Fresh: keys})
	if err != nil || len(held) != keys {
		t.Fatalf("ClaimKeys = %d keys, %v", len(held), err)
	}
	turn := dispatch.Exchange{Queue: "jobs", Session: me.ID, Begin: held, Window: time.Hour}
	last, full := map[string]int64{}, 0
	var room func() // not nil: the disk is full
	for n := 0; len(turn.Begin) > 0; n++ {
		if n%10 == 5 && room == nil {
			room = realserver.FillDisk(t, dir)
		}
		out, err := s.Queue().Exchange(t.Context(), turn)
		if err != nil {
			if room == nil || !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("Exchange: %v; want ErrUnavailable, on a full disk", err)
			}
			full++
			room()
			room = nil
			continue // the same again
		}
		for _, r := range out.Receipts {
			if !r.Accepted {
				t.Fatalf("the result of number %d of %s was not accepted", r.Seq, r.Key)
			}
		}
		turn.Results, turn.Begin = nil, nil
		for _, a := range out.Begun {
			if a.Seq != last[a.Key]+1 || a.Work != dispatch.Send || a.Attempt != 1 {
				t.Fatalf("after number %d of %s: %+v", last[a.Key], a.Key, a)
			}
			last[a.Key] = a.Seq
			// Something to write down, so that the file has to grow.
			detail := strings.Repeat("d", 800)
			turn.Results = append(turn.Results, dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, Attempt: 1,
				State: dispatch.Committed, After: dispatch.Next, Detail: detail})
			turn.Begin = append(turn.Begin, claim.Claim{Key: a.Key, Term: a.Term})
		}
	}
	if room != nil {
		room()
	}
	if full == 0 {
		t.Error("the disk was never full: this proves nothing")
	}
	qs, err := s.QueueAdmin().Queues(t.Context())
	if err != nil || qs[0].Done != keys*each || qs[0].Depth != 0 {
		t.Errorf("in the end: %+v, %v", qs, err)
	}
	t.Logf("%d turns met a full disk", full)
}

func start(t *testing.T, s *Store) lease.Session {
	t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("a", ""), Timing: lease.Timing{Timeout: lease.MaxTimeout}.WithDefaults()}
	if _, err := s.StartSession(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// survives takes leases until there is no room, makes room, and continues, several
// times; then it checks that everything acknowledged is there. It returns how
// many that are.
func survives(t *testing.T, s *Store, n lease.Session, noRoom func() (room func())) int {
	terms := map[lease.ID]int64{}
	grab := func() error {
		id := lease.ID{Space: "role", Key: fmt.Sprintf("%d-%s", len(terms), strings.Repeat("k", 150))}
		before, err := s.Get(t.Context(), id)
		if err != nil {
			return err
		}
		l, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: n.ID, Seen: before.Seen()})
		if err == nil {
			terms[id] = l.Term
		}
		return err
	}
	for range 20 {
		if err := grab(); err != nil {
			t.Fatalf("with room: %v", err)
		}
	}
	for round := range 3 {
		room := noRoom()
		var err error
		for tries := 0; err == nil && tries < 5000; tries++ {
			err = grab()
		}
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("round %d, without room: %v, want ErrUnavailable", round, err)
		}
		t.Logf("round %d: %v", round, err)
		room()
		for range 20 {
			if err := grab(); err != nil {
				t.Fatalf("round %d, with room again: %v", round, err)
			}
		}
		if _, err := s.RenewSession(t.Context(), n.ID); err != nil {
			t.Errorf("round %d: RenewSession with room again: %v", round, err)
		}
	}
	for id, term := range terms {
		if l, err := s.Get(t.Context(), id); err != nil || l.Term != term || l.Session != n.ID {
			t.Errorf("what was acknowledged as term %d is now %+v, %v", term, l, err)
		}
	}
	var verdict string
	if err := s.readers.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity check: %s, %v", verdict, err)
	}
	return len(terms)
}
