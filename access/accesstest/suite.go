package accesstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Subject is one empty store under test.
type Subject struct {
	Tokens  access.Tokens
	History history.Log
	// Other is another handle on the same store, as another process has it. Default: the same.
	Other access.Tokens
	// Advance moves the store's clock forward.
	Advance func(d time.Duration)
}

// TestTokens puts a store through the suite; fresh returns an empty one for each topic.
func TestTokens(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, topic := range topics() {
		t.Run(name, func(t *testing.T) {
			topic(newBench(t, t.Context(), fresh(t)))
		})
	}
}

func topics() map[string]func(*bench) {
	return map[string]func(*bench){
		"add/kept as it was given":         testAdd,
		"add/hostile text is only data":    testHostile,
		"add/what was over for long goes":  testForget,
		"expire/by the store's clock":      testExpire,
		"list/the oldest first":            testOrder,
		"revoke/by id and by name":         testRevoke,
		"history/each change and no other": testHistory,
		"race/one of many gets the name":   testRace,
		"context/nothing once it is over":  testContext,
	}
}

// bench is one topic with its store.
type bench struct {
	testing.TB
	Subject
	ctx context.Context
}

func newBench(t testing.TB, ctx context.Context, s Subject) *bench {
	if s.Other == nil {
		s.Other = s.Tokens
	}
	return &bench{TB: t, Subject: s, ctx: ctx}
}

func (b *bench) make(name string, scopes ...access.Scope) access.Token {
	b.Helper()
	t, _, err := access.NewToken(name, scopes, "alice")
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func (b *bench) add(t access.Token, lasts time.Duration) access.Token {
	b.Helper()
	got, err := b.Tokens.Add(b.ctx, t, lasts)
	if err != nil {
		b.Fatalf("Add(%q, %v): %v", t.Name, lasts, err)
	}
	return got
}

func (b *bench) refuses(t access.Token, lasts time.Duration, want error) {
	b.Helper()
	if _, err := b.Tokens.Add(b.ctx, t, lasts); !errors.Is(err, want) {
		b.Fatalf("Add(%q, %v) returned %v, want %v", t.Name, lasts, err, want)
	}
}

func (b *bench) revoke(ref, by string) access.Token {
	b.Helper()
	got, err := b.Tokens.Revoke(b.ctx, ref, by)
	if err != nil {
		b.Fatalf("Revoke(%q): %v", ref, err)
	}
	return got
}

// list lists through the other handle.
func (b *bench) list() ([]access.Token, time.Time) {
	b.Helper()
	all, now, err := b.Other.List(b.ctx)
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	return all, now
}

// holds expects exactly these tokens.
func (b *bench) holds(want ...access.Token) {
	b.Helper()
	access.Sort(want) // some may be of the same moment
	got, _ := b.list()
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Fatalf("the tokens (-want +got):\n%s", diff)
	}
}

func (b *bench) events() []history.Event {
	b.Helper()
	all, err := b.History.Read(b.ctx, history.Query{Part: access.Part})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

func testAdd(b *bench) {
	b.holds()
	ops := b.make("ops", access.Read, access.Act)
	got := b.add(ops, 0)
	_, now := b.list()
	if d := now.Sub(got.Created); got.Created.IsZero() || d < -time.Second || d > time.Hour {
		b.Errorf("created at %v, and the clock shows %v", got.Created, now)
	}
	ops.Created = got.Created
	if diff := cmp.Diff(ops, got); diff != "" {
		b.Errorf("returned (-want +got):\n%s", diff)
	}
	b.holds(got)
	b.Advance(time.Second)
	probe := b.add(b.make("probe", access.Ingest), time.Hour)
	if want := probe.Created.Add(time.Hour); !probe.Expires.Equal(want) {
		b.Errorf("expires at %v, want %v", probe.Expires, want)
	}
	b.holds(got, probe)
}

func testHostile(b *bench) {
	var want []access.Token
	for _, name := range []string{"'; DROP TABLE x; --", `"\{}[]%_$1 ?1`, "naïve 名前 🙂", "rev", "0", "null"} {
		t := b.make(name, access.Read)
		t.By = name
		t = b.add(t, 0)
		want = append(want, t)
	}
	b.holds(want...)
	for i, t := range want {
		want[i] = b.revoke(t.Name, t.Name)
	}
	b.holds(want...)
}

func testForget(b *bench) {
	stays := b.add(b.make("stays", access.Read), 0)
	b.add(b.make("brief", access.Read), time.Hour)
	b.add(b.make("gone", access.Read), 0)
	b.revoke("gone", "bob")
	b.Advance(24 * time.Hour)
	late := b.add(b.make("late", access.Read), 0)
	late = b.revoke(late.ID, "bob")
	b.Advance(access.KeepEnded - 12*time.Hour)
	if all, _ := b.list(); len(all) != 4 {
		b.Errorf("%d tokens before one more is made, want all 4", len(all))
	}
	b.holds(stays, late, b.add(b.make("one more", access.Read), 0))
}

func testExpire(b *bench) {
	t := b.add(b.make("brief", access.Read), time.Hour)
	if all, now := b.list(); len(all) != 1 || !all[0].IsLive(now) {
		b.Fatalf("before it expires: %+v at %v", all, now)
	}
	b.Advance(time.Hour + time.Second)
	if all, now := b.list(); len(all) != 1 || all[0].IsLive(now) {
		b.Errorf("after it expired: %+v at %v", all, now)
	}
	if _, err := b.Tokens.Revoke(b.ctx, "brief", "bob"); !errors.Is(err, access.ErrNotFound) {
		b.Errorf("revoking one that expired by its name: %v", err)
	}
	b.holds(t)
}

func testOrder(b *bench) {
	var want []access.Token
	for i := range 20 {
		want = append(want, b.add(b.make(fmt.Sprint("t", i), access.Read), 0))
		b.Advance(time.Second)
	}
	b.holds(want...)
}

func testRevoke(b *bench) {
	one, two, three := b.add(b.make("one", access.Read), 0), b.add(b.make("two", access.Act), time.Hour), b.add(b.make("three", access.Act), 0)
	b.Advance(time.Minute)
	gotOne, gotTwo := b.revoke(one.ID, "bob"), b.revoke("two", "carol")
	for _, c := range []struct {
		was, is access.Token
		by      string
	}{{one, gotOne, "bob"}, {two, gotTwo, "carol"}} {
		if d := c.is.Revoked.Sub(c.was.Created); d < time.Minute || d > time.Hour || c.is.RevokedBy != c.by {
			b.Errorf("%s: revoked %v after it was made, by %q", c.was.Name, d, c.is.RevokedBy)
		}
		c.was.Revoked, c.was.RevokedBy = c.is.Revoked, c.is.RevokedBy
		if diff := cmp.Diff(c.was, c.is); diff != "" {
			b.Errorf("%s changed otherwise (-was +is):\n%s", c.was.Name, diff)
		}
	}
	b.holds(gotOne, gotTwo, three, b.add(b.make("one", access.Read), 0)) // the name is free again
}

func testHistory(b *bench) {
	t := b.make("ops", access.Read, access.Ingest)
	b.add(t, 0)
	b.holds(b.add(t, time.Hour)) // again, which changes nothing
	b.refuses(b.make("ops", access.Read), 0, access.ErrTaken)
	ended := b.revoke("ops", "bob")
	b.Advance(time.Minute)
	b.revoke(t.ID, "carol")
	b.holds(ended)
	var got []string
	for _, e := range b.events() {
		got = append(got, e.Subject+": "+e.Reason)
		if e.At.IsZero() || e.Part != access.Part {
			b.Errorf("event %+v", e)
		}
	}
	want := []string{"ops: token " + t.ID + " (read, ingest) created by alice", "ops: token " + t.ID + " revoked by bob"}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("the history (-want +got):\n%s", diff)
	}
}

func testRace(b *bench) {
	const many = 8
	var wg sync.WaitGroup
	results := make([]error, many)
	for i := range many {
		from := []access.Tokens{b.Tokens, b.Other}[i%2]
		t := b.make("ops", access.Read)
		wg.Go(func() { _, results[i] = from.Add(b.ctx, t, 0) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, access.ErrTaken):
			b.Errorf("Add: %v", err)
		}
	}
	if all, _ := b.list(); won != 1 || len(all) != 1 {
		b.Errorf("%d of %d got the name, and %d tokens are there", won, many, len(all))
	}
}

func testContext(b *bench) {
	t := b.add(b.make("ops", access.Read), 0)
	over, cancel := context.WithCancel(b.ctx)
	cancel()
	_, addErr := b.Tokens.Add(over, b.make("late", access.Read), 0)
	_, revokeErr := b.Tokens.Revoke(over, "ops", "bob")
	_, _, listErr := b.Tokens.List(over)
	for name, err := range map[string]error{"Add": addErr, "Revoke": revokeErr, "List": listErr} {
		if !errors.Is(err, lease.ErrUnavailable) {
			b.Errorf("%s after the end of its context: %v", name, err)
		}
	}
	b.holds(t)
}
