package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// users is a user's connection with a table "mine", in the store's file or in one
// of its own to which the store's is attached, by a driver that knows nothing of
// the store.
func users(t *testing.T, path string, attached bool) *sql.DB {
	t.Helper()
	db := plain(t, path+"?_pragma=busy_timeout(10000)")
	if attached {
		db = plain(t, filepath.Join(t.TempDir(), "users.db")+"?_pragma=busy_timeout(10000)&_journal_mode=WAL")
		db.SetMaxOpenConns(1)
		if _, err := db.Exec("ATTACH ? AS ha", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("CREATE TABLE mine (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func batch(key, id string) dispatch.Message {
	return dispatch.Message{Queue: jobs, Key: key, ID: id, Payload: []byte(id)}
}

// ids are those of a key's batches, in their order.
func (l *line) ids(key string) []string {
	l.Helper()
	rows, err := l.QueueAdmin().Messages(l.Context(), dispatch.MessageQuery{Queue: jobs, Key: key})
	if err != nil {
		l.Fatal(err)
	}
	var out []string
	for i, r := range rows {
		if r.Seq != int64(i+1) {
			l.Errorf("%s of %s has the number %d, want %d", r.ID, key, r.Seq, i+1)
		}
		out = append(out, r.ID)
	}
	return out
}

func (l *line) want(key string, ids ...string) {
	l.Helper()
	if diff := cmp.Diff(ids, l.ids(key)); diff != "" {
		l.Errorf("batches of %s (-want +got):\n%s", key, diff)
	}
}

func TestEnqueueInAUsersTransaction(t *testing.T) {
	for _, attached := range []bool{false, true} {
		t.Run(fmt.Sprintf("attached=%t", attached), func(t *testing.T) {
			l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
			db := users(t, l.path, attached)
			tx := func(commit bool, batches ...dispatch.Message) (added []bool, err error) {
				t.Helper()
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if _, err := tx.Exec("INSERT INTO mine (id) VALUES ('x')"); err != nil {
					t.Fatal(err)
				}
				added, err = sqlite.Enqueue(t.Context(), tx, batches...)
				if commit {
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
				}
				return added, err
			}
			check := func(got []bool, err error, want ...bool) {
				t.Helper()
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("Enqueue = %v, %v; want %v", got, err, want)
				}
			}
			added, err := tx(true, batch("k", "1"), batch("k", "2"), batch("other", "3"), batch("other", "1"))
			check(added, err, true, true, true, false)
			added, err = tx(false, batch("k", "lost"))
			check(added, err, true)
			added, err = tx(true, batch("k", "2"), batch("k", "lost"))
			check(added, err, false, true)
			added, err = tx(true)
			check(added, err)
			l.want("k", "1", "2", "lost")
			l.want("other", "3")
			if _, err := tx(true, dispatch.Message{Queue: "unmade", Key: "k"}); !errors.Is(err, dispatch.ErrNoQueue) {
				t.Errorf("into a queue that was not made: %v", err)
			}
			for _, bad := range []dispatch.Message{{Queue: jobs}, {Key: "k"}, {Queue: jobs, Key: "k\n"}, {Queue: jobs, Key: "k", ID: strings.Repeat("i", 201)}} {
				if _, err := tx(true, bad); !errors.Is(err, lease.ErrInvalid) {
					t.Errorf("%+v: %v, want ErrInvalid", bad, err)
				}
			}
			var rows int
			if err := db.QueryRow("SELECT count(*) FROM mine").Scan(&rows); err != nil || rows != 8 {
				t.Errorf("the user's table has %d rows, %v; want 8", rows, err)
			}
			as := l.turn(nil, l.take(10)).Begun
			if len(as) != 2 || as[0].ID != "1" || string(as[0].Payload) != "1" || as[0].ContentType != dispatch.DefaultContentType || as[1].ID != "3" {
				t.Errorf("begun: %+v", as)
			}
			rec, err := l.QueueAdmin().Message(t.Context(), jobs, "1")
			if err != nil || time.Since(rec.Enqueued).Abs() > time.Minute {
				t.Errorf("enqueued at %v, %v", rec.Enqueued, err)
			}
		})
	}
}

// Programs in other languages insert into a view.
func TestEnqueueBySQL(t *testing.T) {
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	db := users(t, l.path, false)
	exec := func(text string) error {
		_, err := db.Exec(text)
		return err
	}
	for _, text := range []string{
		"INSERT INTO understudy_enqueue (queue, key, id, payload) VALUES ('jobs', 'k', '1', 'text'), ('jobs', 'k', '2', x'00ff'), ('jobs', 'k', '1', 'again')",
		"INSERT OR REPLACE INTO understudy_enqueue (queue, key, id, payload) VALUES ('jobs', 'k', '2', 'again'), ('jobs', 'k', '3', NULL)",
		"INSERT OR IGNORE INTO understudy_enqueue (queue, key, id, payload, content_type) VALUES ('jobs', 'k', '3', '', NULL), ('jobs', 'k', '4', 'x', 'text/plain')",
		"INSERT INTO understudy_enqueue (queue, key, payload) SELECT 'jobs', 'random', 'x' FROM (VALUES (1), (2))",
	} {
		if err := exec(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	l.want("k", "1", "2", "3", "4")
	if got := l.ids("random"); len(got) != 2 || len(got[0]) != 32 || got[0] == got[1] {
		t.Errorf("random ids: %q", got)
	}
	for id, want := range map[string]string{"1": "text", "2": "\x00\xff", "3": "", "4": "x"} {
		r, err := l.QueueAdmin().Message(t.Context(), "", id)
		if err != nil || string(r.Payload) != want || r.Size != len(want) || time.Since(r.Enqueued).Abs() > time.Minute {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	const values = "INSERT %s INTO understudy_enqueue (queue, key, id, payload, content_type) VALUES (%s)"
	for bad, want := range map[string]string{
		"'unmade', 'k', 'z', 'x', NULL":                      "no such queue",
		"NULL, 'k', 'z', 'x', NULL":                          "no such queue",
		"'jobs', '', 'z', 'x', NULL":                         "the key must be",
		"'jobs', NULL, 'z', 'x', NULL":                       "the key must be",
		"'jobs', 7, 'z', 'x', NULL":                          "the key must be",
		"'jobs', ' k', 'z', 'x', NULL":                       "the key must be",
		"'jobs', 'a' || char(0) || 'b', 'z', 'x', NULL":      "the key must be",
		"'jobs', 'a' || char(10) || 'b', 'z', 'x', NULL":     "the key must be",
		"'jobs', printf('%.201c', 'k'), 'z', 'x', NULL":      "the key must be",
		"'jobs', 'k', 'h', 'x', NULL, '[]'":                  "the headers must be",
		"'jobs', 'k', 'h', 'x', NULL, '{\"a\": 1}'":          "the headers must be",
		"'jobs', 'k', 'h', 'x', NULL, 'traceparent: 1'":      "the headers must be",
		"'jobs', 'k', '', 'x', NULL":                         "the batch id must be",
		"'jobs', 'k', 'z' || char(127), 'x', NULL":           "the batch id must be",
		"'jobs', 'k', 'z', 'x', ''":                          "the content type must be",
		"'jobs', 'k', 'z', zeroblob(16 * 1048576 + 1), NULL": "the payload has more than 16 MiB",
	} {
		for _, or := range []string{"", "OR IGNORE", "OR REPLACE"} {
			text := values
			if want == "the headers must be" {
				text = strings.Replace(values, "content_type)", "content_type, headers)", 1)
			}
			if err := exec(fmt.Sprintf(text, or, bad)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("INSERT %s of %s: %v, want %q", or, bad, err, want)
			}
		}
	}
	if n := count(t, l.path, "understudy_batch"); n != 6 {
		t.Errorf("%d batches, want 6", n)
	}
	if n := count(t, l.path, "understudy_payload"); n != 6 {
		t.Errorf("%d payloads, want 6", n)
	}
	if n := count(t, l.path, "understudy_claim"); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
}

// The command-line program of SQLite, of whatever version.
func TestEnqueueByAnotherProgram(t *testing.T) {
	program := realserver.Find(t, "sqlite3")
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	began := time.Now().Add(-time.Second)
	for _, args := range [][]string{
		{l.path, "INSERT INTO understudy_enqueue (queue, key, id, payload) VALUES ('jobs', 'k', '1', 'x')"},
		{filepath.Join(t.TempDir(), "users.db"), "ATTACH '" + l.path + "' AS ha", "BEGIN; CREATE TABLE mine (n);" +
			"INSERT INTO ha.understudy_enqueue (queue, key, id, payload) VALUES ('jobs', 'k', '2', 'x'); COMMIT"},
	} {
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	out, _ := exec.Command(program, l.path, "INSERT INTO understudy_enqueue (queue, key) VALUES ('unmade', 'k')").CombinedOutput()
	if !strings.Contains(string(out), "understudy: no such queue") {
		t.Errorf("an unknown queue: %s", out)
	}
	l.want("k", "1", "2")
	for _, id := range []string{"1", "2"} {
		r, err := l.QueueAdmin().Message(t.Context(), jobs, id)
		if err != nil || r.Enqueued.Before(began) || r.Enqueued.After(time.Now().Add(time.Second)) {
			t.Errorf("%s was enqueued at %v, %v", id, r.Enqueued, err)
		}
	}
	if as := l.turn(nil, l.take(1)).Begun; len(as) != 1 || as[0].ID != "1" {
		t.Errorf("begun: %+v", as)
	}
}

// childEnqueues enqueues batches of a few keys from a process of its own, each in a
// transaction that notes the batch in a table of the user's too.
func childEnqueues(path, name string) {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(120000)&_txlock=immediate")
	for i := 0; err == nil && i < 200; i++ {
		<-time.After(rand.N(2 * time.Millisecond)) // others are to have their turn
		err = func() error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			id := fmt.Sprintf("%s-%d", name, i)
			if _, err := tx.Exec("INSERT INTO mine (id) VALUES (?)", id); err != nil {
				return err
			}
			if _, err := sqlite.Enqueue(context.Background(), tx, batch(fmt.Sprint("k", i%3), id)); err != nil {
				return err
			}
			if i%7 == 0 {
				return nil // and it never was
			}
			return tx.Commit()
		}()
	}
	if err != nil {
		fmt.Println("failed:", err)
	}
}

// The order of a key is that of the commits. Its proof is a table of the user's,
// whose rows are numbered in the same transactions.
func TestTheOrderIsThatOfTheCommits(t *testing.T) {
	l := newLine(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")})
	db := users(t, l.path, false)
	var procs []*exec.Cmd
	for i := range 4 {
		cmd := child(t, "enqueue", l.path, fmt.Sprint("p", i))
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		procs = append(procs, cmd)
	}
	for _, p := range procs {
		if err := p.Wait(); err != nil {
			t.Errorf("a process that enqueues: %v", err)
		}
	}
	rows, err := db.Query("SELECT id FROM mine ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	want := map[string][]string{}
	switched, last := 0, ""
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		who, n, _ := strings.Cut(id, "-")
		if who != last {
			switched, last = switched+1, who
		}
		var i int
		fmt.Sscan(n, &i)
		key := fmt.Sprint("k", i%3)
		want[key] = append(want[key], id)
	}
	total := 0
	for key, ids := range want {
		l.want(key, ids...)
		total += len(ids)
	}
	if total != 4*(200-29) {
		t.Errorf("%d batches were committed, want %d", total, 4*(200-29))
	}
	t.Logf("%d batches of 4 processes, which took turns %d times", total, switched)
}
