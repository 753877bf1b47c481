package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// filled makes a store with something in it, in a file without a log beside it.
func filled(t *testing.T) (path string, messages int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	me := lease.Session{ID: "me", Instance: lease.NewInstance("web-1", ""), Timing: lease.Timing{Interval: time.Second, Timeout: time.Hour}}
	if _, err := s.StartSession(t.Context(), me); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		id := lease.ID{Space: "role", Key: fmt.Sprintf("role-%03d", i)}
		if _, err := s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: "me"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.QueueAdmin().CreateQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		var some []dispatch.Message
		for n := range 50 {
			some = append(some, dispatch.Message{Queue: "orders", Key: fmt.Sprint("k", n), ID: fmt.Sprintf("m-%d-%d", i, n), Payload: make([]byte, 200)}.WithDefaults())
		}
		added, err := s.QueueAdmin().Add(t.Context(), some)
		if err != nil {
			t.Fatal(err)
		}
		messages += len(added)
	}
	if _, err := s.Monitor().Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "disk", Interval: time.Minute}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Monitor().ResolveSources(t.Context(), []monitor.SourceRef{{Check: "disk", Source: "db-1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.conn.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, messages
}

// contents counts what a store has.
func contents(t *testing.T, path string) (leases, events, messages, sources int) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var sound string
	if err := s.readers.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		t.Errorf("the new file: %s, %v", sound, err)
	}
	for into, query := range map[*int]string{
		&leases: "SELECT count(*) FROM understudy_lease", &events: "SELECT count(*) FROM understudy_event", &messages: "SELECT count(*) FROM understudy_batch",
		&sources: "SELECT coalesce(sum(up + down), 0) FROM understudy_monitor_count",
	} {
		if err := s.readers.QueryRowContext(t.Context(), query).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	return leases, events, messages, sources
}

// nothing adds to a store what has no bytes: a message that waits, one that has ended, one that waits for its time, a state and
// a report.
const nothing = `
INSERT INTO understudy_enqueue (queue, key, id) VALUES ('orders', 'k1', 'empty'), ('orders', 'ended', 'empty-ended');
INSERT INTO understudy_enqueue (queue, key, id, not_before_us) VALUES ('orders', 'k1', 'empty-later', 253402300799999999);
UPDATE understudy_batch SET state = 'cancelled', ended_us = 1 WHERE id = 'empty-ended';
UPDATE understudy_claim SET waiting = 0, over = 1, done = 1, ready_us = NULL WHERE key = 'ended';
INSERT INTO understudy_lease_state (space, key, term, data) VALUES ('role', 'role-001', 1, x'');
INSERT INTO understudy_monitor_report (id, at_us, kind, code, run, body) SELECT id, 1, 'beat', 0, '', x'' FROM understudy_monitor_source`

// TestSalvageWhole: of a sound file all is copied, and what was copied works on.
func TestSalvageWhole(t *testing.T) {
	path, n := filled(t)
	change(t, path, nothing)
	n += 2
	to := filepath.Join(t.TempDir(), "saved.db")
	out, err := Salvage(t.Context(), path, to)
	if err != nil || len(out.Tables) < 20 || len(out.Repairs)+len(out.NotCopied) != 0 || out.Unreadable != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	was := openAt(t, path)
	for _, table := range out.Tables {
		if rows := number(t, was, "SELECT count(*) FROM "+table.Name); table.Damage != "" || table.Rows != int64(rows) {
			t.Errorf("%+v, of %d rows", table, rows)
		}
	}
	leases, events, messages, sources := contents(t, to)
	wasLeases, wasEvents, wasMessages, wasSources := contents(t, path)
	if leases != 300 || messages != n || sources != 1 || leases != wasLeases || events != wasEvents || messages != wasMessages || sources != wasSources {
		t.Errorf("copied: %d leases, %d events, %d messages, %d sources; there were %d, %d, %d, %d", leases, events, messages, sources, wasLeases, wasEvents, wasMessages, wasSources)
	}
	s, err := Open(t.Context(), Config{Path: to})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := number(t, s, "SELECT count(*) FROM understudy_payload WHERE payload = x''"); n != 2 {
		t.Errorf("%d payloads of no bytes, want 2", n)
	}
	if _, err := s.QueueAdmin().Add(t.Context(), []dispatch.Message{dispatch.Message{Queue: "orders", Key: "k1", ID: "later"}.WithDefaults()}); err != nil {
		t.Error(err)
	}
	if err := s.Append(t.Context(), history.Event{Part: "role", Subject: "x", Reason: "test"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Monitor().ResolveSources(t.Context(), []monitor.SourceRef{{Check: "disk", Source: "db-2"}}); err != nil {
		t.Error(err)
	}
	var up int
	if err := s.readers.QueryRowContext(t.Context(), "SELECT up FROM understudy_monitor_count").Scan(&up); err != nil || up != 2 {
		t.Errorf("the triggers do not count: %d sources, %v", up, err)
	}
}

// TestSalvageDamaged overwrites pages, each of a file of its own. What is in other places is copied, even where the list of tables is
// damaged, and the file stays as it was.
func TestSalvageDamaged(t *testing.T) {
	path, n := filled(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	wasLeases, wasEvents, _, _ := contents(t, path)
	fullest, damaged, lost := 0, 0, 0
	for at := page; at+page <= len(whole); at += page * max(1, len(whole)/page/15) {
		hurt := append([]byte{}, whole...)
		for i := range page {
			hurt[at+i] = byte(i*7 + 3)
		}
		from, to := filepath.Join(t.TempDir(), "damaged.db"), filepath.Join(t.TempDir(), "saved.db")
		if err := os.WriteFile(from, hurt, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := Salvage(t.Context(), from, to)
		if errors.Is(err, lease.ErrDamaged) {
			lost++ // the page on which the list of tables begins
			continue
		}
		if err != nil {
			t.Fatalf("page %d: %v", at/page, err)
		}
		after, err := os.ReadFile(from)
		if err != nil || string(after) != string(hurt) {
			t.Errorf("page %d: the damaged file was changed (%v)", at/page, err)
		}
		unlisted := false // the page is of the list of tables
		for _, table := range out.Tables {
			if table.Damage != "" {
				damaged++
			}
			unlisted = unlisted || strings.Contains(table.Damage, "no such table")
		}
		leases, events, messages, _ := contents(t, to)
		// One page is in one table or index.
		kept := 0
		for _, whole := range []bool{leases == wasLeases, events == wasEvents, messages == n} {
			if whole {
				kept++
			}
		}
		if fullest = max(fullest, kept); kept < 2 && !unlisted || leases+events+messages == 0 {
			t.Errorf("page %d: %d of %d leases, %d of %d events, %d of %d messages", at/page, leases, wasLeases, events, wasEvents, messages, n)
		}
	}
	if fullest < 3 || damaged == 0 || lost > 1 {
		t.Errorf("%d tables were whole at most, %d damaged; of %d files nothing could be read", fullest, damaged, lost)
	}
}

// TestSalvageBetween: rows before and behind a damaged place are copied, most of the table.
func TestSalvageBetween(t *testing.T) {
	path, n := filled(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	var leaf int64
	err = s.readers.QueryRowContext(t.Context(), "SELECT rootpage FROM sqlite_schema WHERE name = 'understudy_event'").Scan(&leaf)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	// The root of a table of several pages has pointers to its leaves: the second one is damaged.
	const page = 4096
	root := whole[(leaf-1)*page : leaf*page]
	if root[0] != 5 {
		t.Fatalf("the table of events has a root of kind %d: it has one page", root[0])
	}
	cell := int(root[12+2])<<8 | int(root[12+3])
	second := int(root[cell])<<24 | int(root[cell+1])<<16 | int(root[cell+2])<<8 | int(root[cell+3])
	clear(whole[(second-1)*page : second*page])
	from, to := filepath.Join(t.TempDir(), "damaged.db"), filepath.Join(t.TempDir(), "saved.db")
	if err := os.WriteFile(from, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, wasEvents, _, _ := contents(t, path)
	out, err := Salvage(t.Context(), from, to)
	if err != nil {
		t.Fatal(err)
	}
	leases, events, messages, _ := contents(t, to)
	if leases != 300 || messages != n || events >= wasEvents || events < wasEvents-100 {
		t.Errorf("%d leases, %d messages, %d of %d events; %+v", leases, messages, events, wasEvents, out)
	}
}

// TestSalvageNames what stays behind.
func TestSalvageNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	change(t, path, `
DROP TABLE understudy_lease_state;
CREATE TABLE understudy_lease_state (space TEXT, key TEXT, term INTEGER, data BLOB);
INSERT INTO understudy_lease_state VALUES ('role', 'a', 1, NULL), ('role', 'b', 1, x'00');
CREATE TABLE invoice (id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE account (id INTEGER PRIMARY KEY);
CREATE VIEW paid AS SELECT id FROM invoice`)
	out, err := Salvage(t.Context(), path, filepath.Join(t.TempDir(), "saved.db"))
	if err != nil || !slices.Equal(out.NotCopied, []string{"account", "invoice"}) {
		t.Fatalf("not copied: %q, %v", out.NotCopied, err)
	}
	for _, table := range out.Tables {
		if named := strings.Contains(table.Damage, "1 rows do not fit the table"); named != (table.Name == "understudy_lease_state") || named && table.Rows != 1 {
			t.Errorf("%+v", table)
		}
	}
}

// TestSalvageRefuses what it must not touch.
func TestSalvageRefuses(t *testing.T) {
	path, _ := filled(t)
	dir := t.TempDir()
	there := filepath.Join(dir, "there.db")
	for _, f := range []string{there, filepath.Join(dir, "garbage.db")} {
		if err := os.WriteFile(f, []byte("not a database, and longer than a header of a hundred bytes would have to be in order to be read as one at all"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{path, there, lease.ErrInvalid}, {filepath.Join(dir, "none.db"), filepath.Join(dir, "a.db"), lease.ErrInvalid}, {there, filepath.Join(dir, "b.db"), lease.ErrDamaged},
	} {
		if _, err := Salvage(context.Background(), c.from, c.to); !errors.Is(err, c.want) {
			t.Errorf("from %s to %s: %v, want %v", c.from, c.to, err, c.want)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %q", left)
	}
}
