package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Store = (*Store)(nil)

// Config tells [Open] where the file is and what to judge by.
type Config struct {
	// Path of the file. It and its directory are made when they are not there.
	// Required; see [DefaultPath].
	Path string
	// Clock by which sessions lapse. Default: the host's boot-time clock where
	// there is a boot id, and otherwise the wall clock.
	Clock lease.Clock
	// BootID names the run of the kernel that Clock counts in. Default: that of
	// this host. Tests set it to play a reboot.
	BootID string
	// Wall is the wall clock, for people and for terms. Default [time.Now].
	Wall func() time.Time
	// PollInterval is how often Watch looks for changes that the kernel did not report. Default 20 ms.
	PollInterval time.Duration
	// NoMigrate leaves the file as it is: it may be missing or old, and only
	// Inspect and Migrate are sure to work.
	NoMigrate bool
	// MustExist refuses a file that is missing, which [Open] would make.
	MustExist bool
	// IntoExisting adds the tables to a database that has tables of another program, and none of ours yet. Without it that is
	// refused: the path may be wrong.
	IntoExisting bool
	// Logger; nil is silent.
	Logger *slog.Logger
}

const (
	defaultPoll = 20 * time.Millisecond
	// longestCall bounds a call whose context has no deadline of its own.
	longestCall = 10 * time.Second
	// writerSettings let a transaction of a thousand rows stay in memory until it
	// commits.
	writerSettings = "_pragma=cache_size(-4096)&_pragma=temp_store(2)"
	// maxReaders bounds the connections that read.
	maxReaders = 4
)

// Store is a store in an SQLite file.
type Store struct {
	path   string
	poll   time.Duration
	polls  bool // it only polls: by a clock that is not the host's, time stands still while the kernel is waited for
	clocks clocks
	log    *slog.Logger
	onFS   string // a warning about the file system, "" when there is none

	mustExist, intoExisting bool

	life   context.Context // ends with Close
	end    context.CancelFunc
	closed sync.Once

	writer  writer
	readers *sql.DB // queries of a moment
	reading *statements
	wide    *sql.DB // connections that are kept for longer: watchers, snapshots and users' transactions
	// frozen are the statements of snapshots. These have a pool without a bound: one that was full of snapshots could not
	// prepare what they wait for.
	frozen    *statements
	snapshots chan struct{} // bounds the snapshots
	file      os.FileInfo   // what path named when it was opened
}

// DefaultPath is where the file is when nobody says otherwise:
// understudy/understudy.db in the user's state directory.
func DefaultPath() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("sqlite: no default place for the store: %w; name a file", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "understudy", "understudy.db"), nil
}

// Open opens the file, making it and bringing its schema up to date as needed.
// Any number of processes may do so at once. A newer schema is
// [store.ErrSchema]; a file system that other hosts may share, and a database of
// another program, is [lease.ErrInvalid]; a file that SQLite cannot read is [lease.ErrDamaged].
func Open(ctx context.Context, cfg Config) (*Store, error) {
	path, onFS, err := place(cfg.Path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, onFS: onFS, poll: cfg.PollInterval, polls: cfg.Clock != nil, clocks: newClocks(cfg), log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		mustExist: cfg.MustExist, intoExisting: cfg.IntoExisting}
	if s.poll <= 0 {
		s.poll = defaultPoll
	}
	own := &sqlite.Driver{}
	if err := s.clocks.register(own); err != nil {
		return nil, fmt.Errorf("sqlite: registering the clock: %w", err)
	}
	s.life, s.end = context.WithCancel(context.Background())

	s.writer = newWriter(openDB(own, path, writerSettings))
	s.readers = openDB(own, path, "_query_only=1")
	s.readers.SetMaxOpenConns(maxReaders)
	s.readers.SetMaxIdleConns(maxReaders)
	s.reading = newStatements(s.readers)
	s.wide = openDB(own, path, "")
	s.wide.SetMaxIdleConns(maxReaders)
	s.frozen, s.snapshots = newStatements(s.wide), make(chan struct{}, maxReaders)

	if cfg.NoMigrate {
		return s, nil
	}
	if _, _, err := s.Migrate(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// place resolves the path and refuses file systems on which SQLite's locks and
// shared memory do not hold.
func place(path string) (abs, warning string, err error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", "", fmt.Errorf("sqlite: %w: %q is not a valid path of a file", lease.ErrInvalid, path)
	}
	if abs, err = filepath.Abs(path); err != nil {
		return "", "", fmt.Errorf("sqlite: %s: %w", path, err)
	}
	if info, err := os.Stat(abs); err == nil && !info.Mode().IsRegular() {
		return "", "", fmt.Errorf("sqlite: %w: %s is not a regular file; name a file in a directory", lease.ErrDamaged, abs)
	}
	where := abs
	for missing(where) && filepath.Dir(where) != where {
		where = filepath.Dir(where)
	}
	warning, err = checkFileSystem(where)
	if err != nil {
		return "", "", fmt.Errorf("sqlite: %s: %w: %w", abs, lease.ErrInvalid, err)
	}
	return abs, warning, nil
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// openDB returns a pool whose connections have the settings that all need. The
// busy timeout is short, because the waiting is done by retry.
func openDB(d *sqlite.Driver, path, extra string) *sql.DB {
	// The file is made by makeFile: a connection that made one where the file was removed would hide that.
	q := "mode=rw&_busy_timeout=10&_synchronous=FULL&_error_rc=1&_pragma=journal_size_limit(16777216)&_pragma=cache_size(-1024)"
	if extra != "" {
		q += "&" + extra
	}
	escaped := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	if !strings.HasPrefix(escaped, "/") {
		escaped = "/" + escaped // C:/…
	}
	return sql.OpenDB(connector{driver: d, dsn: "file://" + escaped + "?" + q})
}

// connector opens connections with the store's own driver, so that its clock is
// nobody else's.
type connector struct {
	driver *sqlite.Driver
	dsn    string
}

func (c connector) Driver() driver.Driver { return c.driver }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.driver.Open(c.dsn)
}

// Close implements [store.Admin].
func (s *Store) Close() error {
	var err error
	s.closed.Do(func() {
		s.end()
		s.writer.turn <- struct{}{} // a call under way is interrupted, and gives its turn up
		defer func() { <-s.writer.turn }()
		err = errors.Join(s.writer.close(), s.reading.close(), s.frozen.close(), s.readers.Close(), s.wide.Close())
	})
	return err
}

var errClosed = errors.New("the store is closed")

// bound gives a call its deadline, and lets it end with the store.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := s.untilClosed(ctx)
	if _, has := ctx.Deadline(); has {
		return ctx, stop
	}
	ctx, cancel := context.WithTimeout(ctx, longestCall)
	return ctx, func() { cancel(); stop() }
}

func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.life, func() { cancel(errClosed) })
	return ctx, func() { unhook(); cancel(nil) }
}
