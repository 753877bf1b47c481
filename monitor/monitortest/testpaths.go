package monitortest

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

func pathTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"path/the first proof":                      testFirstProof,
		"path/within the gap it could see":          testWithinGap,
		"path/longer than the gap it was blind":     testGap,
		"path/named by beats, unproven":             testUnproven,
		"path/trust and gap are those told last":    testTrust,
		"path/proofs come before the beats":         testProofsFirst,
		"path/facts are of the last beat's":         testPathOfBeat,
		"path/who never beat has the newest":        testPathOfUnseen,
		"path/blind when a beat was sent":           testBlindBySender,
		"path/dropped":                              testDropPath,
		"D24 path/a clock that skipped blinds all":  testSkipped,
		"D24 path/a clock set back: moments go on":  testSetBack,
		"D24 path/set back and on: nobody is older": testSetBackAndOn,
	}
}

const gap = time.Hour

// by proves paths of that gap.
func (b *bench) by(gap time.Duration, names ...string) {
	b.Helper()
	var d monitor.HeartbeatBatch
	for _, name := range names {
		d.Probes = append(d.Probes, monitor.Probe{Path: name, TrustFor: time.Second, MaxGap: gap})
	}
	b.deliver(d)
}

func (b *bench) path(name string) monitor.PathView {
	b.Helper()
	o, err := b.Overview(b.ctx)
	if err != nil {
		b.Fatalf("Overview: %v", err)
	}
	i := slices.IndexFunc(o.Paths, func(p monitor.PathView) bool { return p.Name == name })
	if i < 0 {
		b.Fatalf("no path %q in %+v", name, o.Paths)
	}
	return o.Paths[i]
}

// wantBlind checks for how long a path was blind, ever, and whether that ended just now.
func (b *bench) wantBlind(name string, blind time.Duration, justNow bool) {
	b.Helper()
	p := b.path(name)
	if !near(p.BlindTotal, blind) {
		b.Errorf("path %s was blind for %v, want %v", name, p.BlindTotal, blind)
	}
	if resumed := p.BlindUntil == p.LastSeen; resumed != justNow {
		b.Errorf("path %s: proof %d, resumed %d; resumed just now should be %v", name, p.LastSeen, p.BlindUntil, justNow)
	}
}

func testFirstProof(b *bench) {
	b.by(gap, "q")
	b.wantBlind("q", 0, true)
	if p := b.path("q"); !near(p.LastSeen, b.look().Now) || p.Quiet > slack || !p.Working && p.Quiet < time.Second {
		b.Errorf("%+v", p)
	}
}

func testWithinGap(b *bench) {
	b.by(gap, "q")
	for range 3 {
		b.step(gap - slack)
		b.by(gap, "q")
		b.wantBlind("q", 0, false)
		if p := b.path("q"); !near(p.LastSeen, b.look().Now) {
			b.Errorf("proven %v ago", b.look().Now.Sub(p.LastSeen))
		}
	}
}

func testGap(b *bench) {
	b.by(gap, "q")
	b.step(gap + slack)
	b.by(gap, "q")
	b.wantBlind("q", gap+slack, true)
	b.step(interval)
	b.by(gap, "q")
	b.wantBlind("q", gap+slack, false)
	b.step(2 * gap)
	b.by(gap, "q")
	b.wantBlind("q", 3*gap+slack, true)
}

// testUnproven: a proof may only name the path of beats of which others are still on their way.
func testUnproven(b *bench) {
	id := b.ready("a")[0]
	b.by(gap, "q")
	b.step(2 * gap)
	before := b.path("q")
	beats := []monitor.HeartbeatUpdate{{Source: id, Path: 1, Count: 1}}
	b.deliver(monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "new", NameOnly: true, MaxGap: gap}, {Path: "q", NameOnly: true, MaxGap: gap}}, Beats: beats})
	after := b.path("q")
	if after.PathStatus != before.PathStatus {
		b.Errorf("nothing is proven, and the path went from %+v to %+v", before.PathStatus, after.PathStatus)
	}
	if c := b.candidate(id); c.Path.Name != "q" || !near(c.LastBeat, c.Now) || c.Path.LastSeen != before.LastSeen {
		b.Errorf("the beat of an unproven path: %+v", c.Facts)
	}
	if p := b.path("new"); p.LastSeen != 0 || p.BlindTotal != 0 {
		b.Errorf("a path that was never proven: %+v", p)
	}
	b.by(gap, "q", "new")
	b.wantBlind("q", 2*gap, true)
	b.wantBlind("new", 0, true)
}

func testTrust(b *bench) {
	b.deliver(monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "q", TrustFor: time.Second, MaxGap: gap}}})
	b.deliver(monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "q", TrustFor: time.Minute, MaxGap: 2 * gap}}})
	if p := b.path("q"); p.TrustFor != time.Minute || p.MaxGap != 2*gap {
		b.Errorf("%+v", p)
	}
}

func testProofsFirst(b *bench) {
	id := b.ready("a")[0]
	b.by(gap, "q")
	b.step(2 * gap)
	b.deliver(monitor.HeartbeatBatch{
		Probes: []monitor.Probe{proof("p"), {Path: "q", MaxGap: gap}},
		Beats:  []monitor.HeartbeatUpdate{{Source: id, Path: 1, Count: 1}},
	})
	c := b.candidate(id)
	if c.Path.Name != "q" || c.BlindAtBeat != c.Path.BlindTotal || c.Path.BlindTotal < 2*gap-slack || c.LastBeat < c.Path.BlindUntil {
		b.Errorf("the time before the proof counts as blind since the beat that came with it: %+v", c.Facts)
	}
}

func testPathOfBeat(b *bench) {
	ids := b.ready("a", "b")
	slices.Sort(ids)
	b.deliver(monitor.HeartbeatBatch{
		Probes: []monitor.Probe{{Path: "x", MaxGap: gap}, {Path: "y", MaxGap: 100 * gap}},
		Beats:  []monitor.HeartbeatUpdate{{Source: ids[0], Path: 1, Count: 1}, {Source: ids[1], Path: 0, Count: 1}},
	})
	b.step(2 * gap)
	b.by(gap, "x")
	b.by(100*gap, "y", "p")
	one, two := b.candidate(ids[0]), b.candidate(ids[1])
	if one.Path.Name != "y" || two.Path.Name != "x" {
		b.Fatalf("paths %q and %q", one.Path.Name, two.Path.Name)
	}
	if two.Path.BlindTotal-two.BlindAtBeat < 2*gap-slack || two.Path.BlindUntil <= two.LastBeat {
		b.Errorf("x was blind since the beat: %+v", two.Facts)
	}
}

func testPathOfUnseen(b *bench) {
	b.configure(each("e"))
	id := b.resolve("e", "a")[0]
	b.by(wideGap, "x")
	b.step(limit)
	b.by(wideGap, "y")
	b.step(slack)
	if c := b.candidate(id); c.Path.Name != "y" || c.LastBeat != 0 {
		b.Errorf("%+v", c.Facts)
	}
	b.by(wideGap, "x")
	if c := b.candidate(id); c.Path.Name != "x" {
		b.Errorf("%+v", c.Facts)
	}
}

// testBlindBySender: a beat that was sent while its path was blind, and came afterwards, counts from when it was sent. That the path was
// blind since then is not its source's silence.
func testBlindBySender(b *bench) {
	check := each("e")
	check.SenderClock = true
	b.configure(check)
	names := []string{"by that path", "by another", "never"}
	ids := b.resolve("e", names...)
	send := func(path string, ago time.Duration, ids ...int64) {
		b.Helper()
		d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: path, TrustFor: time.Second, MaxGap: gap}}}
		for _, id := range ids {
			d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, BySender: true, Sent: b.now().Add(-ago), Seq: int64(ago), Count: 1})
		}
		b.deliver(d)
	}
	send("q", 0, ids[0])
	send("x", 0, ids[1])
	b.step(2 * gap)
	send("q", 2*gap-slack, ids...)
	want := func(turn monitor.Transition) {
		b.Helper()
		for i, id := range ids {
			c := b.candidate(id)
			if v := check.Evaluate(c.Facts); v.Transition != turn {
				b.Errorf("last heard %s: %q, want %q: %+v", names[i], v.Transition, turn, c.Facts)
			}
		}
	}
	want(monitor.NoTransition)
	b.step(limit - slack)
	b.by(gap, "q")
	want(monitor.NoTransition)
	b.step(2 * slack)
	b.by(gap, "q")
	want(monitor.Onset)
}

func testDropPath(b *bench) {
	id := b.ready("a")[0] // by p
	b.by(gap, "q")
	b.step(2 * gap)
	b.by(gap, "q")
	b.act(monitor.Action{Type: monitor.ActionRemovePath, Source: "p", Who: "ops"})
	c := b.candidate(id)
	if c.Path.Name != "q" || c.BlindAtBeat != c.Path.BlindTotal || c.LastBeat == 0 {
		b.Errorf("its path is dropped: %+v", c.Facts)
	}
	o, err := b.Overview(b.ctx)
	if err != nil || len(o.Paths) != 1 || o.Paths[0].Name != "q" {
		b.Errorf("paths: %+v, %v", o.Paths, err)
	}
	b.beat(id)
	b.wantBlind("p", 0, true)
	if c := b.candidate(id); c.Path.Name != "p" {
		b.Errorf("p is proven again, and it beat by it: %+v", c.Facts)
	}
}

// testSkipped: time that the clock has skipped looks like any in which nothing was
// proven, and nothing can have come in by any path.
func testSkipped(b *bench) {
	b.by(gap, "often")
	b.by(100*gap, "seldom")
	b.step(interval)
	b.by(gap, "often")
	b.step(10 * gap)
	b.by(gap, "often")
	b.wantBlind("often", 10*gap, true)
	b.step(interval)
	b.by(gap, "often")
	b.by(100*gap, "seldom")
	b.wantBlind("often", 10*gap, false)
	if p := b.path("seldom"); p.BlindTotal < 10*gap-slack || p.BlindUntil == 0 {
		b.Errorf("the other path is said to have seen all the time: %+v", p)
	}
}

func testSetBack(b *bench) {
	id := b.ready("a")[0]
	last := b.candidate(id).Facts
	for _, d := range []time.Duration{-time.Second, -48 * time.Hour, -time.Minute} {
		b.step(d)
		b.beat(id)
		f := b.candidate(id).Facts
		if f.Now < last.Now || f.LastBeat < last.LastBeat || f.Path.LastSeen < last.Path.LastSeen {
			b.Fatalf("set back by %v, moments fall from %+v to %+v", d, last, f)
		}
		if !near(f.LastBeat, last.LastBeat) || f.Path.BlindTotal > slack {
			b.Errorf("set back by %v: %+v, before %+v", d, f, last)
		}
		last = f
	}
	b.step(interval)
	b.beat(id)
	if f := b.candidate(id).Facts; !near(f.LastBeat.Sub(last.LastBeat), interval) {
		b.Errorf("%v later, moments went on by %v", interval, f.LastBeat.Sub(last.LastBeat))
	}
}

func testSetBackAndOn(b *bench) {
	id := b.ready("a")[0]
	b.step(-24 * time.Hour)
	b.prove()
	if s := b.source("e", "a"); s.Quiet > slack || s.Quiet < 0 || !near(s.Left, limit) || !near(s.Last, b.now()) {
		b.Errorf("the clock was set back by a day: %+v", s)
	}
	b.step(2 * interval)
	b.prove()
	if c := b.candidate(id); !near(c.Now.Sub(c.LastBeat), 2*interval) {
		b.Errorf("quiet for %v, want %v", c.Now.Sub(c.LastBeat), 2*interval)
	}
}
