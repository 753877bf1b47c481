package cachetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// overMemory opens one Memory again and again, through wrap; a crash loses three saves.
func overMemory(m *Memory, wrap func(*Memory) cache.Storage) Harness {
	return Harness{
		Open:  func() (cache.Storage, error) { return wrap(m), nil },
		Crash: func(cache.Storage) error { m.Lose(3); return nil },
	}
}

func plain(m *Memory) cache.Storage { return m }

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Harness { return overMemory(&Memory{}, plain) })
}

// twin is a storage that calls broken functions where there are some.
type twin struct {
	*Memory
	load    func(m *Memory, records []cache.Record, s cache.State) ([]cache.Record, cache.State)
	save    func(ctx context.Context, m *Memory, records []cache.Record) error
	raise   func(m *Memory, to int64) error
	remove  func(m *Memory, all []protocol.Removal) error
	careful bool // Load does not tell what each returned
}

func (w *twin) Load(ctx context.Context, each func(cache.Record) error) (cache.State, error) {
	var records []cache.Record
	state, err := w.Memory.Load(ctx, func(r cache.Record) error {
		records = append(records, r)
		return nil
	})
	if err == nil && w.load != nil {
		records, state = w.load(w.Memory, records, state)
	}
	for _, r := range records {
		if wrong := each(r); wrong != nil && !w.careful {
			return cache.State{}, wrong
		}
	}
	return state, err
}

func (w *twin) Save(ctx context.Context, records []cache.Record) error {
	if w.save != nil {
		return w.save(ctx, w.Memory, records)
	}
	return w.Memory.Save(ctx, records)
}

func (w *twin) Raise(ctx context.Context, to int64) error {
	if w.raise != nil {
		return w.raise(w.Memory, to)
	}
	return w.Memory.Raise(ctx, to)
}

func (w *twin) SaveRemovals(ctx context.Context, all []protocol.Removal) error {
	if w.remove != nil {
		return w.remove(w.Memory, all)
	}
	return w.Memory.SaveRemovals(ctx, all)
}

// eachRecord breaks the records of a Save one by one.
func eachRecord(f func(m *Memory, r cache.Record) cache.Record) twin {
	return twin{save: func(ctx context.Context, m *Memory, records []cache.Record) error {
		broken := slices.Clone(records)
		for i := range broken {
			broken[i] = f(m, broken[i])
		}
		return m.Save(ctx, broken)
	}}
}

// eachKey breaks keys.
func eachKey(f func(string) string) twin {
	return eachRecord(func(_ *Memory, r cache.Record) cache.Record { r.Key = f(r.Key); return r })
}

// onLoad breaks what is loaded.
func onLoad(f func(records []cache.Record, s *cache.State) []cache.Record) twin {
	return twin{load: func(_ *Memory, records []cache.Record, s cache.State) ([]cache.Record, cache.State) {
		return f(records, &s), s
	}}
}

func twins() map[string]twin {
	return map[string]twin{
		"loses the ceiling": onLoad(func(r []cache.Record, s *cache.State) []cache.Record { s.Ceiling = 0; return r }),
		"the ceiling falls": {raise: func(m *Memory, to int64) error { m.state.Ceiling = to; return nil }},
		"the ceiling has 32 bits": {raise: func(m *Memory, to int64) error {
			m.state.Ceiling = max(m.state.Ceiling, int64(int32(to)))
			return nil
		}},
		"a value without what belongs to it": eachRecord(func(m *Memory, r cache.Record) cache.Record {
			if old := m.rows[r.Key].entry; old.Held() && r.Entry.Held() {
				old.Value = r.Entry.Value
				r.Entry = old
			}
			return r
		}),
		"what belongs to it without its value": eachRecord(func(m *Memory, r cache.Record) cache.Record {
			if old := m.rows[r.Key].entry; old.Held() && r.Entry.Held() {
				r.Entry.Value = old.Value
			}
			return r
		}),
		"an old value stays": eachRecord(func(m *Memory, r cache.Record) cache.Record {
			if r.Entry.Term > 0 && !r.Entry.Held() {
				term := r.Entry.Term
				r.Entry = m.rows[r.Key].entry
				r.Entry.Term = term
			}
			return r
		}),
		"delete ignored": {save: func(ctx context.Context, m *Memory, records []cache.Record) error {
			return m.Save(ctx, slices.DeleteFunc(slices.Clone(records), func(r cache.Record) bool { return r.Entry.IsZero() }))
		}},
		"only a term is nothing": {save: func(ctx context.Context, m *Memory, records []cache.Record) error {
			return m.Save(ctx, slices.DeleteFunc(slices.Clone(records), func(r cache.Record) bool { return r.Entry.Term > 0 && !r.Entry.Held() }))
		}},
		"an empty value is none": eachRecord(func(_ *Memory, r cache.Record) cache.Record {
			if len(r.Entry.Value) == 0 {
				r.Entry.Expire, r.Entry.Digest = 0, 0
			}
			return r
		}),
		"the time of the fetch is lost": eachRecord(func(_ *Memory, r cache.Record) cache.Record { r.Entry.Made = 0; return r }),
		"the digest has 63 bits":        eachRecord(func(_ *Memory, r cache.Record) cache.Record { r.Entry.Digest &= 1<<63 - 1; return r }),
		"values of 1 MiB": eachRecord(func(_ *Memory, r cache.Record) cache.Record {
			r.Entry.Value = r.Entry.Value[:min(len(r.Entry.Value), 1<<20)]
			return r
		}),
		"values are text": eachRecord(func(_ *Memory, r cache.Record) cache.Record {
			r.Entry.Value = []byte(strings.ToValidUTF8(string(r.Entry.Value), "?"))
			return r
		}),
		"keys are text":       eachKey(func(k string) string { return strings.ToValidUTF8(k, "?") }),
		"keys end at a zero":  eachKey(func(k string) string { k, _, _ = strings.Cut(k, "\x00"); return k }),
		"keys are trimmed":    eachKey(strings.TrimSpace),
		"keys in lower case":  eachKey(strings.ToLower),
		"keys of 1,000 bytes": eachKey(func(k string) string { return k[:min(len(k), 1000)] }),
		"the first in a save": {save: saveFirst},
		"a save only so long": {save: func(ctx context.Context, m *Memory, r []cache.Record) error {
			return m.Save(ctx, r[:min(len(r), 1000)])
		}},
		"half a save":            {save: saveHalf},
		"a failed save is saved": {save: saveAnyway},
		"no order": onLoad(func(records []cache.Record, _ *cache.State) []cache.Record {
			slices.SortFunc(records, func(a, b cache.Record) int { return strings.Compare(a.Key, b.Key) })
			return records
		}),
		"the most recent first": onLoad(func(records []cache.Record, _ *cache.State) []cache.Record {
			slices.Reverse(records)
			return records
		}),
		"removals appended": {remove: func(m *Memory, all []protocol.Removal) error {
			return m.SaveRemovals(context.Background(), append(m.state.Removals, all...))
		}},
		"one removal of a name": {remove: func(m *Memory, all []protocol.Removal) error {
			byName := map[string]protocol.Removal{}
			for _, r := range all {
				byName[r.Name] = r
			}
			return m.SaveRemovals(context.Background(), slices.Collect(maps.Values(byName)))
		}},
		"an empty list of removals is none": {remove: func(m *Memory, all []protocol.Removal) error {
			if len(all) == 0 {
				return nil
			}
			return m.SaveRemovals(context.Background(), all)
		}},
		"members forgotten": onLoad(func(r []cache.Record, s *cache.State) []cache.Record {
			s.Members = protocol.MembersState{}
			return r
		}),
		"a member forgotten": onLoad(func(r []cache.Record, s *cache.State) []cache.Record {
			s.Members.Members = s.Members.Members[:len(s.Members.Members)/2]
			return r
		}),
		"unsettled":                    onLoad(func(r []cache.Record, s *cache.State) []cache.Record { s.Members.Settled = false; return r }),
		"errors of each are swallowed": {careful: true},
	}
}

func saveFirst(ctx context.Context, m *Memory, records []cache.Record) error {
	seen := map[string]bool{}
	var kept []cache.Record
	for _, r := range records {
		if !seen[r.Key] {
			kept = append(kept, r)
		}
		seen[r.Key] = true
	}
	return m.Save(ctx, kept)
}

func saveHalf(ctx context.Context, m *Memory, records []cache.Record) error {
	for i := range records {
		if err := m.Save(ctx, records[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func saveAnyway(ctx context.Context, m *Memory, records []cache.Record) error {
	return errors.Join(ctx.Err(), m.Save(context.WithoutCancel(ctx), records))
}

// TestTwins: the suite catches every broken storage.
func TestTwins(t *testing.T) {
	for name, w := range twins() {
		catches(t, name, func() Harness {
			return overMemory(&Memory{}, func(m *Memory) cache.Storage { broken := w; broken.Memory = m; return &broken })
		})
	}
	endings := map[string]func(*Memory){
		"a crash loses the ceiling":     func(m *Memory) { m.state.Ceiling = 0 },
		"a crash loses the removals":    func(m *Memory) { m.state.Removals = nil },
		"a crash loses the members":     func(m *Memory) { m.state.Members = protocol.MembersState{} },
		"a crash loses saves of before": func(m *Memory) { delete(m.rows, "key 3") },
		"a crash loses half a save":     func(m *Memory) { delete(m.rows, "counter") },
	}
	for name, damage := range endings {
		catches(t, name, func() Harness {
			h := overMemory(&Memory{}, plain)
			h.Crash = func(s cache.Storage) error { damage(s.(*Memory)); return nil }
			return h
		})
	}
	catches(t, "a kill loses the last save", func() Harness {
		h := overMemory(&Memory{}, plain)
		h.Kill = func(s cache.Storage) error { s.(*Memory).Lose(1); return nil }
		return h
	})
}

func catches(t *testing.T, name string, newHarness func() Harness) {
	t.Helper()
	all := checks()
	for _, check := range slices.Sorted(maps.Keys(all)) {
		if try(t.Context(), newHarness(), all[check]) != nil {
			t.Logf("%s: caught by %q", name, check)
			return
		}
	}
	t.Errorf("a storage in which %q passes the suite", name)
}
