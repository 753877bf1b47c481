package cachetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

var _ cache.Storage = (*Memory)(nil)

// remembered is how many saves a Memory can lose.
const remembered = 100

// Memory is a storage in memory. The zero Memory is empty and ready for use. What a
// peer stored in it is there for the next peer that is given it.
type Memory struct {
	// Fail is called with a method's name before it does anything; what it returns
	// is what the method returns. Nil: nothing fails.
	Fail func(method string) error

	mu    sync.Mutex
	saved int64 // grows with every record
	rows  map[string]row
	undo  []map[string]row // what the last saves replaced; the zero row: nothing
	state cache.State
}

type row struct {
	at    int64 // when it was saved: the order of Load
	entry protocol.Entry
}

func absent(e protocol.Entry) bool {
	return e.Term == 0 && e.Expire == 0 && e.Made == 0 && e.Digest == 0 && len(e.Value) == 0
}

// begin locks m unless the call has to fail.
func (m *Memory) begin(ctx context.Context, method string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if m.Fail != nil {
		if err := m.Fail(method); err != nil {
			return err
		}
	}
	m.mu.Lock()
	return nil
}

// Load implements [cache.Storage], in the order of saving.
func (m *Memory) Load(ctx context.Context, each func(cache.Record) error) (cache.State, error) {
	if err := m.begin(ctx, "Load"); err != nil {
		return cache.State{}, err
	}
	keys := slices.SortedFunc(maps.Keys(m.rows), func(a, b string) int { return cmp.Compare(m.rows[a].at, m.rows[b].at) })
	records := make([]cache.Record, len(keys))
	for i, key := range keys {
		records[i] = cache.Record{Key: key, Entry: m.rows[key].entry}
	}
	state := cloneState(m.state)
	m.mu.Unlock()
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
	if err := m.begin(ctx, "Save"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.rows == nil {
		m.rows = map[string]row{}
	}
	before := map[string]row{}
	for _, r := range records {
		if _, seen := before[r.Key]; !seen {
			before[r.Key] = m.rows[r.Key]
		}
		r.Entry.Seen = 0 // no storage keeps it
		m.saved++
		if absent(r.Entry) {
			delete(m.rows, r.Key)
		} else {
			m.rows[r.Key] = row{m.saved, r.Entry}
		}
	}
	if m.undo = append(m.undo, before); len(m.undo) > remembered {
		m.undo = slices.Delete(m.undo, 0, 1)
	}
	return nil
}

// Raise implements [cache.Storage].
func (m *Memory) Raise(ctx context.Context, to int64) error {
	if err := m.begin(ctx, "Raise"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.state.Ceiling = max(m.state.Ceiling, to)
	return nil
}

// SaveRemovals implements [cache.Storage].
func (m *Memory) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	if err := m.begin(ctx, "SaveRemovals"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.state.Removals = slices.Clone(all)
	return nil
}

// SaveMembers implements [cache.Storage].
func (m *Memory) SaveMembers(ctx context.Context, state protocol.MembersState) error {
	if err := m.begin(ctx, "SaveMembers"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	state.Members = slices.Clone(state.Members)
	m.state.Members = state
	return nil
}

// Forget empties m, as when somebody has deleted the files.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows, m.undo, m.state, m.saved = nil, nil, cache.State{}, 0
}

// Lose undoes the last saves, at most 100 of them, as a crash of the machine may:
// the last ones, in order, and nothing else. It returns how many there were.
func (m *Memory) Lose(saves int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(saves, len(m.undo))
	for range n {
		last := len(m.undo) - 1
		for key, old := range m.undo[last] {
			if absent(old.entry) {
				delete(m.rows, key)
			} else {
				m.rows[key] = old
			}
		}
		m.undo = m.undo[:last]
	}
	return n
}
