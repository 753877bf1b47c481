package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/cachetest"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// childEnv makes the test's own binary save until it is killed.
const childEnv = "UNDERSTUDY_CACHE_DISK_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Println("failed:", childSaves(dir))
		return
	}
	goleak.VerifyTestMain(m)
}

func childSaves(dir string) error {
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := int64(1); ; i++ {
		err := s.Save(ctx, []cache.Record{record(fmt.Sprint(i), "v"), record("last", fmt.Sprint(i))})
		if err == nil {
			err = s.Raise(ctx, i)
		}
		if err != nil {
			return err
		}
		fmt.Println(i)
	}
}

func record(key, value string) cache.Record {
	return cache.Record{Key: key, Entry: protocol.Entry{Term: 5, Expire: 9, Made: 7, Digest: protocol.Digest([]byte(value)), Value: []byte(value)}}
}

func open(t testing.TB, dir string) *Storage {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func load(t testing.TB, s *Storage) (map[string]string, cache.State) {
	t.Helper()
	found := map[string]string{}
	state, err := s.Load(t.Context(), func(r cache.Record) error {
		found[r.Key] = string(r.Entry.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, state
}

// copyFiles is what a process that is killed now would leave behind.
func copyFiles(from, to string) error {
	for _, name := range []string{fileName, fileName + "-wal"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// crashing remembers how long the log was when it was synced last: a crash of
// the machine may cut off all that was written to it since.
type crashing struct {
	*Storage
	synced *int64
}

func (c crashing) sync(err error) error {
	if info, statErr := os.Stat(c.path + "-wal"); err == nil && statErr == nil {
		*c.synced = info.Size()
	}
	return err
}

func (c crashing) Raise(ctx context.Context, to int64) error { return c.sync(c.Storage.Raise(ctx, to)) }
func (c crashing) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	return c.sync(c.Storage.SaveRemovals(ctx, all))
}
func (c crashing) SaveMembers(ctx context.Context, m protocol.MembersState) error {
	return c.sync(c.Storage.SaveMembers(ctx, m))
}

func TestConformance(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cachetest.Harness {
		dir, synced := t.TempDir(), int64(0)
		leave := func(s cache.Storage, cut bool) error {
			left := t.TempDir()
			if err := copyFiles(dir, left); err != nil {
				return err
			}
			if err := s.(crashing).Close(); err != nil {
				return err
			}
			dir = left
			if !cut {
				return nil
			}
			return os.Truncate(filepath.Join(left, fileName+"-wal"), synced)
		}
		return cachetest.Harness{
			Open: func() (cache.Storage, error) {
				s, err := Open(dir, nil)
				if err != nil {
					return nil, err
				}
				c := crashing{s, &synced}
				return c, c.sync(nil) // what it found was on the disk
			},
			Close: func(s cache.Storage) error { return s.(crashing).Close() },
			Kill:  func(s cache.Storage) error { return leave(s, false) },
			Crash: func(s cache.Storage) error { return leave(s, true) },
		}
	})
}

// TestSynchronous: what has to be synced before it is acknowledged is written by
// a connection that does so, also by one that was opened again.
func TestSynchronous(t *testing.T) {
	s := open(t, t.TempDir())
	for range 2 {
		for _, c := range []struct {
			conn *conn
			want int
		}{{s.saves, 1}, {s.sure, 2}} { // NORMAL, FULL
			var level int
			var mode string
			if err := c.conn.query(t.Context(), "PRAGMA synchronous", &level); err != nil || level != c.want {
				t.Errorf("synchronous is %d, want %d: %v", level, c.want, err)
			}
			if err := c.conn.query(t.Context(), "PRAGMA journal_mode", &mode); err != nil || mode != "wal" {
				t.Errorf("the journal's mode is %q: %v", mode, err)
			}
			c.conn.discard()
		}
	}
	err := errors.Join(
		s.Save(t.Context(), []cache.Record{record("k", "v"), {Key: "gone"}}),
		s.Raise(t.Context(), 3),
		s.SaveRemovals(t.Context(), []protocol.Removal{{Scope: protocol.OneKey, Name: "k", Term: 1}}),
		s.SaveMembers(t.Context(), protocol.MembersState{}),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		conn, other *conn
		texts       []string
	}{
		{s.saves, s.sure, []string{saveEntry, deleteEntry}},
		{s.sure, s.saves, []string{raise, deleteRemovals, saveRemoval, saveMembers}},
	} {
		for _, text := range c.texts {
			if c.conn.stmts[text] == nil || c.other.stmts[text] != nil {
				t.Errorf("%q went to the wrong connection", text)
			}
		}
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a ?b#c%20", "d") // what a URL would take apart
	s := open(t, dir)
	if err := s.Save(t.Context(), []cache.Record{record("k", "v")}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o700 | os.ModeDir, fileName: 0o600, fileName + "-wal": 0o600, lockName: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v, want %v", name, info, err, want)
		}
	}
}

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	if _, err := Open(dir, nil); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second user: %v", err)
	}
	if err := first.Raise(t.Context(), 1); err != nil {
		t.Errorf("the first, after the second was refused: %v", err)
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if err := first.Raise(t.Context(), 1); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	open(t, dir)
}

// TestKilled: a process that is killed while it saves leaves all that it has
// acknowledged, whole, and nobody locked out.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		child := exec.Command(self)
		child.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var acknowledged int64
		lines := bufio.NewScanner(out)
		for acknowledged < 50 && lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Errorf("the child said %q", lines.Text())
				break
			}
		}
		if _, err := Open(dir, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("while the child lives: %v", err)
		}
		_ = child.Process.Kill()
		for lines.Scan() {
			_, _ = fmt.Sscan(lines.Text(), &acknowledged)
		}
		_ = child.Wait()
		s := open(t, dir)
		found, state := load(t, s)
		var last int64
		_, _ = fmt.Sscan(found["last"], &last)
		if last < acknowledged || found[fmt.Sprint(last)] != "v" || state.Ceiling < acknowledged {
			t.Errorf("%d was acknowledged; found %d, ceiling %d", acknowledged, last, state.Ceiling)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	sql := func(t *testing.T, path, text string) {
		c := newConn(path, "FULL")
		if err := errors.Join(c.exec(t.Context(), text), c.close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want error
		says string
	}{
		"garbage": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrFile, "cache repair"},
		"another program's": {func(t *testing.T, path string) { sql(t, path, "CREATE TABLE theirs (a)") }, ErrFile, "another program"},
		"another's id":      {func(t *testing.T, path string) { sql(t, path, "PRAGMA application_id = 7") }, ErrFile, "another program"},
		"newer": {func(t *testing.T, path string) {
			s := open(t, filepath.Dir(path))
			if err := errors.Join(s.sure.exec(t.Context(), "PRAGMA user_version = 9"), s.Close()); err != nil {
				t.Fatal(err)
			}
		}, ErrFile, "newer understudy"},
		"a directory": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, nil, fileName},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			c.make(t, path)
			before, _ := os.ReadFile(path)
			_, err := Open(dir, nil)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			if err := os.RemoveAll(path); err != nil { // what the message says to do
				t.Fatal(err)
			}
			open(t, dir)
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "a\x00b"} {
		if _, err := Open(dir, nil); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q: %v", dir, err)
		}
	}
	if _, err := Open(file, nil); err == nil {
		t.Error("opened a file as a directory")
	}
}

func TestInterruptedOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, state := load(t, open(t, dir)); state.Ceiling != 0 {
		t.Error(state)
	}
}

// TestDamagedPage: damage inside the file is an error that says what to do, never
// a panic and never other data.
func TestDamagedPage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 200 {
		if err := s.Save(t.Context(), []cache.Record{record(fmt.Sprint(i), strings.Repeat("v", 1000))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 5 * page; at+page <= len(data); at += 3 * page {
		damaged := bytes.Clone(data)
		copy(damaged[at:], bytes.Repeat([]byte{0xa5}, page))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, nil)
		if err == nil {
			_, err = s.Load(t.Context(), func(r cache.Record) error {
				if want := strings.Repeat("v", 1000); string(r.Entry.Value) != want {
					t.Errorf("the value of %q is %.20q…", r.Key, r.Entry.Value)
				}
				return nil
			})
			_ = s.Close()
		}
		if err != nil && !errors.Is(err, ErrFile) {
			t.Errorf("page %d: %v", at/page, err)
		}
	}
}

// TestDamagedValue: a value that does not fit its digest is forgotten.
func TestDamagedValue(t *testing.T) {
	var logged bytes.Buffer
	dir := t.TempDir()
	s, err := Open(dir, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = errors.Join(
		s.Save(t.Context(), []cache.Record{record("good", "v"), record("damaged", "v"), record("other", "w")}),
		s.saves.exec(t.Context(), "UPDATE entry SET value = ?1 WHERE key = ?2", []byte("x"), []byte("damaged")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if found, _ := load(t, s); len(found) != 2 || found["good"] != "v" || found["other"] != "w" {
			t.Errorf("found %q", found)
		}
	}
	if n := strings.Count(logged.String(), "copies=1"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, logged.String())
	}
}

// TestFull: while nothing more fits, saves fail whole; with room again all continues.
func TestFull(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Save(t.Context(), []cache.Record{record("old", "v")}); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		t.Helper()
		for _, c := range []*conn{s.saves, s.sure} {
			var got int
			if err := c.query(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages), &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	var pages int
	if err := s.saves.query(t.Context(), "PRAGMA page_count", &pages); err != nil {
		t.Fatal(err)
	}
	var more []cache.Record
	for i := range 500 {
		more = append(more, record(fmt.Sprint(i), strings.Repeat("v", 1000)))
	}
	more = append(more, cache.Record{Key: "old"})
	for range 3 {
		limit(pages)
		if err := s.Save(t.Context(), more); err == nil || !strings.Contains(err.Error(), "free space") {
			t.Fatalf("a full disk: %v", err)
		}
		if found, _ := load(t, s); len(found) != 1 || found["old"] != "v" {
			t.Fatalf("after a save that failed: %d records", len(found))
		}
		limit(1 << 30)
		if err := s.Raise(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if found, state := load(t, s); len(found) != 500 || state.Ceiling != 4 {
		t.Errorf("%d records, %+v", len(found), state)
	}
}

func TestFileGone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	path := filepath.Join(dir, fileName)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"gone", "replaced"} {
		err := s.Raise(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
