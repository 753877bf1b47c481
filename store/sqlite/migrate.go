package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// steps are the migrations in order; the first brings a store to schema 1. They hold tables alone:
// the rules are in the program, so that two versions of it can share a file.
func steps() ([]store.Step, error) { return store.Steps(migrations, "migrations/*.sql") }

// The version has tables of its own, because PRAGMA user_version belongs to the user whose file
// this may be. A program refuses a file if it does not know the greatest version in
// understudy_schema; understudy_step has the steps that it need not know.
const (
	schemaTables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('understudy_schema', 'understudy_step')"
	countTables  = "SELECT count(*) FILTER (WHERE name LIKE 'understudy%'), count(*) FILTER (WHERE name NOT LIKE 'understudy%') FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
	readReaders  = "SELECT coalesce(max(version), 0) FROM understudy_schema"
	readSteps    = "SELECT coalesce(max(version), 0) FROM understudy_step"
	createSchema = "CREATE TABLE IF NOT EXISTS understudy_schema (version INTEGER PRIMARY KEY, applied_us INTEGER NOT NULL) STRICT"
	createSteps  = "CREATE TABLE IF NOT EXISTS understudy_step (version INTEGER PRIMARY KEY, applied_us INTEGER NOT NULL) STRICT"
	recordReader = "INSERT INTO understudy_schema (version, applied_us) SELECT ?1, ?2 WHERE ?1 > (SELECT coalesce(max(version), 0) FROM understudy_schema)"
	recordStep   = "INSERT INTO understudy_step (version, applied_us) VALUES (?1, ?2)"
)

// schemaVersion reads the schema's version, 0 when there is none, and the oldest that a program
// must know.
func schemaVersion(c call) (version, readers int, err error) {
	var tables int
	if err := c.one(schemaTables, nil, &tables); err != nil || tables == 0 {
		return 0, 0, err
	}
	if err = c.one(readReaders, nil, &readers); err == nil && tables > 1 {
		err = c.one(readSteps, nil, &version)
	}
	return max(version, readers), readers, err
}

// Migrate implements [store.Admin].
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	all, err := steps()
	if err != nil {
		return 0, 0, err
	}
	if s.mustExist && missing(s.path) {
		return 0, 0, fmt.Errorf("sqlite: %w: there is no file %s; commands that run something make it (role run, queue run, serve, …), and so does: understudy store migrate",
			lease.ErrUnavailable, s.path)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return 0, 0, fmt.Errorf("sqlite: making the directory of the store: %w: %w", lease.ErrUnavailable, err)
	}
	if err := makeFile(s.path); err != nil {
		return 0, 0, err
	}
	if err := s.refuseForeign(ctx); err != nil {
		return 0, 0, err
	}
	if err := s.useWAL(ctx); err != nil {
		return 0, 0, err
	}
	if err := s.rememberFile(); err != nil {
		return 0, 0, err
	}
	var readers int
	err = s.read(ctx, "reading the schema's version in "+s.path, func(c call) error {
		from, readers, err = schemaVersion(c)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if from < len(all) {
		err = s.write(ctx, "migrating", func(t *txn) error {
			// Another process may have done it meanwhile.
			if from, readers, err = schemaVersion(t.call); err != nil {
				return err
			}
			return s.apply(t, from, all)
		})
		if err != nil {
			return 0, 0, err
		}
	}
	if readers > len(all) {
		return from, from, fmt.Errorf("sqlite: %w: %s has version %d, made by a newer understudy, and this one knows %d: use the newer program, or another file",
			store.ErrSchema, s.path, readers, len(all))
	}
	return from, max(from, len(all)), nil
}

// refuseForeign refuses to add tables to a database of another program, before anything in it is changed.
func (s *Store) refuseForeign(ctx context.Context) error {
	if s.intoExisting {
		return nil
	}
	var own, others int
	err := s.read(ctx, "opening "+s.path, func(c call) error {
		return c.one(countTables, nil, &own, &others)
	})
	if err != nil || own > 0 || others == 0 {
		return err
	}
	return fmt.Errorf("sqlite: %w: %s has tables of another program and none of understudy's: name another file, or add the tables beside them: understudy store migrate --into-existing",
		lease.ErrInvalid, s.path)
}

var making sync.Mutex

// makeFile makes the file, if there is none, so that its owner alone may read it; SQLite gives its -wal and -shm the same
// mode. A file that is there keeps the mode that its owner gave it.
func makeFile(path string) error {
	// One at a time: closing a file ends the locks that this process has on it, which another store may have got since
	// the file was made.
	making.Lock()
	defer making.Unlock()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("sqlite: making the store: %w: %w", lease.ErrUnavailable, err)
	}
	return nil
}

func (s *Store) apply(t *txn, from int, all []store.Step) error {
	if _, err := t.exec(createSchema); err != nil {
		return err
	}
	for version := from + 1; version <= len(all); version++ {
		step := all[version-1]
		if _, err := s.writer.conn.ExecContext(t.ctx, step.SQL); err != nil {
			return fmt.Errorf("migration %d: %w", version, err)
		}
		if version > step.Readers {
			if _, err := t.exec(createSteps); err != nil {
				return err
			}
			if _, err := t.exec(recordStep, version, t.wall); err != nil {
				return err
			}
		}
		if _, err := t.exec(recordReader, step.Readers, t.wall); err != nil {
			return err
		}
	}
	if from < len(all) {
		s.log.Info("schema migrated", "store", s.path, "from", from, "to", len(all))
	}
	return nil
}

// useWAL switches the file to write-ahead logging, once in its life. SQLite
// refuses that as busy, whatever its timeout, while others open the file.
func (s *Store) useWAL(ctx context.Context) error {
	const op = "switching to write-ahead logging"
	ctx, done, err := s.writing(ctx, false)
	if err != nil {
		return failed(op, err)
	}
	defer done()
	var mode string
	err = retry(ctx, func() error {
		err := s.writer.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
		if err != nil || mode == "wal" {
			return err
		}
		return s.writer.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("the file stays in mode %q", mode)
	}
	if err != nil {
		return failed(op, err)
	}
	return nil
}
