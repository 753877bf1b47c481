package monitortest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func dueTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"due/only when it is time":                 testWhen,
		"due/the one due longest first":            testOldestFirst,
		"due/no more than wanted, and next":        testLimit,
		"due/of the partitions that are asked for": testPartitions,
		"due/tells all that the rule needs":        testFacts,
		"due/declared and never beaten":            testDeclaredDue,
	}
}

// dueIn has a source that is due be looked at again in a while.
func (b *bench) dueIn(id int64, d time.Duration) {
	b.Helper()
	c := b.candidate(id)
	ch := b.change(c, monitor.NoTransition)
	ch.Due = c.Now.Add(d)
	b.apply(ch)
}

func testWhen(b *bench) {
	ids := b.ready("a", "b")
	b.later(ids[1])
	b.dueIn(ids[0], limit)
	b.wantDue(ids[0], false)
	if l := b.look(); len(l.Candidates) != 0 || !near(l.Next, l.Now.Add(limit)) {
		b.Errorf("next in %v, want %v; %d are due", l.Next.Sub(l.Now), limit, len(l.Candidates))
	}
	b.step(limit - slack)
	b.wantDue(ids[0], false)
	b.step(2 * slack)
	b.wantDue(ids[0], true)
	b.wantDue(ids[1], false)
	b.later(ids[0])
	if l := b.look(); l.Next != monitor.Never {
		b.Errorf("nothing will be due, and the next is at %d", l.Next)
	}
}

func testOldestFirst(b *bench) {
	ids := b.ready("a", "b", "c", "d")
	order := []int64{ids[2], ids[0], ids[3], ids[1]}
	for i, id := range order {
		b.dueIn(id, time.Duration(i+1)*time.Hour)
	}
	b.step(5 * time.Hour)
	var got []int64
	for _, c := range b.look().Candidates {
		got = append(got, c.ID)
	}
	if !slices.Equal(got, order) {
		b.Errorf("due in the order %v, want %v", got, order)
	}
}

func testLimit(b *bench) {
	ids := b.ready("a", "b", "c", "d", "e")
	for i, id := range ids {
		b.dueIn(id, time.Duration(i+1)*time.Hour)
	}
	b.step(3*time.Hour + slack) // a, b and c are due
	for _, c := range []struct{ limit, want int }{{1, 1}, {2, 2}, {3, 3}, {4, 3}} {
		l, err := b.DueSources(b.ctx, everywhere(), c.limit)
		if err != nil || len(l.Candidates) != c.want || l.Candidates[0].ID != ids[0] {
			b.Fatalf("up to %d: %+v, %v", c.limit, l.Candidates, err)
		}
		if more := c.limit < 3; (l.Next <= l.Now) != more {
			b.Errorf("up to %d of 3: next in %v", c.limit, l.Next.Sub(l.Now))
		}
	}
}

func testPartitions(b *bench) {
	names := make([]string, 200)
	for i := range names {
		names[i] = "s" + string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))
	}
	want := map[int][]int64{}
	for _, id := range b.ready(names...) {
		p := int(id % monitor.Partitions)
		want[p] = append(want[p], id)
	}
	read := func(partitions ...int) (ids []int64) {
		l, err := b.DueSources(b.ctx, partitions, monitor.MaxSources)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range l.Candidates {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return ids
	}
	for p := range monitor.Partitions {
		slices.Sort(want[p])
		if got := read(p); !slices.Equal(got, want[p]) {
			b.Errorf("partition %d: %v, want %v", p, got, want[p])
		}
	}
	both := slices.Sorted(slices.Values(append(slices.Clone(want[3]), want[60]...)))
	if got := read(3, 60); !slices.Equal(got, both) {
		b.Errorf("two partitions: %v, want %v", got, both)
	}
	if got := read(); len(got) != 0 {
		b.Errorf("no partition: %v", got)
	}
}

func testFacts(b *bench) {
	b.enlist(hook)
	b.configure(each("e"))
	labels := map[string]string{"site": "7", "rack": "'\"\\"}
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a", Labels: labels}}); err != nil {
		b.Fatal(err)
	}
	id := b.resolve("e", "a")[0]
	b.prove()
	b.step(limit + slack)
	for _, partition := range []int{-1, monitor.Partitions} {
		if _, err := b.DueSources(b.ctx, []int{partition}, 1); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("partition %d: %v, want ErrInvalid", partition, err)
		}
	}
	l := b.look()
	c := b.candidate(id)
	e := b.expected("e")
	if c.CheckID != e.ID || c.CheckRev != e.Rev || c.Source != "a" || !maps.Equal(c.Labels, labels) {
		b.Errorf("candidate %+v of the event %+v", c, e)
	}
	if !near(l.Now.Sub(c.ExpectedFrom), limit+slack) || c.State != monitor.Up || c.LastBeat != 0 || c.Removed || c.RetireRequested || c.PausedUntil != 0 || c.RetiredAt != 0 {
		b.Errorf("facts %+v", c.Facts)
	}
	if !near(l.Wall, b.now()) || !near(c.Wall, l.Wall) || !near(c.Now, l.Now) {
		b.Errorf("look at %v (%d), candidate at %v (%d), the overview at %v", l.Wall, l.Now, c.Wall, c.Now, b.now())
	}
	b.step(time.Hour)
	if now := b.look().Now; !near(now.Sub(l.Now), time.Hour) {
		b.Errorf("moments went on by %v in an hour", now.Sub(l.Now))
	}
}

// testDeclaredDue: what was declared and never beat is due when its whole limit has passed.
func testDeclaredDue(b *bench) {
	b.configure(each("e"))
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "a"}}); err != nil {
		b.Fatal(err)
	}
	b.prove()
	b.step(limit + slack)
	b.prove()
	l := b.look()
	if len(l.Candidates) != 1 {
		b.Fatalf("%d are due, want 1", len(l.Candidates))
	}
	e := b.expected("e")
	if v := e.Evaluate(l.Candidates[0].Facts); v.Transition != monitor.Onset || v.Reason != monitor.Silent {
		b.Errorf("the rule says %+v of %+v", v, l.Candidates[0].Facts)
	}
}
