package sqlite_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// plain opens the file as any SQLite program would, without the store's clock.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Twelve processes that meet a file that is not there yet must all get a store.
func TestColdStartOfTwelveProcesses(t *testing.T) {
	const processes = 12
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	type answer struct {
		who  int
		text string
	}
	answers := make(chan answer, processes)
	var tell []io.Writer
	for i := range processes {
		cmd := child(t, "open")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		tell = append(tell, in)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				answers <- answer{i, lines.Text()}
			}
		}()
		t.Cleanup(func() { in.Close(); <-done; _ = cmd.Wait() })
	}
	dir := t.TempDir()
	for round := range rounds {
		path := filepath.Join(dir, fmt.Sprint("round", round), "store.db")
		for _, w := range tell {
			fmt.Fprintln(w, path)
		}
		for range processes {
			select {
			case a := <-answers:
				if a.text != "ok" {
					t.Errorf("round %d, process %d: %s", round, a.who, a.text)
				}
			case <-time.After(ample):
				t.Fatalf("round %d: a process gives no answer", round)
			}
		}
		var sessions int
		if err := plain(t, path).QueryRow("SELECT count(*) FROM understudy_session").Scan(&sessions); err != nil || sessions != processes {
			t.Errorf("round %d: %d sessions, %v; want %d", round, sessions, err, processes)
		}
		if n := count(t, path, "understudy_batch WHERE seq <= ?", processes); n != processes {
			t.Errorf("round %d: %d batches, want %d", round, n, processes)
		}
	}
}

// Holders are killed while they work; the other process must follow, and
// no effect of a term may come after one of a later term.
func TestProcessesContendAndDie(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	db := plain(t, path)
	if _, err := db.Exec("CREATE TABLE effect (n INTEGER PRIMARY KEY, term INTEGER NOT NULL, pid INTEGER NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	start := func() *realserver.Process { return realserver.Start(t, child(t, "contend", path)) }
	procs := []*realserver.Process{start(), start()}
	var last lease.Lease
	var worst time.Duration
	for round := range 6 {
		since := time.Now()
		realserver.Eventually(t, ample, "a holder at work", func() error {
			l, err := s.Get(t.Context(), roleR)
			if err != nil {
				return err
			}
			if !l.Held() || l.Term <= last.Term {
				return fmt.Errorf("the lease is %+v", l)
			}
			if n := count(t, path, "effect WHERE term = ?", l.Term); n == 0 {
				return fmt.Errorf("no effect under term %d", l.Term)
			}
			last = l
			return nil
		})
		if round > 0 {
			worst = max(worst, time.Since(since))
		}
		for i, p := range procs {
			if fmt.Sprint(p.Pid()) == last.Holder.Name {
				p.Kill()
				procs[i] = start()
			}
		}
	}
	t.Logf("the slowest takeover after kill -9 and the first work came after %v; T + I is %v", worst, brisk.WorstTakeover())
	var fell int
	err := db.QueryRow("SELECT count(*) FROM effect a JOIN effect b ON b.n = a.n + 1 WHERE b.term < a.term").Scan(&fell)
	if err != nil || fell != 0 {
		t.Errorf("%d effects of a term came after one of a later term; %v", fell, err)
	}
	if got := integrity(t, db); got != "ok" {
		t.Errorf("integrity check: %s", got)
	}
}

func integrity(t testing.TB, db *sql.DB) (verdict string) {
	t.Helper()
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil {
		t.Fatal(err)
	}
	return verdict
}

// The command-line program of SQLite, of whatever version, must be able to read
// the schema and to use the guard.
func TestAnotherProgramReadsTheFile(t *testing.T) {
	program := realserver.Find(t, "sqlite3")
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	l := take(t, s, session(t, s, "db1", patient), "r")
	run := func(sql string) string {
		out, err := exec.Command(program, path, sql).CombinedOutput()
		if err != nil {
			return "error: " + string(out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run("SELECT uname FROM heartbeats WHERE utype = 'r'"); got != "db1" {
		t.Errorf("heartbeats: %q", got)
	}
	guard := "BEGIN; CREATE TABLE mine (n); INSERT INTO understudy_guard VALUES ('role', 'r', %d); COMMIT; SELECT count(*) FROM mine"
	if got := run(fmt.Sprintf(guard, l.Term-1)); !strings.Contains(got, "not held under this term") {
		t.Errorf("guard under an old term: %q", got)
	}
	if got := run(fmt.Sprintf(guard, l.Term)); got != "0" {
		t.Errorf("guard under the current term: %q", got)
	}
}
