package sqlite

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// aheadClock is this host's, by so much ahead.
type aheadClock struct {
	lease.Clock
	by time.Duration
}

func (c *aheadClock) Now() time.Duration { return c.Clock.Now() + c.by }
func (c *aheadClock) Wall() time.Time    { return c.Clock.Wall().Add(c.by) }

// damagedFile is the file of a store, of which pages are cleared.
type damagedFile struct {
	*testing.T
	roots map[string]int
	bytes []byte
}

const filePage = 4096

func (d damagedFile) page(n int) []byte { return d.bytes[(n-1)*filePage : n*filePage] }

// all clears the first page of a table, without which nothing of it can be read.
func (d damagedFile) all(table string) { clear(d.page(d.roots[table])) }

// some clears the second of the pages to which the first one of a table points.
func (d damagedFile) some(table string) {
	d.Helper()
	root := d.page(d.roots[table])
	if root[0] != 2 && root[0] != 5 {
		d.Fatalf("%s has one page, of kind %d", table, root[0])
	}
	cell := binary.BigEndian.Uint16(root[12+2:])
	clear(d.page(int(binary.BigEndian.Uint32(root[cell:]))))
}

// rootsOf says on which pages the tables of a store begin.
func rootsOf(t *testing.T, path string) map[string]int {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.readers.QueryContext(t.Context(), "SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var name string
		var page int
		if err := rows.Scan(&name, &page); err != nil {
			t.Fatal(err)
		}
		out[name] = page
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// change changes a store behind its back.
func change(t *testing.T, path, text string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.wide.ExecContext(t.Context(), text+"; PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// number reads one number.
func number(t *testing.T, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.readers.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// deliverAll delivers all that is ready in the queue of orders, and returns how many messages that were.
func deliverAll(t *testing.T, s *Store) (delivered int) {
	t.Helper()
	me := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("web-2", ""), Timing: lease.Timing{Interval: time.Second, Timeout: time.Hour}}
	if _, err := s.StartSession(t.Context(), me); err != nil {
		t.Fatal(err)
	}
	var results []dispatch.Result
	for range 1000 {
		held, err := s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space("orders"), Session: me.ID, Limit: 100, Fresh: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			held = append(held, claim.Claim{Key: r.Key, Term: r.Term})
		}
		if len(held) == 0 {
			return delivered
		}
		x, err := s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: "orders", Session: me.ID, Results: results, Begin: held, Window: time.Minute})
		if err != nil {
			t.Fatalf("after %d messages: %v", delivered, err)
		}
		for _, r := range x.Receipts {
			if r.Accepted {
				delivered++
			}
		}
		results = results[:0]
		for _, a := range x.Begun {
			results = append(results, dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, Attempt: a.Attempt, State: dispatch.Committed, After: dispatch.Next, Code: 200})
		}
	}
	t.Fatalf("keys are given out for ever; %d messages are delivered", delivered)
	return 0
}

// mustDeliver delivers what is there, and then one more message of each key.
func mustDeliver(t *testing.T, s *Store, messages int) {
	t.Helper()
	if err := s.QueueAdmin().CreateQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if n := deliverAll(t, s); n != messages {
		t.Errorf("%d messages were delivered, of %d", n, messages)
	}
	var more []dispatch.Message
	for n := range 50 {
		more = append(more, dispatch.Message{Queue: "orders", Key: fmt.Sprint("k", n), ID: fmt.Sprint("later-", n)})
	}
	if _, err := s.QueueAdmin().Add(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if n := deliverAll(t, s); n != len(more) {
		t.Errorf("%d messages were delivered, of %d that were enqueued since", n, len(more))
	}
	if n := number(t, s, "SELECT count(*) FROM understudy_claim WHERE waiting <> 0 OR session <> '' OR ready_us IS NOT NULL"); n != 0 {
		t.Errorf("%d keys are not idle", n)
	}
}

// mustJudge expects that silence raises an alarm of db-1.
func mustJudge(t *testing.T, s *Store, c *aheadClock) {
	t.Helper()
	probe := func() {
		t.Helper()
		_, err := s.Monitor().RecordHeartbeats(t.Context(), monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Minute, MaxGap: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []int
	for p := range monitor.Partitions {
		all = append(all, p)
	}
	settings, err := s.Monitor().Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	probe()
	c.by += 4 * time.Minute // the limit is 3 minutes
	probe()
	scan, err := s.Monitor().DueSources(t.Context(), all, 10)
	if err != nil || len(scan.Candidates) != 1 {
		t.Fatalf("%d sources are due: %v", len(scan.Candidates), err)
	}
	if v := settings.Checks[0].Evaluate(scan.Candidates[0].Facts); v.Transition != monitor.Onset {
		t.Errorf("silent for %v: %+v", c.by, v)
	}
}

// TestSalvageRepairs: from a copy of which parts are missing, messages are delivered and sources judged.
func TestSalvageRepairs(t *testing.T) {
	path, _ := filled(t)
	roots := rootsOf(t, path)
	change(t, path, "UPDATE understudy_monitor_source SET base_us = 1") // it has been up for long
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		hurt   func(damagedFile)
		judged bool
		none   string // no row is so
	}{
		{"payloads and heartbeats", func(d damagedFile) { d.some("understudy_payload"); d.all("understudy_monitor_beat") }, true,
			"understudy_monitor_source WHERE base_us = 1"},
		{"messages, keys and counts", func(d damagedFile) {
			d.some("understudy_batch")
			d.all("understudy_claim")
			d.all("understudy_monitor_count")
		}, true, "understudy_claim WHERE interrupted = 0"},
		{"queues, checks and events", func(d damagedFile) {
			d.all("understudy_queue")
			d.all("understudy_monitor_event")
			d.all("understudy_event")
		}, false, "understudy_monitor_beat"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := filepath.Join(t.TempDir(), "damaged.db"), filepath.Join(t.TempDir(), "saved.db")
			hurt := append([]byte{}, whole...)
			c.hurt(damagedFile{t, roots, hurt})
			if err := os.WriteFile(from, hurt, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := Salvage(t.Context(), from, to)
			if err != nil || len(out.Repairs) < 3 {
				t.Fatalf("%+v, %v", out, err)
			}
			clock := &aheadClock{Clock: lease.BootClock()}
			s, err := Open(t.Context(), Config{Path: to, Clock: clock, Wall: clock.Wall})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			left := number(t, s, "SELECT count(*) FROM understudy_batch")
			if n := number(t, s, "SELECT sum(waiting) FROM understudy_claim"); n != left || left < 800 {
				t.Errorf("%d messages wait, and there are %d", n, left)
			}
			if a, b := number(t, s, "SELECT coalesce(sum(up), 0) FROM understudy_monitor_count"), number(t, s, "SELECT count(*) FROM understudy_monitor_source"); a != b {
				t.Errorf("%d sources are counted, of %d", a, b)
			}
			if n := number(t, s, "SELECT count(*) FROM "+c.none); n != 0 {
				t.Errorf("%d rows of %s", n, c.none)
			}
			mustDeliver(t, s, left)
			if err := s.Append(t.Context(), history.Event{Part: "role", Subject: "x", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			if n := number(t, s, "SELECT max(id) FROM understudy_event"); n <= 300 {
				t.Errorf("an event has the number %d again", n)
			}
			if c.judged {
				mustJudge(t, s, clock)
			}
		})
	}
}

// TestMessagesThatAreNotThere: a key that counts messages of which there are none does not keep the results of others out.
func TestMessagesThatAreNotThere(t *testing.T) {
	path, n := filled(t)
	change(t, path, "UPDATE understudy_claim SET waiting = waiting + 1 WHERE key < 'k3'; UPDATE understudy_claim SET interrupted = 1 WHERE key = 'k1'")
	mustDeliver(t, openAt(t, path), n)
}
