package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// steps are the migrations in order; the first brings a store to schema 1.
func steps() ([]string, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	out := make([]string, len(files))
	for i, name := range files {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out[i] = string(text)
	}
	return out, nil
}

// The version has a table of its own, because PRAGMA user_version belongs to
// the user whose file this may be.
const (
	hasSchema    = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'understudy_schema'"
	readSchema   = "SELECT coalesce(max(version), 0) FROM understudy_schema"
	makeSchema   = "CREATE TABLE IF NOT EXISTS understudy_schema (version INTEGER PRIMARY KEY, applied_us INTEGER NOT NULL) STRICT"
	recordSchema = "INSERT INTO understudy_schema (version, applied_us) VALUES (?1, ?2)"
)

func schemaVersion(ctx context.Context, on *statements) (version int, err error) {
	var there bool
	if err := on.one(ctx, hasSchema, nil, &there); err != nil || !there {
		return 0, err
	}
	err = on.one(ctx, readSchema, nil, &version)
	return version, err
}

// Migrate implements [store.Admin].
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	all, err := steps()
	if err != nil {
		return 0, 0, err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return 0, 0, fmt.Errorf("sqlite: making the directory of the store: %w: %w", lease.ErrUnavailable, err)
	}
	if err := s.useWAL(ctx); err != nil {
		return 0, 0, err
	}
	if err := s.rememberFile(); err != nil {
		return 0, 0, err
	}
	err = s.read(ctx, "reading the schema's version", func(ctx context.Context) error {
		from, err = schemaVersion(ctx, s.reading)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if from < len(all) {
		err = s.write(ctx, "migrating", func(t *txn) error {
			// Another process may have done it meanwhile.
			if from, err = schemaVersion(t.ctx, t.statements); err != nil {
				return err
			}
			return s.apply(t, from, all)
		})
		if err != nil {
			return 0, 0, err
		}
	}
	if from > len(all) {
		return from, from, fmt.Errorf("sqlite: %w: %s has version %d, made by a newer understudy, and this one knows %d: use the newer program, or another file",
			store.ErrSchema, s.path, from, len(all))
	}
	return from, len(all), nil
}

func (s *Store) apply(t *txn, from int, all []string) error {
	if _, err := t.exec(makeSchema); err != nil {
		return err
	}
	for version := from + 1; version <= len(all); version++ {
		if _, err := s.writer.conn.ExecContext(t.ctx, all[version-1]); err != nil {
			return fmt.Errorf("migration %d: %w", version, err)
		}
		if _, err := t.exec(recordSchema, version, t.wall); err != nil {
			return err
		}
		s.log.Info("schema migrated", "store", s.path, "version", version)
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
