package cachetest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

var _ cache.Storage = (*Memory)(nil)

// Memory is a storage in memory, small enough to be believed. The zero Memory is empty
// and ready for use. What a peer stored in it is there for the next peer that is given it.
type Memory struct {
	saved int64 // grows with every record
	rows  map[string]row
	undo  []map[string]row // what each save replaced; the zero row: nothing
	state cache.State
}

type row struct {
	at    int64 // when it was saved: the order of Load
	entry protocol.Entry
}

// Load implements [cache.Storage], in the order of saving.
func (m *Memory) Load(ctx context.Context, each func(cache.Record) error) (cache.State, error) {
	if ctx.Err() != nil {
		return cache.State{}, context.Cause(ctx)
	}
	keys := slices.SortedFunc(maps.Keys(m.rows), func(a, b string) int { return cmp.Compare(m.rows[a].at, m.rows[b].at) })
	records := make([]cache.Record, len(keys))
	for i, key := range keys {
		records[i] = cache.Record{Key: key, Entry: m.rows[key].entry}
	}
	state := cloneState(m.state)
	for _, r := range records {
		if err := each(r); err != nil {
			return cache.State{}, err
		}
	}
	return state, nil
}

func cloneState(s cache.State) cache.State {
	s.Removals = slices.Clone(s.Removals)
	s.Members.Members = slices.Clone(s.Members.Members)
	return s
}

// Save implements [cache.Storage].
func (m *Memory) Save(ctx context.Context, records []cache.Record) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if m.rows == nil {
		m.rows = map[string]row{}
	}
	before := map[string]row{}
	for _, r := range records {
		if _, seen := before[r.Key]; !seen {
			before[r.Key] = m.rows[r.Key]
		}
		r.Entry.Used = 0 // no storage keeps it
		m.saved++
		if r.Entry.IsZero() {
			delete(m.rows, r.Key)
		} else {
			m.rows[r.Key] = row{m.saved, r.Entry}
		}
	}
	m.undo = append(m.undo, before)
	return nil
}

// Raise implements [cache.Storage].
func (m *Memory) Raise(ctx context.Context, to int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.state.Ceiling = max(m.state.Ceiling, to)
	return nil
}

// SaveRemovals implements [cache.Storage].
func (m *Memory) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.state.Removals = slices.Clone(all)
	return nil
}

// SaveMembers implements [cache.Storage].
func (m *Memory) SaveMembers(ctx context.Context, state protocol.MembersState) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	state.Members = slices.Clone(state.Members)
	m.state.Members = state
	return nil
}

// Lose undoes the last saves, as a crash of the machine may: the last ones, in order,
// and nothing else.
func (m *Memory) Lose(saves int) {
	for range min(saves, len(m.undo)) {
		last := len(m.undo) - 1
		for key, old := range m.undo[last] {
			if old.entry.IsZero() {
				delete(m.rows, key)
			} else {
				m.rows[key] = old
			}
		}
		m.undo = m.undo[:last]
	}
}
