package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// heldBench is a loop that carries effects out, with a disk that answers when the
// test says so.
type heldBench struct {
	*loop
	called chan string
	names  []string // of the replies, in the order of their tokens
}

func newHeldBench(t *testing.T) *heldBench {
	t.Helper()
	self := protocol.Member{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}
	b := &heldBench{called: make(chan string, 10)}
	p, err := New(Config{
		Self: self.URL, Members: []protocol.Member{self}, Storage: newMemory(), Clock: bubbleClock{time.Now()},
		Origin: func(_ context.Context, f Fetch) (Value, error) {
			b.called <- f.Key
			return Value{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.loop = p.loop
	b.m = protocol.New(p.loop.now(), protocol.Setup{Self: self.URL, Members: p.cfg.Members, Table: p.table, Timings: p.cfg.Timings})
	t.Cleanup(func() {
		close(p.loop.ended)
		p.fetches.stop(time.Minute)
	})
	return b
}

// reply is an effect that can be seen.
func (b *heldBench) reply(name string) protocol.Effect {
	b.lastToken++
	b.waiters[b.lastToken] = newCaller()
	b.names = append(b.names, name)
	return protocol.Reply{Token: b.lastToken}
}

func (b *heldBench) carryAll(effects ...protocol.Effect) {
	for _, e := range effects {
		b.holdOrExecute(e)
	}
}

// heldReplies are those that were not given yet.
func (b *heldBench) heldReplies() []string {
	var out []string
	for i, name := range b.names {
		if b.waiters[protocol.Token(i+1)] != nil {
			out = append(out, name)
		}
	}
	return out
}

func TestEffectsWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t)
		held := func(want ...string) {
			t.Helper()
			if got := b.heldReplies(); !slices.Equal(got, want) {
				t.Errorf("held: %q, want %q", got, want)
			}
		}
		b.carryAll(b.reply("a"), removal(1), b.reply("b"), b.reply("c"), protocol.SaveMembers{}, b.reply("d"))
		held("b", "c", "d")
		b.carryAll(b.reply("e")) // of a later step
		held("b", "c", "d", "e")
		b.durable(1, nil)
		held("d", "e")
		b.carryAll(removal(2), b.reply("f"))
		b.durable(1, nil) // told twice
		held("d", "e", "f")
		b.durable(3, nil) // both at once
		held()
		if n := b.barrier.Len(); n != 0 || len(b.waiters) != 0 {
			t.Errorf("%d are held, %d waiters", n, len(b.waiters))
		}
		b.carryAll(b.reply("g"))
		held()
	})
}

// After a failure, until it is fixed, nobody is told that something is stored, and
// everything else continues.
func TestEffectsAfterAFailedDisk(t *testing.T) {
	for _, c := range []struct {
		message protocol.Message
		says    bool
	}{
		{protocol.Removed{}, true}, {protocol.MembersList{}, false}, {protocol.Hello{}, false}, {protocol.Update{}, false},
	} {
		if got := claimsStored(protocol.Send{Message: c.message}); got != c.says {
			t.Errorf("%T: %t", c.message, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t)
		// There are no links: carrying these messages out would crash.
		told := protocol.Send{Message: protocol.Removed{}}
		b.carryAll(removal(1), told, b.reply("a"))
		b.durable(1, errors.New("the disk is full"))
		b.carryAll(told, b.reply("b"))
		if n := b.barrier.Len(); n != 0 || len(b.waiters) != 0 {
			t.Errorf("%d held, %d wait", n, len(b.waiters))
		}
		b.durable(1, nil)
		if b.notDurable {
			t.Error("unsure for ever")
		}
	})
}

// TestRemovalNotStored: a removal that this peer could not store is not confirmed by it, here or to others.
func TestRemovalNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t)
		for i, err := range []error{errors.New("the disk is full"), nil} {
			b.lastToken++
			who := newCaller()
			b.waiters[b.lastToken] = who
			b.carryAll(removal(int64(i+1)), protocol.KeysRemoved{Token: b.lastToken, Confirmed: 3, Of: 3})
			b.durable(uint64(i+1), err)
			if got := <-who.answer; got.confirmed != 2+i || got.of != 3 {
				t.Errorf("after %v: %d of %d", err, got.confirmed, got.of)
			}
		}
	})
}

// removal is a list of removals that is news.
func removal(term int64) protocol.Effect {
	return protocol.SaveRemovals{All: []protocol.Removal{{Scope: protocol.PrefixKey, Term: term}}}
}

// A fetch that is held for the disk is not started when it has been ended meanwhile,
// or its time has ended.
func TestHeldFetchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldBench(t)
		now := b.cfg.Clock.Now()
		fetch := func(key string, lasts time.Duration) protocol.Effect {
			return protocol.StartFetch{Key: key, Term: 1, Until: now + lasts}
		}
		b.carryAll(
			removal(1),
			fetch("aborted", time.Minute), fetch("over", time.Second), fetch("trusted", time.Second), fetch("good", time.Minute), fetch("shortened", time.Minute),
			protocol.Abort{Key: "aborted", Term: 1}, protocol.Abort{Key: "good", Term: 2},
			protocol.Trust{Key: "trusted", Term: 1, Until: now + time.Minute},
			protocol.Trust{Key: "shortened", Term: 1, Until: -time.Second},
		)
		time.Sleep(2 * time.Second)
		b.durable(1, nil)
		synctest.Wait()
		close(b.called)
		var called []string
		for key := range b.called {
			called = append(called, key)
		}
		slices.Sort(called)
		if !slices.Equal(called, []string{"good", "trusted"}) {
			t.Errorf("the origin was called for %q", called)
		}
	})
}

// TestRefusals: each reason has its error, which depends on no sentence, its reply and its counter.
func TestRefusals(t *testing.T) {
	for reason := protocol.OriginFailed; reason <= protocol.Passive; reason++ {
		want, known := refusals[reason]
		if !known {
			t.Fatalf("reason %d is in no table", reason)
		}
		got := refusalOf(protocol.Refuse{Reason: reason, Why: "not a member, passive or stopped, in other words"})
		if !errors.Is(got.err, want.err) || got.code != want.code || got.elsewhere != (reason >= protocol.NotMember) || got.elsewhere && got.code != "" {
			t.Errorf("reason %d: %+v", reason, got)
		}
	}
}
