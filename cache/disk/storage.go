package disk

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

const (
	loadEntries  = "SELECT key, term, expire, made, digest, value FROM entry ORDER BY seq"
	loadRemovals = "SELECT scope, name, term FROM removal ORDER BY seq"
	loadPeer     = "SELECT ceiling, membership FROM peer"

	// Replacing gives the entry a new rowid, behind all others.
	saveEntry      = "INSERT OR REPLACE INTO entry (key, term, expire, made, digest, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
	deleteEntry    = "DELETE FROM entry WHERE key = ?1"
	raise          = "UPDATE peer SET ceiling = max(ceiling, ?1)"
	saveMembers    = "UPDATE peer SET membership = ?1"
	deleteRemovals = "DELETE FROM removal"
	saveRemoval    = "INSERT INTO removal (scope, name, term) VALUES (?1, ?2, ?3)"
)

// checkEvery is after how many records of a Save its context is looked at.
const checkEvery = 64

// Load implements [cache.Storage]. Only when it succeeds are damaged values
// deleted.
func (s *Storage) Load(ctx context.Context, each func(cache.Record) error) (cache.State, error) {
	if err := s.usable(); err != nil {
		return cache.State{}, err
	}
	state, err := s.loadState(ctx)
	if err != nil {
		return cache.State{}, err
	}
	var damaged []cache.Record
	var refused error // what each returned, which is passed on as it is
	err = s.rows(ctx, loadEntries, func(rows *sql.Rows) error {
		r, err := scanRecord(rows)
		if err != nil {
			return err
		}
		if r.Entry.Held() && protocol.Digest(r.Entry.Value) != r.Entry.Digest {
			damaged = append(damaged, cache.Record{Key: r.Key})
			return nil
		}
		refused = each(r)
		return refused
	})
	if refused != nil {
		return cache.State{}, refused
	}
	if err != nil {
		return cache.State{}, failed("loading", err)
	}
	if len(damaged) > 0 {
		s.log.Warn("copies were damaged on the disk and are forgotten; the disk may be failing", "file", s.path, "copies", len(damaged))
		if err := s.Save(ctx, damaged); err != nil {
			return cache.State{}, err
		}
	}
	return state, nil
}

func (s *Storage) loadState(ctx context.Context) (state cache.State, err error) {
	if state.Ceiling, state.Members, err = s.loadPeer(ctx); err == nil {
		state.Removals, err = s.loadRemovals(ctx)
	}
	return state, err
}

// loadPeer reads the ceiling, also where the list of members cannot be read.
func (s *Storage) loadPeer(ctx context.Context) (ceiling int64, state protocol.MembersState, err error) {
	var list sql.Null[string]
	err = s.rows(ctx, loadPeer, func(rows *sql.Rows) error { return rows.Scan(&ceiling, &list) })
	if err != nil {
		return 0, state, failed("loading the ceiling of terms", err)
	}
	if list.Valid {
		var m storedMembers
		if err := json.Unmarshal([]byte(list.V), &m); err != nil {
			return ceiling, state, fmt.Errorf("%w: loading the list of members from %s: %w; %s", ErrFile, s.path, err, repair)
		}
		state = protocol.MembersState{Members: m.Config.Members, Settled: m.Settled}
	}
	return ceiling, state, nil
}

func (s *Storage) loadRemovals(ctx context.Context) (all []protocol.Removal, err error) {
	err = s.rows(ctx, loadRemovals, func(rows *sql.Rows) error {
		var r protocol.Removal
		var name []byte
		if err := rows.Scan(&r.Scope, &name, &r.Term); err != nil {
			return err
		}
		r.Name = string(name)
		all = append(all, r)
		return nil
	})
	if err != nil {
		return all, failed("loading the removals", err)
	}
	return all, nil
}

// rows calls f for every row.
func (s *Storage) rows(ctx context.Context, text string, f func(*sql.Rows) error) error {
	stmt, err := s.saves.prepare(ctx, text)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scanRecord(rows *sql.Rows) (r cache.Record, err error) {
	var key, value sql.RawBytes
	var digest int64
	e := &r.Entry
	if err := rows.Scan(&key, &e.Term, &e.Expire, &e.Made, &digest, &value); err != nil {
		return r, err
	}
	r.Key, e.Digest = string(key), uint64(digest)
	if e.Held() {
		e.Value = slices.Clone([]byte(value))
	}
	return r, nil
}

// Save implements [cache.Storage].
func (s *Storage) Save(ctx context.Context, records []cache.Record) error {
	if err := s.usable(); err != nil {
		return err
	}
	err := s.saves.write(ctx, func(exec func(string, ...any) error) error {
		for i, r := range records {
			if i%checkEvery == checkEvery-1 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := saveRecord(exec, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return failed("saving copies", err)
	}
	return nil
}

func saveRecord(exec func(string, ...any) error, r cache.Record) error {
	e, key := r.Entry, []byte(r.Key)
	e.Used = 0 // no storage keeps it
	if e.IsZero() {
		return exec(deleteEntry, key)
	}
	value := e.Value
	if value == nil {
		value = []byte{} // nil would be NULL
	}
	return exec(saveEntry, key, e.Term, e.Expire, e.Made, int64(e.Digest), value)
}

// Raise implements [cache.Storage].
func (s *Storage) Raise(ctx context.Context, to int64) error {
	return s.surely(ctx, "raising the ceiling of terms", func(exec func(string, ...any) error) error {
		return exec(raise, to)
	})
}

// SaveRemovals implements [cache.Storage].
func (s *Storage) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	return s.surely(ctx, "saving removals", func(exec func(string, ...any) error) error {
		if err := exec(deleteRemovals); err != nil {
			return err
		}
		for _, r := range all {
			if err := exec(saveRemoval, int64(r.Scope), []byte(r.Name), r.Term); err != nil {
				return err
			}
		}
		return nil
	})
}

// storedMembers is a list of members as it is stored. Older versions, which agreed on
// their members, stored more beside it, which is ignored; what they need is kept, so
// that a file can go back to them.
type storedMembers struct {
	Config struct {
		Number  int64            `json:"number"`
		Members protocol.Members `json:"members"`
	}
	Settled bool
}

// SaveMembers implements [cache.Storage].
func (s *Storage) SaveMembers(ctx context.Context, state protocol.MembersState) error {
	var m storedMembers
	m.Config.Number, m.Config.Members, m.Settled = protocol.FixedListNumber, state.Members, state.Settled
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("disk: saving the list of members: %w", err)
	}
	return s.surely(ctx, "saving the list of members", func(exec func(string, ...any) error) error {
		return exec(saveMembers, string(text))
	})
}

func (s *Storage) surely(ctx context.Context, doing string, fn func(exec func(string, ...any) error) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.sure.write(ctx, fn); err != nil {
		return failed(doing, err)
	}
	return nil
}
