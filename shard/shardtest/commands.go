package shardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

func commandTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"commands/first in, first out":        testFIFO,
		"commands/the whole command is kept":  testWholeCommand,
		"commands/sent again":                 testSentAgain,
		"commands/sent again at once":         testSentAtOnce,
		"commands/each is taken once":         testTakenOnce,
		"commands/expire":                     testExpire,
		"commands/what expired does not wait": testExpiredID,
		"commands/a full queue":               testFull,
		"commands/all or none":                testAllOrNone,
	}
}

func testFIFO(b *bench) {
	b.wantQueue("nothing was sent", 1)
	b.send(command("s", 1, "z"), command("s", 2, "x"), command("s", 1, "a"))
	b.send(command("s", 1, "m"))
	b.send()
	b.send(command("s", 1, "b"))
	b.wantQueue("in order", 1, "z", "a", "m", "b")
	b.wantQueue("another's queue", 2, "x")
	b.wantQueue("taken", 1)
	b.send(command("s", 1, "k"))
	b.wantQueue("and again", 1, "k")
}

func testWholeCommand(b *bench) {
	want := shard.Command{
		ID: shard.CommandID(1<<53+1, nodeID(1), shard.OrderFollow), Shard: "s", Node: nodeID(1), Epoch: 1<<53 + 1, Order: shard.OrderFollow, To: nodeID(2),
		Address: "[2001:db8::1]:6379", Txn: 1<<62 + 1, For: 1500*time.Millisecond + 1, Within: time.Minute + 1, By: "instance",
	}
	row := b.found("s", 1)
	for how, send := range map[string]func(){
		"Send":      func() { b.send(want) },
		"UpdateRow": func() { row = b.decide(shard.RowUpdate{Row: row, Commands: []shard.Command{want}}) },
	} {
		send()
		got, err := b.Next(b.ctx, nodeID(1), 0)
		if err != nil {
			b.Fatal(err)
		}
		b.same(how, want, got)
	}
}

func testSentAgain(b *bench) {
	row := b.found("s", 1)
	first, again := command("s", 1, "a"), command("s", 1, "a")
	again.Txn = 99
	b.send(first, command("s", 2, "a"), command("s", 1, "b"), again)
	b.send(again, command("s", 1, "c"))
	b.decide(shard.RowUpdate{Row: row, Commands: []shard.Command{again, command("s", 1, "b"), command("s", 1, "d")}})
	got, err := b.Next(b.ctx, nodeID(1), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.same("the one that waited", first, got)
	b.wantQueue("the rest", 1, "b", "c", "d")
	b.wantQueue("the same id for another node", 2, "a")
	b.send(again)
	b.wantQueue("sent again after it was taken", 1, "a")
}

func testSentAtOnce(b *bench) {
	for round := range 5 {
		id := fmt.Sprint(round)
		errs := make([]error, 6)
		atOnce(len(errs), func(i int) { errs[i] = b.Send(b.ctx, command("s", 1, id), command("s", 2, fmt.Sprint(id, "/", i))) })
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
		b.wantQueue("sent by six at once", 1, id)
		if got := b.queue(2); len(got) != 6 {
			b.Errorf("six at once sent %q", got)
		}
	}
}

func testTakenOnce(b *bench) {
	var want []string
	var all []shard.Command
	for i := range shard.MaxQueue {
		id := fmt.Sprintf("%03d", i)
		want, all = append(want, id), append(all, command("s", 1, id))
	}
	b.send(all...)
	var mu sync.Mutex
	var got []string
	var errs []error
	atOnce(4, func(int) {
		for last := ""; ; {
			c, err := b.Next(b.ctx, nodeID(1), 0)
			mu.Lock()
			switch {
			case err == nil && c.ID <= last:
				errs = append(errs, fmt.Errorf("%s came after %s", c.ID, last))
			case err == nil:
				got = append(got, c.ID)
			case !errors.Is(err, shard.ErrNoCommand):
				errs = append(errs, err)
			}
			mu.Unlock()
			if err != nil {
				return
			}
			last = c.ID
		}
	})
	slices.Sort(got)
	if err := errors.Join(errs...); err != nil {
		b.Error(err)
	}
	if !slices.Equal(got, want) {
		b.Errorf("taken by four at once: %q", got)
	}
}

// soon is the shortest that a command may wait.
const soon = time.Second

func expiring(n int, id string) shard.Command {
	c := command("s", n, id)
	c.Within = soon
	return c
}

func testExpire(b *bench) {
	row := b.found("s", 1)
	b.send(expiring(1, "a"), command("s", 1, "b"), expiring(1, "c"))
	b.decide(shard.RowUpdate{Row: row, Commands: []shard.Command{expiring(2, "d")}})
	b.pass(soon + brief)
	b.wantQueue("sent", 1, "b")
	b.wantQueue("decided", 2)
	b.send(command("s", 1, "e"))
	b.wantQueue("sent later", 1, "e")
}

func testExpiredID(b *bench) {
	b.send(command("s", 1, "a"), expiring(1, "b"))
	b.pass(soon + brief)
	b.send(command("s", 1, "b"))
	b.wantQueue("sent again after it had expired", 1, "a", "b")
}

func testFull(b *bench) {
	var ids []string
	var all []shard.Command
	for i := range shard.MaxQueue + 3 {
		ids = append(ids, fmt.Sprint("c", i))
		all = append(all, command("s", 1, ids[i]))
	}
	b.send(all[:shard.MaxQueue-1]...)
	b.send(command("s", 2, "x"))
	b.send(all[shard.MaxQueue-1:]...)
	b.wantQueue("three too many", 1, ids[3:]...)
	b.wantQueue("another's", 2, "x")
}

func testAllOrNone(b *bench) {
	bad := command("s", 1, "bad")
	bad.Within = 0
	b.want("one of three is invalid", b.Send(b.ctx, command("s", 1, "a"), command("s", 2, "b"), bad), lease.ErrInvalid)
	row := b.found("s", 1)
	_, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: row, Commands: []shard.Command{command("s", 1, "a"), bad}})
	b.want("one of two in a decision is invalid", err, lease.ErrInvalid)
	b.same("the row", row, b.view("s").Row)
	b.wantQueue("none was sent", 1)
	b.wantQueue("none was sent", 2)
}

func waitTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"wait/ends at once when a command comes": testWakes,
		"wait/ends by itself":                    testWaitEnds,
		"wait/ends with its context":             testWaitContext,
	}
}

// answer is what Next returned, and when.
type answer struct {
	shard.Command
	err  error
	took time.Duration
}

func (b *bench) waiting(ctx context.Context, c shard.Commands, n int, wait time.Duration) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		began := time.Now()
		got, err := c.Next(ctx, nodeID(n), wait)
		out <- answer{got, err, time.Since(began)}
	}()
	return out
}

func (b *bench) answer(what string, c <-chan answer) answer {
	b.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(b.patience):
		b.Fatalf("%s: nothing after %v", what, b.patience)
	}
	return answer{}
}

// testWakes lets a slow machine try several times. Who is not woken looks when his wait has ended.
func testWakes(b *bench) {
	const tries = 5
	row := b.found("s", 1)
	other := b.other()
	for how, send := range map[string]func(shard.Command) error{
		"Send": func(c shard.Command) error { return b.Send(b.ctx, c) },
		"UpdateRow": func(c shard.Command) error {
			rev, err := b.UpdateRow(b.ctx, shard.RowUpdate{Row: row, Commands: []shard.Command{c}})
			row.Rev = rev
			return err
		},
	} {
		slow := 0
		for range tries {
			got, idle := b.waiting(b.ctx, other.Commands, 1, b.wait), b.waiting(b.ctx, b.Commands, 2, 2*brief)
			pause(b.ctx, brief)
			if err := send(command("s", 1, "a")); err != nil {
				b.Fatal(err)
			}
			a := b.answer(how, got)
			if a.err != nil || a.ID != "a" {
				b.Fatalf("%s: %q, %v after %v", how, a.ID, a.err, a.took)
			}
			if i := b.answer(how, idle); !errors.Is(i.err, shard.ErrNoCommand) {
				b.Errorf("%s: another node got %q, %v", how, i.ID, i.err)
			}
			if a.took < b.wait {
				break
			}
			slow++
		}
		if slow == tries {
			b.Errorf("%s: who waits learns of it only at the end of his wait", how)
		}
	}
}

func testWaitEnds(b *bench) {
	waits := []time.Duration{-time.Second, 0, 10 * brief, 1000 * time.Hour}
	var answers []<-chan answer
	for n, wait := range waits {
		answers = append(answers, b.waiting(b.ctx, b.Commands, n, wait))
	}
	for n, wait := range waits {
		a := b.answer(fmt.Sprint("Next for ", wait), answers[n])
		b.want(fmt.Sprint("Next for ", wait), a.err, shard.ErrNoCommand)
		if a.took < min(wait, maxWait)*9/10 {
			b.Errorf("Next for %v returned after %v", wait, a.took)
		}
	}
}

func testWaitContext(b *bench) {
	slow := 0
	for range 3 {
		ctx, cancel := context.WithCancel(b.ctx)
		got := b.waiting(ctx, b.Commands, 1, b.wait)
		pause(b.ctx, brief)
		cancel()
		a := b.answer("the context ended", got)
		if !errors.Is(a.err, lease.ErrUnavailable) && !errors.Is(a.err, lease.ErrUnknown) {
			b.Fatalf("the context ended: %q, %v", a.ID, a.err)
		}
		b.send(command("s", 1, "a"))
		pause(b.ctx, brief) // a wait that continues takes it now
		next := b.answer("after it", b.waiting(b.ctx, b.Commands, 1, b.wait))
		if next.err != nil && !errors.Is(a.err, lease.ErrUnknown) {
			b.Fatalf("a command that was sent after a wait had ended did not come: %v", next.err)
		}
		if a.took < b.wait/2 {
			break
		}
		slow++
	}
	if slow == 3 {
		b.Error("Next goes on after its context ended")
	}
}
