package cachetest

import (
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

func (b *bench) raise(to int64) error {
	if err := b.s.Raise(b.ctx, to); err != nil {
		return fmt.Errorf("Raise(%d): %w", to, err)
	}
	return nil
}

func (b *bench) remove(all ...protocol.Removal) error {
	if err := b.s.SaveRemovals(b.ctx, all); err != nil {
		return fmt.Errorf("SaveRemovals: %w", err)
	}
	return nil
}

func (b *bench) members(state protocol.MembersState) error {
	if err := b.s.SaveMembers(b.ctx, state); err != nil {
		return fmt.Errorf("SaveMembers: %w", err)
	}
	return nil
}

func checkCeiling(b *bench) error {
	for _, c := range []struct{ to, want int64 }{
		{1_700_000_000_000, 1_700_000_000_000}, {5, 1_700_000_000_000}, {0, 1_700_000_000_000}, {protocol.MaxWireNumber, protocol.MaxWireNumber}, {1, protocol.MaxWireNumber},
	} {
		if err := steps(func() error { return b.raise(c.to) }, b.again); err != nil {
			return err
		}
		if got := b.found.State.Ceiling; got != c.want {
			return fmt.Errorf("the ceiling is %d after it was raised to %d; want %d", got, c.to, c.want)
		}
	}
	// The same within one use.
	err := steps(func() error { return b.raise(3) }, func() error { return b.raise(2) }, b.again)
	return errors.Join(err, b.wantState(cache.State{Ceiling: protocol.MaxWireNumber}))
}

func checkRemovals(b *bench) error {
	one := protocol.Removal{Scope: protocol.OneKey, Name: "k", Term: 1_700_000_000_001}
	prefix := protocol.Removal{Scope: protocol.PrefixKey, Name: "k", Term: protocol.MaxWireNumber}
	everything := protocol.Removal{Scope: protocol.PrefixKey, Term: 3}
	for _, list := range [][]protocol.Removal{{one}, {one, prefix, everything}, {prefix}, {}, {everything, one}, nil} {
		if err := steps(func() error { return b.remove(list...) }, b.again); err != nil {
			return err
		}
		if err := b.wantState(cache.State{Removals: list}); err != nil {
			return err
		}
	}
	return nil
}

func checkRemovalNames(b *bench) error {
	var list []protocol.Removal
	for i, name := range []string{"k", "K", "k\x00", "k\x00a", "\xff", "\xfe", "k ", "é", "1", "01"} {
		list = append(list, protocol.Removal{Scope: protocol.OneKey, Name: name, Term: int64(i + 1)})
	}
	for _, scope := range []protocol.Scope{protocol.Everything, protocol.Owed, protocol.PrefixKey} {
		list = append(list, protocol.Removal{Scope: scope, Name: "k", Term: 5}, protocol.Removal{Scope: scope, Term: 6})
	}
	for i := range 2000 {
		list = append(list, protocol.Removal{Scope: protocol.PrefixKey, Name: fmt.Sprint("many ", i), Term: int64(i + 1)})
	}
	err := steps(func() error { return b.remove(list...) }, b.again)
	return errors.Join(err, b.wantState(cache.State{Removals: list}))
}

func members(n int) protocol.MembersState {
	s := protocol.MembersState{Settled: n%2 == 0}
	for i := range n {
		s.Members = append(s.Members, protocol.Member{URL: fmt.Sprintf("tcp://10.0.0.%d:6000", i), API: fmt.Sprintf("tcp://10.0.0.%d:6001", i)})
	}
	return s
}

func checkMembers(b *bench) error {
	for _, want := range []protocol.MembersState{members(3), members(4), members(1), members(protocol.MaxMembers)} {
		if err := steps(func() error { return b.members(want) }, b.again); err != nil {
			return err
		}
		if err := b.wantState(cache.State{Members: want}); err != nil {
			return err
		}
	}
	return nil
}

// someState has one of each.
func someState() cache.State {
	return cache.State{
		Ceiling:  77,
		Removals: []protocol.Removal{{Scope: protocol.PrefixKey, Name: "p", Term: 9}},
		Members:  members(4),
	}
}

func (b *bench) storeState() error {
	some := someState()
	return steps(
		func() error { return b.remove(some.Removals...) },
		func() error { return b.members(some.Members) },
		func() error { return b.raise(some.Ceiling) },
	)
}

func checkParts(b *bench) error {
	r := record("k", "v", 1)
	return steps(
		func() error { return b.save(r) },
		b.storeState,
		b.again,
		func() error { return errors.Join(b.want(r), b.wantState(someState())) },
		func() error { return b.save(cache.Record{Key: "k"}) },
		b.again,
		func() error { return errors.Join(b.want(), b.wantState(someState())) },
	)
}

func checkKill(b *bench) error {
	var want []cache.Record
	for round := range int64(3) {
		for i := range int64(20) {
			r := record(fmt.Sprint(round, i), "v", i)
			want = append(want, r)
			if err := b.save(r); err != nil {
				return err
			}
		}
		kill := b.h.Kill
		if kill == nil {
			kill = b.h.Close
		}
		err := steps(b.storeState, func() error { return b.end("killing", kill) }, b.open,
			func() error { return errors.Join(b.want(want...), b.wantState(someState())) })
		if err != nil {
			return fmt.Errorf("in round %d: %w", round, err)
		}
	}
	return nil
}

func checkCrash(b *bench) error {
	crash := func() error { return b.end("crashing", b.h.Crash) }
	want := func() error { return b.wantState(someState()) }
	return steps(
		b.storeState, crash, b.open, want,
		func() error { return b.save(record("k", "v", 1)) }, crash, b.open, want,
	)
}

// checkCrashOrder saves one key after another and also one key again and again:
// what is left must be the result of the first saves, however many.
func checkCrashOrder(b *bench) error {
	const saves = 40
	counter := func(n int) cache.Record { return record("counter", fmt.Sprint(n), int64(n)) }
	for i := range saves {
		if err := b.save(record(fmt.Sprint("key ", i), "v", int64(i)), counter(i)); err != nil {
			return err
		}
		if i == saves/2 {
			if err := b.storeState(); err != nil {
				return err
			}
		}
	}
	err := steps(func() error { return b.end("crashing", b.h.Crash) }, b.open, func() error { return b.wantState(someState()) })
	if err != nil {
		return err
	}
	left := max(0, len(b.found.Records)-1) // without the counter
	var want []cache.Record
	for i := range left {
		want = append(want, record(fmt.Sprint("key ", i), "v", int64(i)))
	}
	if left > 0 {
		want = append(want, counter(left-1))
	}
	return b.want(want...)
}
