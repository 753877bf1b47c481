package shardtest

import (
	"fmt"

	"github.com/understudy-ha/understudy/shard"
)

func lockTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"lock/take, renew, take over":      testLock,
		"lock/each primary has its own":    testLocks,
		"lock/one of many":                 testOneLocks,
		"lock/unlocked only by its value":  testUnlock,
		"lock/ends when nobody renews it":  testLockEnds,
		"lock/a dropped node's lock stays": testLockStays,
	}
}

// locked tells what the lock of the shard's primary is.
func (b *bench) locked(what, want string) {
	b.Helper()
	if got := b.view("s").Lock; got != want {
		b.Errorf("%s: the lock is %q, want %q", what, got, want)
	}
}

func (b *bench) mustLock(what, value, instead string) {
	b.Helper()
	if err := b.lock("s", 1, value, instead); err != nil {
		b.Errorf("%s: %v", what, err)
	}
	b.locked(what, value)
}

func testLock(b *bench) {
	b.found("s", 1)
	b.locked("free", "")
	b.want("renewed, and never taken", b.lock("s", 1, "a1", "a0"), shard.ErrLocked)
	b.locked("free", "")
	b.mustLock("taken", "a1", "")
	b.want("taken when it is held", b.lock("s", 1, "b1", ""), shard.ErrLocked)
	b.want("taken over from somebody else", b.lock("s", 1, "b1", "c1"), shard.ErrLocked)
	b.locked("held", "a1")
	b.mustLock("renewed", "a2", "a1")
	b.want("renewed as it was", b.lock("s", 1, "a3", "a1"), shard.ErrLocked)
	b.want("taken over as it was", b.lock("s", 1, "b1", "a1"), shard.ErrLocked)
	b.locked("renewed once", "a2")
	b.mustLock("taken over", "b1", "a2")
	b.want("renewed by who lost it", b.lock("s", 1, "a3", "a2"), shard.ErrLocked)
	b.locked("taken over", "b1")
}

func testLocks(b *bench) {
	b.found("s", 1)
	b.found("t", 2)
	b.mustLock("taken", "a", "")
	if err := b.lock("t", 2, "b", ""); err != nil {
		b.Error(err)
	}
	b.locked("another shard's is taken", "a")
	if err := b.lock("s", 3, "c", ""); err != nil {
		b.Errorf("the lock of another primary: %v", err)
	}
	b.locked("another primary's is taken", "a")
	if got := b.view("t").Lock; got != "b" {
		b.Errorf("the lock of t is %q", got)
	}
	if err := b.Unlock(b.ctx, shard.Lock{Shard: "t", Primary: nodeID(2), Instead: "b"}); err != nil {
		b.Error(err)
	}
	b.locked("another shard's is free", "a")
}

func testOneLocks(b *bench) {
	b.found("s", 1)
	held := ""
	for round := range 10 {
		errs := make([]error, 6)
		atOnce(len(errs), func(i int) { errs[i] = b.lock("s", 1, fmt.Sprint(round, "/", i), held) })
		held = fmt.Sprint(round, "/", b.oneWins(errs, shard.ErrLocked))
		b.locked("after round "+fmt.Sprint(round), held)
	}
}

func testUnlock(b *bench) {
	b.found("s", 1)
	unlock := func(instead string) {
		b.Helper()
		if err := b.Unlock(b.ctx, shard.Lock{Shard: "s", Primary: nodeID(1), Value: "a1", Instead: instead}); err != nil {
			b.Errorf("Unlock of %q: %v", instead, err)
		}
	}
	unlock("a1")
	b.mustLock("taken", "a1", "")
	unlock("")
	unlock("b1")
	b.locked("others gave it up", "a1")
	b.mustLock("renewed", "a2", "a1")
	unlock("a1")
	b.locked("given up as it was", "a2")
	unlock("a2")
	b.locked("given up", "")
	unlock("a2")
	b.mustLock("taken again", "b1", "")
}

func testLockEnds(b *bench) {
	if b.s.Advance == nil {
		b.Skip("nobody waits for a minute")
	}
	b.found("s", 1)
	b.mustLock("taken", "a1", "")
	b.pass(shard.LockTime - slack)
	b.locked("not yet over", "a1")
	b.mustLock("renewed", "a2", "a1")
	b.pass(shard.LockTime - slack)
	b.mustLock("renewed again", "a3", "a2")
	b.pass(shard.LockTime + 1e9)
	b.locked("over", "")
	b.want("renewed too late", b.lock("s", 1, "a4", "a3"), shard.ErrLocked)
	b.mustLock("taken", "b1", "")
	b.want("renewed by who was silent", b.lock("s", 1, "a4", "a3"), shard.ErrLocked)
	b.pass(shard.LockTime + 1e9)
	if err := b.Unlock(b.ctx, shard.Lock{Shard: "s", Primary: nodeID(1), Instead: "b1"}); err != nil {
		b.Errorf("given up too late: %v", err)
	}
	b.mustLock("taken again", "c1", "")
}

func testLockStays(b *bench) {
	row := b.found("s", 1)
	b.report(record("s", 1))
	b.mustLock("taken", "a1", "")
	b.decide(shard.RowUpdate{Row: row, Drop: []string{nodeID(1)}})
	b.locked("the node's record is dropped", "a1")
}
