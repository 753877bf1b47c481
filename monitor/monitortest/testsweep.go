package monitortest

import (
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

func sweepTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"sweep/nothing to do":                        testSweepNothing,
		"sweep/looks again after a shorter limit":    testSweepShorter,
		"sweep/looks again after a longer limit":     testSweepLonger,
		"sweep/looks again when an event goes on":    testSweepResumed,
		"sweep/removed events in small steps":        testSweepSteps,
		"sweep/deletes alarms that ended long ago":   testPrune,
		"sweep/deletes in small steps":               testPruneSteps,
		"sweep/leaves sources of other events alone": testSweepOthers,
		"sweep/forgets what was retired long ago":    testSweepRetired,
	}
}

// sweep sweeps until nothing is left, in steps of limit.
func (b *bench) sweep(keep time.Duration, limit int) (steps int) {
	b.Helper()
	for range 1000 {
		steps++
		l, err := b.Sweep(b.ctx, keep, limit)
		if err != nil {
			b.Fatalf("Sweep: %v", err)
		}
		if len(l.Candidates) > limit {
			b.Fatalf("%d candidates, want at most %d", len(l.Candidates), limit)
		}
		var changes []monitor.SourceChange
		for _, c := range l.Candidates {
			if !c.Removed && c.State != monitor.Retired {
				b.Fatalf("it is to stay: %+v", c)
			}
			changes = append(changes, b.change(c, monitor.Forget))
		}
		b.apply(changes...)
		if l.Next > l.Now && len(changes) == 0 {
			return steps
		}
	}
	b.Fatal("Sweep never comes to an end")
	return 0
}

func testSweepNothing(b *bench) {
	id := b.ready("a")[0]
	b.sweep(wideGap, monitor.MaxSources)
	b.later(id)
	if steps := b.sweep(wideGap, 1); steps != 1 {
		b.Errorf("nothing to do took %d steps", steps)
	}
	b.wantDue(id, false)
}

// quiet has sources that have just beaten, and are due in their limit.
func (b *bench) quiet(names ...string) []int64 {
	b.Helper()
	ids := b.ready(names...)
	b.wantTurns("just beaten")
	for _, id := range ids {
		b.wantDue(id, false)
	}
	return ids
}

func testSweepShorter(b *bench) {
	ids := b.quiet("a", "b", "c", "d", "e")
	short := each("e")
	short.Interval = interval / 5
	b.configure(short)
	b.sweep(wideGap, 2)
	for _, id := range ids {
		b.wantDue(id, true)
	}
	b.wantTurns("a whole limit from now")
	b.step(limit/5 - slack)
	b.prove()
	b.wantTurns("within it")
	b.step(2 * slack)
	b.prove()
	b.wantTurns("past it", monitor.Onset, monitor.Onset, monitor.Onset, monitor.Onset, monitor.Onset)
}

func testSweepLonger(b *bench) {
	id := b.quiet("a")[0]
	b.step(limit + slack)
	b.prove()
	b.wantTurns("silent", monitor.Onset)
	b.wantDue(id, false)
	long := each("e")
	long.Interval = 10 * interval
	b.configure(long)
	b.sweep(wideGap, 10)
	b.wantDue(id, true)
}

func testSweepResumed(b *bench) {
	ids := b.quiet("a", "b")
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Who: "ops"})
	b.sweep(wideGap, 10)
	b.step(10 * limit)
	b.prove()
	b.wantTurns("paused")
	b.act(monitor.Action{Type: monitor.ActionResume, Check: "e", Who: "ops"})
	b.sweep(wideGap, 1)
	for _, id := range ids {
		b.wantDue(id, true)
	}
	b.wantTurns("a whole limit from now")
	b.step(limit + slack)
	b.prove()
	b.wantTurns("past it", monitor.Onset, monitor.Onset)
}

func testSweepSteps(b *bench) {
	b.ready("a", "b", "c", "d", "e", "f", "g")
	b.configure(each("other"))
	l, err := b.Sweep(b.ctx, wideGap, 3)
	if err != nil || len(l.Candidates) != 3 || l.Next > l.Now {
		b.Fatalf("3 of 7: %d, next in %v, %v", len(l.Candidates), l.Next.Sub(l.Now), err)
	}
	b.sweep(wideGap, 3)
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{}); err != nil || len(all) != 0 {
		b.Errorf("sources %+v, %v", all, err)
	}
}

func testSweepOthers(b *bench) {
	b.ready("a", "b")
	b.configure(each("e"), each("other"))
	ids := b.resolve("other", "a", "b")
	b.beat(ids...)
	b.configure(each("other"))
	b.sweep(wideGap, 10)
	if again := b.resolve("other", "a", "b"); again[0] != ids[0] || again[1] != ids[1] {
		b.Errorf("sources %v are now %v", ids, again)
	}
}

func testPrune(b *bench) {
	ids := b.ready("a", "b", "c")
	old := b.onset(ids[0])
	standing := b.onset(ids[1])
	b.abate(ids[0])
	b.step(10 * time.Hour)
	recent := b.onset(ids[2])
	b.abate(ids[2])
	b.sweep(20*time.Hour, 10)
	b.alarm(old)
	b.step(6 * time.Hour)
	b.sweep(10*time.Hour, 10)
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{ID: old}); err != nil || len(all) != 0 {
		b.Errorf("an alarm that ended 16 hours ago: %+v, %v", all, err)
	}
	b.alarm(standing)
	b.alarm(recent)
}

func testPruneSteps(b *bench) {
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprint("s", i))
	}
	ids := b.ready(names...)
	for _, id := range ids {
		b.onset(id)
	}
	b.abate(ids...)
	b.step(10 * time.Hour)
	if steps := b.sweep(time.Hour, 3); steps < 3 {
		b.Errorf("7 alarms in steps of 3 took %d steps", steps)
	}
	if all, err := b.Alarms(b.ctx, monitor.AlarmQuery{}); err != nil || len(all) != 0 {
		b.Errorf("alarms %+v, %v", all, err)
	}
}

// Sources that were learned come and go; those that were declared are someone's wish.
func testSweepRetired(b *bench) {
	const keep = time.Hour
	ids := b.ready("learned", "returned", "declared")
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "declared"}}); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"learned", "returned", "declared"} {
		b.act(monitor.Action{Type: monitor.ActionRetire, Check: "e", Source: name, Who: "ops"})
	}
	for _, id := range ids {
		b.apply(b.change(b.candidate(id), monitor.Retire))
	}
	b.sweep(keep, 10)
	b.source("e", "learned") // not yet
	b.beat(ids[1])
	b.apply(b.change(b.candidate(ids[1]), monitor.Return))
	b.step(keep + time.Minute)
	b.sweep(keep, 1)
	if names := b.listSources(monitor.SourceQuery{Check: "e"}); !slices.Equal(names, []string{"e/declared", "e/returned"}) {
		b.Errorf("after the sweep there are %v", names)
	}
	if again := b.resolve("e", "learned")[0]; again == ids[0] {
		b.Error("its id was given again")
	}
}
