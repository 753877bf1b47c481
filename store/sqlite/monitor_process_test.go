package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// startMonitor starts a process that takes part, which is killed when the test ends, and returns what it prints.
func startMonitor(t *testing.T, what, path string) (lines *bufio.Scanner, cmd *exec.Cmd) {
	t.Helper()
	cmd = child(t, "monitor", what, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait() })
	return bufio.NewScanner(out), cmd
}

// childMonitors has all sources beat once, or turns them until it is killed.
func childMonitors(what, path string) {
	if err := takePartInMonitor(what, path); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func takePartInMonitor(what, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	m := childMonitor{Store: s.Monitor(), name: fmt.Sprint("instance-", os.Getpid())}
	if err := m.join(ctx, s); err != nil {
		return err
	}
	if what == "once" {
		ids, err := m.once(ctx)
		if err != nil {
			return err
		}
		fmt.Println("ids", ids)
		return s.Close()
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), ample)
		err := m.turnOver(ctx)
		if cancel(); err != nil {
			return err
		}
	}
}

type childMonitor struct {
	monitor.Store
	name string
}

// swift is an event that is overdue as soon as it can be.
var swift = monitor.Check{Name: "swift", Interval: 100 * time.Millisecond, Missed: 1}

func refs() (out []monitor.SourceRef) {
	for i := range 200 {
		out = append(out, monitor.SourceRef{Check: swift.Name, Source: fmt.Sprint("s", i)})
	}
	return out
}

func (m childMonitor) join(ctx context.Context, s *sqlite.Store) error {
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(m.name, ""), Timing: patient}
	if _, err := s.StartSession(ctx, n); err != nil {
		return err
	}
	if _, err := m.Configure(ctx, monitor.Configuration{Checks: []monitor.Check{swift}}); err != nil {
		return err
	}
	return m.RegisterMember(ctx, monitor.Member{Session: n.ID, Host: m.name, Sinks: []string{"log"}})
}

// once has all sources beat once.
func (m childMonitor) once(ctx context.Context) (ids []int64, err error) {
	found, err := m.ResolveSources(ctx, refs())
	if err != nil {
		return nil, err
	}
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Second, MaxGap: time.Minute}}}
	for _, r := range found {
		ids = append(ids, r.ID)
	}
	sorted := slices.Sorted(slices.Values(ids))
	for _, id := range sorted {
		d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Count: 1})
	}
	stored, err := m.RecordHeartbeats(ctx, d)
	if err == nil && len(stored.Unknown) > 0 {
		err = errors.New("sources are unknown that were resolved")
	}
	return ids, err
}

// turnOver judges all that is due by the rule itself, and says what it has done when
// that is stored. Every other source falls silent.
func (m childMonitor) turnOver(ctx context.Context) error {
	found, err := m.ResolveSources(ctx, refs())
	if err != nil {
		return err
	}
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Hour, MaxGap: time.Hour}}}
	for i, r := range found {
		if (int64(i)+time.Now().UnixMilli()/300)%2 == 0 {
			d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: r.ID, Count: 1})
		}
	}
	slices.SortFunc(d.Beats, func(a, b monitor.HeartbeatUpdate) int { return int(a.Source - b.Source) })
	if _, err := m.RecordHeartbeats(ctx, d); err != nil {
		return err
	}
	fmt.Println("beats", len(d.Beats))
	l, err := m.DueSources(ctx, partitions(), 100)
	if err != nil {
		return err
	}
	event := swift.WithDefaults()
	var changes []monitor.SourceChange
	for _, c := range l.Candidates {
		v := event.Evaluate(c.Facts)
		ch := monitor.SourceChange{ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: v.Transition, Due: v.Due, WellSince: v.WellSince, Reason: v.Reason, At: l.Wall}
		if v.Transition == monitor.Onset || v.Transition == monitor.Abated {
			if ch.Alarm = c.Alarm; ch.Alarm == "" {
				ch.Alarm = lease.NewID()
			}
			ch.Notifications = monitor.AlarmMessage{Status: v.Transition, RequestID: ch.Alarm, Event: event.Name, Source: c.Source}.Notifications([]string{"log"})
		}
		changes = append(changes, ch)
	}
	made, err := m.ApplyChanges(ctx, changes)
	if err != nil {
		return err
	}
	for i, c := range changes {
		if made[i] && c.Transition != monitor.NoTransition {
			fmt.Println(c.Transition, c.Alarm)
		}
	}
	return nil
}

func partitions() (all []int) {
	for i := range monitor.Partitions {
		all = append(all, i)
	}
	return all
}

// oldFile makes a file as the version before this one left it, with something in it.
func oldFile(t *testing.T, path string) {
	t.Helper()
	db := plain(t, path)
	texts := []string{"PRAGMA journal_mode = WAL", "CREATE TABLE understudy_schema (version INTEGER PRIMARY KEY, applied_us INTEGER NOT NULL) STRICT"}
	for i, name := range []string{"0001_leases.sql", "0002_queues.sql"} {
		text, err := os.ReadFile(filepath.Join("migrations", name))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text), fmt.Sprintf("INSERT INTO understudy_schema VALUES (%d, 0)", i+1))
	}
	texts = append(texts,
		"INSERT INTO understudy_queue VALUES ('jobs', 1)",
		"INSERT INTO understudy_enqueue (queue, key, id, payload) VALUES ('jobs', 'k', 'old', 'x')",
		"INSERT INTO understudy_session VALUES ('old', 'i', 'n', '', 1000000, 5000000, 1, 'boot', 1, 0, 1, 9000000000000000)",
		"CREATE TABLE mine (n INTEGER)", "INSERT INTO mine VALUES (7)",
		"CREATE TABLE vnf_table_1 (event_name TEXT)", "INSERT INTO vnf_table_1 VALUES ('theirs')")
	for _, text := range texts {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// Twelve processes that start at once, on no file or on an old one, learn the same
// sources: each once, none lost, and every beat counted.
func TestD11_TwelveMonitorsStartAtOnce(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, string){
		"no file": func(*testing.T, string) {}, "an old file": oldFile,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			prepare(t, path)
			var told []*bufio.Scanner
			for range 12 {
				lines, _ := startMonitor(t, "once", path)
				told = append(told, lines)
			}
			answers := map[string]int{}
			for _, lines := range told {
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "ids ") {
						answers[lines.Text()]++
					} else {
						t.Error(lines.Text())
					}
				}
			}
			if len(answers) != 1 {
				t.Errorf("twelve processes found %d different sets of sources", len(answers))
			}
			if n := count(t, path, "understudy_monitor_beat WHERE beats = 12"); n != 200 {
				t.Errorf("%d of 200 sources have all twelve beats", n)
			}
			audit(t, plain(t, path))
			if name == "an old file" {
				stillThere(t, path)
			}
		})
	}
}

// stillThere checks what oldFile put in.
func stillThere(t *testing.T, path string) {
	t.Helper()
	for _, from := range []string{
		"understudy_batch WHERE id = 'old'", "understudy_session WHERE id = 'old'", "mine WHERE n = 7",
		"vnf_table_1 WHERE event_name = 'theirs'", "understudy_schema WHERE version = 3",
	} {
		if n := count(t, path, from); n != 1 {
			t.Errorf("%d rows of %s", n, from)
		}
	}
	if n := count(t, path, "vnf_table_2"); n != 200 {
		t.Errorf("%d rows of vnf_table_2, though the file has only a table of the name vnf_table_1", n)
	}
}

// faults finds what no transaction may leave behind.
func faults(t testing.TB, db *sql.DB) (found []string) {
	t.Helper()
	for _, c := range []struct{ what, where string }{
		{"sources without a row for their beats", `understudy_monitor_source s LEFT JOIN understudy_monitor_beat b ON b.id = s.id WHERE b.id IS NULL`},
		{"rows for beats of no source", `understudy_monitor_beat b LEFT JOIN understudy_monitor_source s ON b.id = s.id WHERE s.id IS NULL`},
		{"sources that are down without an alarm", `understudy_monitor_source s WHERE s.state = 'down' AND NOT EXISTS (
		   SELECT 1 FROM understudy_monitor_alarm a WHERE a.id = s.alarm AND a.ended_us IS NULL)`},
		{"alarms that stand for nothing", `understudy_monitor_alarm a WHERE a.ended_us IS NULL AND a.source <> '' AND NOT EXISTS (
		   SELECT 1 FROM understudy_monitor_source s WHERE s.alarm = a.id)`},
		{"sources that are not watched and should be, or the reverse", `understudy_monitor_source s JOIN understudy_monitor_beat b ON b.id = s.id
		   WHERE b.watched <> (s.alarm <> '' OR s.state = 'retired')`},
		{"sources that have beaten and are not seen, or the reverse", `understudy_monitor_source s JOIN understudy_monitor_beat b ON b.id = s.id WHERE (b.at_us > 0) <> s.seen`},
		{"alarms without their notices", `understudy_monitor_alarm a WHERE a.source <> '' AND a.held = 0 AND a.team = '' AND
		   (SELECT count(*) FROM understudy_batch b WHERE b.queue = 'alarms.log' AND b.id IN (a.id || '/ONSET', a.id || '/ABATED')) <> 1 + (a.ended_us IS NOT NULL)`},
		{"wrong counts", `understudy_monitor_count c WHERE (c.up, c.down, c.paused, c.retired, c.unseen, c.standing) IS NOT (
		   SELECT coalesce(sum(s.state = 'up'), 0), coalesce(sum(s.state = 'down'), 0), coalesce(sum(s.state = 'paused'), 0), coalesce(sum(s.state = 'retired'), 0),
		     coalesce(sum(s.seen = 0 AND s.state IN ('up', 'down')), 0), coalesce(sum(s.alarm <> ''), 0)
		   FROM understudy_monitor_source s WHERE s.event = c.event)`},
		{"sources that had two alarms at once", `understudy_monitor_alarm a JOIN understudy_monitor_alarm b ON b.source = a.source AND b.event = a.event AND b.n > a.n
		   WHERE a.source <> '' AND (a.ended_us IS NULL OR a.ended_us > b.raised_us)`},
	} {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + c.where).Scan(&n); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if n > 0 {
			found = append(found, fmt.Sprint(n, " ", c.what))
		}
	}
	return found
}

func audit(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, f := range faults(t, db) {
		t.Error(f)
	}
	if got := integrity(t, db); got != "ok" {
		t.Errorf("integrity check: %s", got)
	}
}

// Processes that turn sources at the same time are killed in the middle. What they
// said is there, and nothing is there by half.
func TestMonitorsDieInTheMiddle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	said := map[string]bool{}
	var beats int
	for range 3 {
		type child struct {
			lines *bufio.Scanner
			cmd   *exec.Cmd
		}
		var children []child
		for range 3 {
			lines, cmd := startMonitor(t, "on", path)
			children = append(children, child{lines, cmd})
		}
		for _, c := range children {
			// Some way into its work.
			for n := 0; n < 25 && c.lines.Scan(); n++ {
				beats += note(said, c.lines.Text())
			}
		}
		for _, c := range children {
			_ = c.cmd.Process.Kill()
		}
		for _, c := range children {
			for c.lines.Scan() {
				beats += note(said, c.lines.Text())
			}
		}
		open(t, sqlite.Config{Path: path})
		audit(t, plain(t, path))
	}
	db := plain(t, path)
	for line := range said {
		turn, alarm, _ := strings.Cut(line, " ")
		where := "understudy_monitor_alarm WHERE id = ?"
		if turn == string(monitor.Abated) {
			where += " AND ended_by = 'ABATED'"
		}
		var n int
		if err := db.QueryRow("SELECT count(*) FROM "+where, alarm).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s was told and is not there: %d, %v", line, n, err)
		}
	}
	var stored int
	if err := db.QueryRow("SELECT sum(beats) FROM understudy_monitor_beat").Scan(&stored); err != nil || stored < beats {
		t.Errorf("%d beats are stored of %d that were acknowledged; %v", stored, beats, err)
	}
	if len(said) < 50 {
		t.Errorf("only %d turns were made: the test proves little", len(said))
	}
	t.Logf("%d turns, %d beats", len(said), stored)
}

// note remembers a turn that was told, and returns how many beats were.
func note(said map[string]bool, line string) (beats int) {
	switch what, rest, _ := strings.Cut(line, " "); what {
	case "beats":
		_, _ = fmt.Sscan(rest, &beats)
	case string(monitor.Onset), string(monitor.Abated):
		if len(rest) == len(lease.NewID()) {
			said[line] = true
		}
	}
	return beats
}

// The audit finds each kind of fault.
func TestTheAuditFindsFaults(t *testing.T) {
	for name, damage := range map[string]string{
		"no beats":   "DELETE FROM understudy_monitor_beat WHERE id = 1",
		"no source":  "INSERT INTO understudy_monitor_beat (id, every_us) VALUES (999, 1)",
		"no alarm":   "UPDATE understudy_monitor_alarm SET ended_us = 1 WHERE n = 1",
		"not well":   "UPDATE understudy_monitor_source SET alarm = '', state = 'up' WHERE id = 1",
		"unwatched":  "UPDATE understudy_monitor_beat SET watched = 0 WHERE id = 1",
		"watched":    "UPDATE understudy_monitor_beat SET watched = 1 WHERE id = 2",
		"unseen":     "UPDATE understudy_monitor_source SET seen = 0 WHERE id = 2",
		"no notice":  "DELETE FROM understudy_batch",
		"miscounted": "UPDATE understudy_monitor_count SET up = up + 1",
		"twice":      "INSERT INTO understudy_monitor_alarm (id, event, source, reason, onset_us, started_us, raised_us) SELECT 'x', event, source, reason, 1, 1, 1 FROM understudy_monitor_alarm",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			c := &clock{Clock: lease.BootClock()}
			f := newFleetAt(t, sqlite.Config{Path: path, Clock: c, Wall: c.Wall}, 2)
			c.step(time.Hour)
			f.beat(f.ids[1:], 1)
			l, err := f.DueSources(t.Context(), partitions(), 10)
			if err != nil || len(l.Candidates) != 2 {
				t.Fatalf("Due = %+v, %v", l, err)
			}
			if made, err := f.ApplyChanges(t.Context(), f.changes(l, monitor.Onset)[:1]); err != nil || !made[0] {
				t.Fatalf("Apply = %v, %v", made, err)
			}
			db := plain(t, path)
			if found := faults(t, db); len(found) > 0 {
				t.Fatalf("before the damage: %v", found)
			}
			if _, err := db.Exec(damage); err != nil {
				t.Fatal(err)
			}
			if len(faults(t, db)) == 0 {
				t.Error("the audit finds nothing")
			}
		})
	}
}
