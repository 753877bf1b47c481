package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/store"
)

const (
	inspectSQL = `
SELECT sqlite_version(), understudy_wall_us(), (SELECT journal_mode FROM pragma_journal_mode())`

	foreignSQL = `
SELECT count(*) FROM understudy_session WHERE ended = 0 AND boot <> ?1 AND renewed_us > understudy_wall_us() - timeout_us`
)

// Inspect implements [store.Admin].
func (s *Store) Inspect(ctx context.Context) (store.Info, error) {
	all, err := steps()
	if err != nil {
		return store.Info{}, err
	}
	info := store.Info{Kind: "sqlite", Location: s.path, Wanted: len(all), Notifies: true}
	if missing(s.path) { // and to look must not make it
		info.Server, info.Now = "no file yet", s.clocks.wall()
		return info, nil
	}
	var version, mode string
	var now, foreign int64
	err = s.read(ctx, "inspecting", func(c call) (err error) {
		if info.Schema, info.Readers, err = schemaVersion(c); err != nil {
			return err
		}
		if err = c.one(inspectSQL, nil, &version, &now, &mode); err != nil || info.Schema < info.Wanted {
			return err
		}
		return c.one(foreignSQL, []any{s.clocks.boot}, &foreign)
	})
	if err != nil {
		return store.Info{}, err
	}
	info.Server, info.Now = "SQLite "+version, time.UnixMicro(now)
	info.Warnings = s.warnings(mode, foreign)
	return info, nil
}

func (s *Store) warnings(mode string, foreign int64) (out []string) {
	if s.onFS != "" {
		out = append(out, s.onFS)
	}
	if mode != "wal" {
		out = append(out, fmt.Sprintf("the journal mode is %q: another program changed it; restart to have it set to WAL", mode))
	}
	if foreign > 0 {
		out = append(out, fmt.Sprintf("%d sessions of another boot were renewed a moment ago: after a reboot this passes; "+
			"if it stays, two hosts share the file, which SQLite does not allow: use PostgreSQL or Redis", foreign))
	}
	if err := s.sameFile(); err != nil {
		out = append(out, err.Error())
	}
	if s.clocks.boot == wallBoot {
		out = append(out, "this host has no boot id: sessions are judged by its wall clock, which may be stepped")
	}
	return out
}
