package shardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard"
)

// Subject is one empty store under test.
type Subject struct {
	Registry shard.Registry
	Commands shard.Commands
	Leases   lease.Store
	History  history.Log
	// Advance moves the store's clock on by d. Between steps the clock may run on or stand
	// still. Nil: it is the real one.
	Advance func(d time.Duration)
	// Grain is how coarse that clock is: the age of a record may be too small by it, and is
	// within it otherwise. A timeout is at least three times as long, and an interval as
	// long. 0: it is fine.
	Grain time.Duration
	// Open returns another handle on the same store, as another process would have it, and
	// closes it when the test ends. Nil: this one serves for both.
	Open func(t *testing.T) Subject
}

// TestRegistry puts a store through the suite; open returns an empty one for each topic.
// It may call t.Parallel.
func TestRegistry(t *testing.T, open func(t *testing.T) Subject) {
	all := topics()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { try(t, t, open(t), all[name]) })
	}
}

// try puts one store through one topic, which tells report what it finds.
func try(t *testing.T, report testing.TB, s Subject, topic func(*bench)) {
	topic(&bench{
		TB: report, Registry: s.Registry, Commands: s.Commands, t: t, s: s, ctx: leasetest.Amply(t), patience: patience, wait: maxWait,
	})
}

// topics is the suite.
func topics() map[string]func(*bench) {
	all := map[string]func(*bench){}
	for _, part := range []map[string]func(*bench){
		reportTopics(), takenTopics(), viewTopics(), decideTopics(), lockTopics(), commandTopics(), waitTopics(), watchTopics(), inputTopics(), raceTopics(),
	} {
		for name, topic := range part {
			if all[name] != nil {
				panic("two topics are called " + name)
			}
			all[name] = topic
		}
	}
	return all
}

// bench is one topic with its store.
type bench struct {
	testing.TB
	shard.Registry
	shard.Commands
	t        *testing.T
	s        Subject
	ctx      context.Context
	patience time.Duration
	wait     time.Duration // of a Next that is to end before
}

const (
	// long is a timeout that no test lives to see end; slack is what a store whose clock
	// runs on may be off by.
	long  = time.Hour
	slack = 30 * time.Second
	// brief is waited for where the clock cannot be stepped, unless it is too coarse.
	brief = 50 * time.Millisecond
	// patience is how long anything may take that is not promised to be quick.
	patience = 2 * time.Minute
	// maxWait is the longest that Next waits.
	maxWait = shard.MaxWait
)

// pass lets the store's clock continue by at least d.
func (b *bench) pass(d time.Duration) {
	b.Helper()
	if b.s.Advance != nil {
		b.s.Advance(d)
		return
	}
	pause(b.ctx, d)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// brief is the timeout of a record that is to be outlived, and lapse lets that happen.
func (b *bench) brief() time.Duration { return max(brief, 3*b.s.Grain) }

func (b *bench) lapse() { b.Helper(); b.pass(b.brief() + brief + b.s.Grain) }

// other is another handle on the store.
func (b *bench) other() Subject {
	if b.s.Open == nil {
		return b.s
	}
	return b.s.Open(b.t)
}

// nodeID is the n-th of the suite's nodes; they sort by n.
func nodeID(n int) string { return fmt.Sprintf("%08x%s", n, strings.Repeat("0123abcd", 4)) }

// record is that of a node whose agent lives for long.
func record(name string, n int) shard.Record {
	return shard.Record{
		Shard: name, ID: nodeID(n), Address: fmt.Sprintf("10.0.%d.%d:6379", n/256, n%256), Role: shard.Replica,
		Condition: shard.Up, Txn: int64(100 + n), Lineage: shard.Lineage{ID: "lineage"}, Fence: shard.Closed, Priority: 100,
		Instance: fmt.Sprintf("instance-%d", n), Interval: time.Second, Timeout: long, Engine: "redis",
	}
}

// report writes a record, which must be possible.
func (b *bench) report(r shard.Record) shard.View {
	b.Helper()
	v, err := b.Report(b.ctx, r, false)
	if err != nil {
		b.Fatalf("Report of node %.8s in %q: %v", r.ID, r.Shard, err)
	}
	return v
}

// view is that of a shard that must be there.
func (b *bench) view(name string) shard.View {
	b.Helper()
	v, err := b.ReadView(b.ctx, name)
	if err != nil {
		b.Fatalf("ReadView(%q): %v", name, err)
	}
	return v
}

// decide changes a row, which must be possible, and returns it as it is then.
func (b *bench) decide(d shard.RowUpdate) shard.Row {
	b.Helper()
	rev, err := b.UpdateRow(b.ctx, d)
	if err != nil {
		b.Fatalf("UpdateRow about %q at %d: %v", d.Row.Name, d.Row.Rev, err)
	}
	if rev <= d.Row.Rev {
		b.Fatalf("UpdateRow at revision %d returned %d", d.Row.Rev, rev)
	}
	d.Row.Rev = rev
	return d.Row
}

// found makes a shard whose first primary is the n-th node.
func (b *bench) found(name string, n int) shard.Row {
	b.Helper()
	return b.decide(shard.RowUpdate{Row: shard.Row{Name: name, Epoch: 1, Primary: nodeID(n), PrimaryEpoch: 1, Secret: "s"}})
}

// command is one for the n-th node.
func command(name string, n int, id string) shard.Command {
	return shard.Command{ID: id, Shard: name, Node: nodeID(n), Epoch: 7, Order: shard.OrderFence, Within: time.Minute, By: "instance-1"}
}

func (b *bench) send(all ...shard.Command) {
	b.Helper()
	if err := b.Send(b.ctx, all...); err != nil {
		b.Fatalf("Send: %v", err)
	}
}

// queue takes all commands of a node and returns their ids.
func (b *bench) queue(n int) (ids []string) {
	b.Helper()
	for {
		c, err := b.Next(b.ctx, nodeID(n), 0)
		if errors.Is(err, shard.ErrNoCommand) {
			return ids
		}
		if err != nil {
			b.Fatalf("Next: %v", err)
		}
		ids = append(ids, c.ID)
	}
}

// wantQueue takes all commands of a node, which must be these.
func (b *bench) wantQueue(what string, n int, ids ...string) {
	b.Helper()
	if got := b.queue(n); !slices.Equal(got, ids) {
		b.Errorf("%s: node %d has the commands %q, want %q", what, n, got, ids)
	}
}

func (b *bench) lock(name string, n int, value, instead string) error {
	return b.Lock(b.ctx, shard.Lock{Shard: name, Primary: nodeID(n), Value: value, Instead: instead})
}

// events are those of a shard, oldest first.
func (b *bench) events(name string) []history.Event {
	b.Helper()
	if b.s.History == nil {
		b.Skip("no history to read")
	}
	es, err := b.s.History.Read(b.ctx, history.Query{Part: shard.Space, Subject: name})
	if err != nil {
		b.Fatalf("Read: %v", err)
	}
	return es
}

// want tells that an error is the one.
func (b *bench) want(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("%s: %v; want %v", what, err, want)
	}
}

// same compares what was written with what is shown, but for what is the store's to give.
func (b *bench) same(what string, want, got any) {
	b.Helper()
	diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(shard.Record{}, "Updated", "Age"))
	if diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// near reports whether two durations are the same but for slack.
func near(a, b time.Duration) bool { return (a - b).Abs() <= slack }

// atOnce runs f for 0 to n-1 side by side, and waits.
func atOnce(n int, f func(i int)) {
	start, done := make(chan struct{}), make(chan struct{}, n)
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			<-start
			f(i)
		}()
	}
	close(start)
	for range n {
		<-done
	}
}
