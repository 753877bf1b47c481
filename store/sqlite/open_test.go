package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// ample is longer than anything takes that does not hang, on whatever machine.
const ample = 3 * time.Minute

// amply is a context for calls that may have to wait for others on a slow machine.
var amply = leasetest.Amply

// patient is for sessions that are not to lapse, and need no renewal during a test.
var patient = lease.Timing{Interval: time.Minute, Timeout: time.Hour}

func session(t testing.TB, s lease.Store, name string, timing lease.Timing) lease.Session {
	t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: timing}
	if _, err := s.StartSession(t.Context(), n); err != nil {
		t.Fatalf("StartSession: %v", err)
	}
	return n
}

func acquire(t testing.TB, s lease.Store, n lease.Session, key string, waited bool) (lease.Lease, error) {
	t.Helper()
	id := lease.ID{Space: "role", Key: key}
	l, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return s.Acquire(t.Context(), lease.Expectation{Lease: id, Session: n.ID, Seen: l.Seen(), Waited: waited})
}

func take(t testing.TB, s lease.Store, n lease.Session, key string) lease.Lease {
	t.Helper()
	l, err := acquire(t, s, n, key, false)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func TestPathsOfAllKinds(t *testing.T) {
	for _, name := range []string{
		"plain.db", "what?.db", "#1.db", "100%.db", "%41.db", "a b&c=d;e.db", "ünder stüdy.db", "file:x.db",
		"\xff\xfe.db", "new\nline.db", "it's \"quoted\".db", "mode=ro?cache=shared#x.db",
	} {
		dir := filepath.Join(t.TempDir(), "made", name+".d")
		path := filepath.Join(dir, name)
		take(t, open(t, sqlite.Config{Path: path}), session(t, open(t, sqlite.Config{Path: path}), "a", patient), "r")
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		for _, f := range files {
			if !strings.HasPrefix(f.Name(), name) {
				t.Errorf("the path %q made the file %q", name, f.Name())
			}
		}
		if len(files) == 0 {
			t.Errorf("the path %q made no file", name)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%q: the directory is %v, %v; want 0700", name, info.Mode(), err)
		}
	}
	for _, path := range []string{"", "a\x00b"} {
		if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", path, err)
		}
	}
}

// The owner alone may read a store that Understudy made, whatever the umask; one that was there keeps its mode.
func TestTheFileIsPrivate(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.db")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(there, 0o640); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{filepath.Join(dir, "made.db"): 0o600, there: 0o640} {
		s := open(t, sqlite.Config{Path: path})
		take(t, s, session(t, s, "a", patient), "r")
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %v", path+suffix, info.Mode().Perm(), err, want)
			}
		}
	}
}

func TestDefaultPath(t *testing.T) {
	for env, want := range map[[2]string]string{
		{"/state", "/home/u"}:   "/state/understudy/understudy.db",
		{"", "/home/u"}:         "/home/u/.local/state/understudy/understudy.db",
		{"relative", "/home/u"}: "/home/u/.local/state/understudy/understudy.db",
	} {
		t.Setenv("XDG_STATE_HOME", env[0])
		t.Setenv("HOME", env[1])
		if got, err := sqlite.DefaultPath(); err != nil || got != want {
			t.Errorf("with %q: %q, %v; want %q", env, got, err, want)
		}
	}
}

// A program works with a file of a newer version that only adds to its schema.
func TestExpandedSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, sqlite.Config{Path: path})
	_, err := plain(t, path).Exec(`INSERT INTO understudy_step VALUES (99, 0); ALTER TABLE understudy_lease ADD COLUMN added TEXT NOT NULL DEFAULT ''`)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, sqlite.Config{Path: path})
	if from, to, err := s.Migrate(t.Context()); from != 99 || to != 99 || err != nil {
		t.Errorf("Migrate = %d, %d, %v; want 99, 99", from, to, err)
	}
	if info, err := s.Inspect(t.Context()); info.Schema != 99 || err != nil {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, sqlite.Config{Path: path})
	if _, err := plain(t, path).Exec("INSERT INTO understudy_schema VALUES (99, 0)"); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 99, made by a newer understudy") {
		t.Errorf("Open of a newer schema: %v", err)
	}
}

// TestDamaged: a file that SQLite cannot read is refused for good, by name, and is left as it is.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	st := open(t, sqlite.Config{Path: good})
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	schema := slices.Clone(whole)
	for i := 4096 - 512; i < 4096; i++ {
		schema[i] ^= 0xff // the last rows of the first page
	}
	for name, content := range map[string][]byte{
		"a letter": []byte(strings.Repeat("this is a letter, no database. ", 100)),
		"half":     whole[:len(whole)/2],
		"a header": whole[:50],
		"flipped":  schema,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if !errors.Is(err, lease.ErrDamaged) || errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore it") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, content) {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: dir}); !errors.Is(err, lease.ErrDamaged) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestForeign: a database of another program is left as it is, unless the tables are to go into it.
func TestForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db := plain(t, path)
	if _, err := db.Exec("CREATE TABLE orders (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path}); !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "--into-existing") {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("it was changed")
	}
	open(t, sqlite.Config{Path: path, IntoExisting: true})
	open(t, sqlite.Config{Path: path}) // from now on it is a store
}

func TestMustExist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "store.db")
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, MustExist: true}); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made the directory: %v", err)
	}
	open(t, sqlite.Config{Path: path})
	open(t, sqlite.Config{Path: path, MustExist: true})
}

// A path that names another file than the one that is open would give two
// holders, one in each file.
func TestAFileThatWasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	n := session(t, s, "a", patient)
	l := take(t, s, n, "r")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"gone", "replaced"} {
		_, err := s.RenewSession(t.Context(), n.ID)
		if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), when) {
			t.Errorf("RenewSession in a file that is %s: %v", when, err)
		}
		err = s.Guarded(t.Context(), l.ID, l.Term, func(*sql.Tx) error { return nil })
		if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), when) {
			t.Errorf("Guarded in a file that is %s: %v", when, err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALockedFileIsUnavailableUntilTheDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path})
	n := session(t, s, "a", patient)
	other := plain(t, path)
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = s.RenewSession(ctx, n.ID)
	if took := time.Since(began); !errors.Is(err, lease.ErrUnavailable) || took > ample {
		t.Errorf("RenewSession of a locked file: %v after %v, want ErrUnavailable after 100 ms", err, took)
	}
	if _, err := s.Get(t.Context(), lease.ID{Space: "role", Key: "r"}); err != nil {
		t.Errorf("Get while another writes: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenewSession(t.Context(), n.ID); err != nil {
		t.Errorf("RenewSession afterwards: %v", err)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	n := session(t, s, "a", patient)
	ready, watched, renewed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { watched <- s.Watch(context.Background(), func(lease.Change) { close(ready) }) }()
	<-ready
	conn, err := plain(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := s.RenewSession(context.Background(), n.ID)
		renewed <- err
	}()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for what, c := range map[string]chan error{"Watch": watched, "RenewSession": renewed} {
		select {
		case err := <-c:
			if !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("%s of a store that was closed: %v, want ErrUnavailable", what, err)
			}
		case <-time.After(ample):
			t.Errorf("%s outlives Close", what)
		}
	}
	if _, err := s.Get(t.Context(), lease.ID{Space: "role", Key: "r"}); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Get after Close: %v, want ErrUnavailable", err)
	}
}
