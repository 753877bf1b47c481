package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/flock"
	"github.com/understudy-ha/understudy/lease"
)

var _ cache.Storage = (*Storage)(nil)

const (
	fileName = "cache.db"
	lockName = "cache.lock"
	// applicationID tells SQLite files of this package from others: "USca".
	applicationID = 0x55536361
	version       = 1
	// longestOpen bounds the opening, which waits for nobody.
	longestOpen = 30 * time.Second
)

// schema makes version 1. The rowid of an entry grows with every save, so that a
// scan reads the file from front to back, in the order of saving.
const schema = `
CREATE TABLE entry (
	seq    INTEGER PRIMARY KEY,
	key    BLOB NOT NULL UNIQUE,
	term   INTEGER NOT NULL,
	expire INTEGER NOT NULL,
	made   INTEGER NOT NULL,
	digest INTEGER NOT NULL,
	value  BLOB NOT NULL
) STRICT;
CREATE TABLE removal (
	seq   INTEGER PRIMARY KEY,
	scope INTEGER NOT NULL,
	name  BLOB NOT NULL,
	term  INTEGER NOT NULL
) STRICT;
CREATE TABLE peer (
	one        INTEGER PRIMARY KEY CHECK (one = 1),
	ceiling    INTEGER NOT NULL,
	membership TEXT
) STRICT;
INSERT INTO peer (one, ceiling) VALUES (1, 0);
`

// Storage is a peer's storage in a directory. It takes one call at a time.
type Storage struct {
	path string
	log  *slog.Logger
	lock *os.File
	file os.FileInfo // what path named when it was opened

	saves *conn // synchronous=NORMAL: entries
	sure  *conn // synchronous=FULL: what must survive the machine
}

// Open opens the storage in a directory, which it makes when it is not there. A
// nil log is silent. Errors are [ErrInUse], [ErrFile], [lease.ErrInvalid] for a
// path that can be none, and what the file system says.
func Open(dir string, log *slog.Logger) (*Storage, error) {
	if dir == "" || strings.ContainsRune(dir, 0) {
		return nil, fmt.Errorf("disk: %w: %q is not a valid path of a directory", lease.ErrInvalid, dir)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: making the directory of the cache: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lock, err := lockFolder(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	s := newStorage(filepath.Join(dir, fileName), lock, log)
	ctx, cancel := context.WithTimeout(context.Background(), longestOpen)
	defer cancel()
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// newStorage opens nothing yet; lock is the one of its directory.
func newStorage(path string, lock *os.File, log *slog.Logger) *Storage {
	return &Storage{path: path, log: log, lock: lock, saves: newConn(path, "NORMAL"), sure: newConn(path, "FULL")}
}

func (s *Storage) open(ctx context.Context) error {
	// SQLite would make it with the mode that the umask allows. Its log gets the mode
	// of the file.
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		s.file, err = f.Stat()
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("disk: opening the file: %w; the file and its directory must be writable by this user", err)
	}
	if !s.file.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file; move it away, or name another directory", ErrFile, s.path)
	}
	has, err := s.checkFile(ctx)
	if err != nil {
		return err
	}
	var mode string
	if err := s.sure.query(ctx, "PRAGMA journal_mode = WAL", &mode); err != nil {
		return failed("switching to write-ahead logging", err)
	}
	if mode != "wal" {
		return fmt.Errorf("disk: switching %s to write-ahead logging: it stays in mode %q; name a directory on a local disk", s.path, mode)
	}
	if has != version {
		if err := s.makeSchema(ctx); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(s.path))
}

// checkFile refuses files of others before anything is written to them, and returns the
// version of the schema; 0: there is none yet.
func (s *Storage) checkFile(ctx context.Context) (has int64, err error) {
	var id, tables int64
	for text, into := range map[string]*int64{
		"PRAGMA application_id":              &id,
		"PRAGMA user_version":                &has,
		"SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := s.sure.query(ctx, text, into); err != nil {
			return 0, failed("opening "+s.path, err)
		}
	}
	switch {
	case tables == 0 && has == 0 && (id == 0 || id == applicationID):
		return 0, nil // new, or made by an Open that was interrupted
	case id != applicationID:
		return 0, fmt.Errorf("%w: %s is a database of another program: move it away, or name another directory", ErrFile, s.path)
	case has > version:
		return 0, fmt.Errorf("%w: %s has version %d, made by a newer understudy, and this one knows %d: use the newer program, or name another directory", ErrFile, s.path, has, version)
	case has != version:
		return 0, fmt.Errorf("%w: %s has version %d, %w; %s", ErrFile, s.path, has, errVersion, repair)
	}
	return has, nil
}

func (s *Storage) makeSchema(ctx context.Context) error {
	err := s.sure.write(ctx, func(func(string, ...any) error) error {
		_, err := s.sure.one.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, version))
		return err
	})
	if err != nil {
		return failed("making the schema", err)
	}
	return nil
}

// syncDir makes the names of new files safe, where directories can be synced.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, os.ErrInvalid) && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("disk: syncing the directory: %w", err)
	}
	return nil
}

// Close closes the file and lets others in. It must not be called during another
// call; those after it fail.
func (s *Storage) Close() error {
	if s.lock == nil {
		return nil
	}
	err := errors.Join(s.closeConns(), s.lock.Close())
	s.lock = nil
	if err != nil {
		return failed("closing", err)
	}
	return nil
}

func (s *Storage) closeConns() error { return errors.Join(s.saves.close(), s.sure.close()) }

// usable refuses to continue when the path no longer names the file that was opened:
// what is written now would be gone after a restart.
func (s *Storage) usable() error {
	if s.lock == nil {
		return errClosed
	}
	now, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("disk: the file is gone while in use (%w): restart this program", err)
	}
	if !os.SameFile(s.file, now) {
		return fmt.Errorf("disk: %s was replaced by another file while in use: restart this program", s.path)
	}
	return nil
}

// lockFolder takes the lock of a directory, which ends with the process if it is not closed before.
func lockFolder(path string) (*os.File, error) {
	f, err := flock.Open(path)
	switch {
	case errors.Is(err, flock.ErrLocked):
		return nil, fmt.Errorf("%w: %s is locked: each peer needs a directory of its own; stop the other one, or name another directory", ErrInUse, path)
	case err != nil:
		return nil, fmt.Errorf("disk: %w", err)
	}
	return f, nil
}
