package accesstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/recorder"
	"github.com/understudy-ha/understudy/lease"
)

// model is a store of tokens that can be broken.
type model struct {
	mu     sync.Mutex
	now    time.Time
	all    []access.Token
	events []history.Event

	change func(*access.Change)                // what is done is this instead
	seen   func([]access.Token) []access.Token // what a decision is made from
	listed func([]access.Token)                // what is shown
	clock  func(time.Time) time.Time
	apart  bool // reading and writing are two operations
	deaf   bool // to the end of a context
	lax    bool // takes what is invalid
	silent bool // writes no history
}

func (m *model) do(ctx context.Context, decide access.Decision) (access.Token, error) {
	if ctx.Err() != nil && !m.deaf {
		return access.Token{}, fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.all)
	if m.seen != nil {
		all = m.seen(all)
	}
	c, err := decide(all, m.now)
	if m.apart {
		m.mu.Unlock()
		<-time.After(time.Microsecond) // in a bubble: everyone else's turn
		m.mu.Lock()
	}
	if err != nil {
		return access.Token{}, err
	}
	nothing := c.Unchanged
	if m.change != nil {
		m.change(&c)
	}
	if c.Unchanged {
		return c.Token, nil
	}
	m.all = slices.DeleteFunc(m.all, func(t access.Token) bool { return t.ID == c.Token.ID || slices.Contains(c.Drop, t.ID) })
	m.all = append(m.all, c.Token)
	if !m.silent || nothing {
		c.Event.ID, c.Event.At = int64(len(m.events)+1), m.now
		m.events = append(m.events, c.Event)
	}
	return c.Token, nil
}

func (m *model) Add(ctx context.Context, t access.Token, lasts time.Duration) (access.Token, error) {
	return m.do(ctx, func(all []access.Token, now time.Time) (access.Change, error) {
		c, err := access.DecideAdd(t, lasts)(all, now)
		if m.lax && err != nil {
			t.Created = now
			return access.Change{Token: t}, nil
		}
		return c, err
	})
}

func (m *model) Revoke(ctx context.Context, ref, by string) (access.Token, error) {
	return m.do(ctx, access.DecideRevoke(ref, by))
}

func (m *model) List(ctx context.Context) ([]access.Token, time.Time, error) {
	if ctx.Err() != nil && !m.deaf {
		return nil, time.Time{}, fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.all)
	access.Sort(out)
	if m.listed != nil {
		m.listed(out)
	}
	now := m.now
	if m.clock != nil {
		now = m.clock(now)
	}
	return out, now, nil
}

// log is the history of a model.
type log struct {
	history.Log
	m *model
}

func (l log) Read(context.Context, history.Query) ([]history.Event, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return slices.Clone(l.m.events), nil
}

func subject(m *model) Subject {
	m.now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return Subject{Tokens: m, History: log{m: m}, Advance: func(d time.Duration) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now = m.now.Add(d)
	}}
}

func TestModel(t *testing.T) {
	TestTokens(t, func(*testing.T) Subject { return subject(&model{}) })
}

// twin is a broken store, with the topic that catches it.
type twin struct {
	by     string
	broken func() *model
}

func twins() map[string]twin {
	only := func(keep func(access.Token) bool) func([]access.Token) []access.Token {
		return func(all []access.Token) []access.Token {
			return slices.DeleteFunc(all, func(t access.Token) bool { return !keep(t) })
		}
	}
	cut := func(s string) string { return strings.Map(func(r rune) rune { return min(r, 127) }, s) }
	return map[string]twin{
		"loses a scope":        {"add/kept as it was given", func() *model { return &model{change: func(c *access.Change) { c.Token.Scopes = c.Token.Scopes[:1] }} }},
		"loses the sum":        {"add/kept as it was given", func() *model { return &model{listed: func(all []access.Token) { clearSums(all) }} }},
		"knows ASCII":          {"add/hostile text is only data", func() *model { return &model{change: func(c *access.Change) { c.Token.Name = cut(c.Token.Name) }} }},
		"writes over":          {"history/each change and no other", func() *model { return &model{seen: only(func(access.Token) bool { return false })} }},
		"names live twice":     {"history/each change and no other", func() *model { return &model{seen: rename} }},
		"a name for ever":      {"revoke/by id and by name", func() *model { return &model{seen: revive} }},
		"does not look at ids": {"history/each change and no other", func() *model { return &model{seen: only(func(t access.Token) bool { return t.Revoked.IsZero() })} }},
		"takes everything":     {"history/each change and no other", func() *model { return &model{lax: true} }},
		"keeps all":            {"add/what was over for long goes", func() *model { return &model{change: func(c *access.Change) { c.Drop = nil }} }},
		"never expires":        {"expire/by the store's clock", func() *model { return &model{change: func(c *access.Change) { c.Token.Expires = time.Time{} }} }},
		"another clock":        {"expire/by the store's clock", func() *model { return &model{clock: func(t time.Time) time.Time { return t.Add(-24 * time.Hour) }} }},
		"the youngest first":   {"list/the oldest first", func() *model { return &model{listed: func(all []access.Token) { slices.Reverse(all) }} }},
		"forgets who revoked":  {"revoke/by id and by name", func() *model { return &model{change: func(c *access.Change) { c.Token.RevokedBy = "" }} }},
		"revokes nothing": {"revoke/by id and by name", func() *model {
			return &model{change: func(c *access.Change) { c.Unchanged = c.Unchanged || !c.Token.Revoked.IsZero() }}
		}},
		"no history":                {"history/each change and no other", func() *model { return &model{silent: true} }},
		"history of nothing":        {"history/each change and no other", func() *model { return &model{change: func(c *access.Change) { c.Unchanged = false }} }},
		"reads and then writes":     {"race/one of many gets the name", func() *model { return &model{apart: true} }},
		"goes on without a context": {"context/nothing once it is over", func() *model { return &model{deaf: true} }},
	}
}

func clearSums(all []access.Token) {
	for i := range all {
		all[i].Sum = [32]byte{}
	}
}

func rename(all []access.Token) []access.Token {
	for i := range all {
		all[i].Name = "x" + all[i].Name
	}
	return all
}

func revive(all []access.Token) []access.Token {
	for i := range all {
		all[i].Revoked, all[i].Expires = time.Time{}, time.Time{}
	}
	return all
}

// TestSuiteCatches proves the suite: each broken store is caught by the topic that is named, and each topic
// catches one.
func TestSuiteCatches(t *testing.T) {
	recorder.Catches(t, slices.Collect(maps.Keys(topics())), twins(), func(w twin) string { return w.by }, func(t *testing.T, r testing.TB, w twin) {
		topics()[w.by](newBench(r, t.Context(), subject(w.broken())))
	})
}
