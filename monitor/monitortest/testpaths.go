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
	var d monitor.Delivery
	for _, name := range names {
		d.Proofs = append(d.Proofs, monitor.Proof{Path: name, Trust: time.Second, Gap: gap})
	}
	b.deliver(d)
}

func (b *bench) path(name string) monitor.PathRecord {
	b.Helper()
	o, err := b.Overview(b.ctx)
	if err != nil {
		b.Fatalf("Overview: %v", err)
	}
	i := slices.IndexFunc(o.Paths, func(p monitor.PathRecord) bool { return p.Name == name })
	if i < 0 {
		b.Fatalf("no path %q in %+v", name, o.Paths)
	}
	return o.Paths[i]
}

// wantBlind checks for how long a path was blind, ever, and whether that ended just now.
func (b *bench) wantBlind(name string, blind time.Duration, justNow bool) {
	b.Helper()
	p := b.path(name)
	if !near(p.Blind, blind) {
		b.Errorf("path %s was blind for %v, want %v", name, p.Blind, blind)
	}
	if resumed := p.Resumed == p.Proof; resumed != justNow {
		b.Errorf("path %s: proof %d, resumed %d; resumed just now should be %v", name, p.Proof, p.Resumed, justNow)
	}
}

func testFirstProof(b *bench) {
	b.by(gap, "q")
	b.wantBlind("q", 0, true)
	if p := b.path("q"); !near(p.Proof, b.look().Now) || p.Quiet > slack || !p.Seeing && p.Quiet < time.Second {
		b.Errorf("%+v", p)
	}
}

func testWithinGap(b *bench) {
	b.by(gap, "q")
	for range 3 {
		b.step(gap - slack)
		b.by(gap, "q")
		b.wantBlind("q", 0, false)
		if p := b.path("q"); !near(p.Proof, b.look().Now) {
			b.Errorf("proven %v ago", b.look().Now.Sub(p.Proof))
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
	beats := []monitor.Stamp{{Source: id, Path: 1, Count: 1}}
	b.deliver(monitor.Delivery{Proofs: []monitor.Proof{{Path: "new", Unproven: true, Gap: gap}, {Path: "q", Unproven: true, Gap: gap}}, Beats: beats})
	after := b.path("q")
	if after.Path != before.Path {
		b.Errorf("nothing is proven, and the path went from %+v to %+v", before.Path, after.Path)
	}
	if c := b.candidate(id); c.Path.Name != "q" || !near(c.Beat, c.Now) || c.Path.Proof != before.Proof {
		b.Errorf("the beat of an unproven path: %+v", c.Facts)
	}
	if p := b.path("new"); p.Proof != 0 || p.Blind != 0 {
		b.Errorf("a path that was never proven: %+v", p)
	}
	b.by(gap, "q", "new")
	b.wantBlind("q", 2*gap, true)
	b.wantBlind("new", 0, true)
}

func testTrust(b *bench) {
	b.deliver(monitor.Delivery{Proofs: []monitor.Proof{{Path: "q", Trust: time.Second, Gap: gap}}})
	b.deliver(monitor.Delivery{Proofs: []monitor.Proof{{Path: "q", Trust: time.Minute, Gap: 2 * gap}}})
	if p := b.path("q"); p.Trust != time.Minute || p.Gap != 2*gap {
		b.Errorf("%+v", p)
	}
}

func testProofsFirst(b *bench) {
	id := b.ready("a")[0]
	b.by(gap, "q")
	b.step(2 * gap)
	b.deliver(monitor.Delivery{
		Proofs: []monitor.Proof{proof("p"), {Path: "q", Gap: gap}},
		Beats:  []monitor.Stamp{{Source: id, Path: 1, Count: 1}},
	})
	c := b.candidate(id)
	if c.Path.Name != "q" || c.BlindThen != c.Path.Blind || c.Path.Blind < 2*gap-slack || c.Beat < c.Path.Resumed {
		b.Errorf("the time before the proof counts as blind since the beat that came with it: %+v", c.Facts)
	}
}

func testPathOfBeat(b *bench) {
	ids := b.ready("a", "b")
	slices.Sort(ids)
	b.deliver(monitor.Delivery{
		Proofs: []monitor.Proof{{Path: "x", Gap: gap}, {Path: "y", Gap: 100 * gap}},
		Beats:  []monitor.Stamp{{Source: ids[0], Path: 1, Count: 1}, {Source: ids[1], Path: 0, Count: 1}},
	})
	b.step(2 * gap)
	b.by(gap, "x")
	b.by(100*gap, "y", "p")
	one, two := b.candidate(ids[0]), b.candidate(ids[1])
	if one.Path.Name != "y" || two.Path.Name != "x" {
		b.Fatalf("paths %q and %q", one.Path.Name, two.Path.Name)
	}
	if two.Path.Blind-two.BlindThen < 2*gap-slack || two.Path.Resumed <= two.Beat {
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
	if c := b.candidate(id); c.Path.Name != "y" || c.Beat != 0 {
		b.Errorf("%+v", c.Facts)
	}
	b.by(wideGap, "x")
	if c := b.candidate(id); c.Path.Name != "x" {
		b.Errorf("%+v", c.Facts)
	}
}

func testDropPath(b *bench) {
	id := b.ready("a")[0] // by p
	b.by(gap, "q")
	b.step(2 * gap)
	b.by(gap, "q")
	b.act(monitor.Action{Verb: monitor.DropPath, Source: "p", Who: "ops"})
	c := b.candidate(id)
	if c.Path.Name != "q" || c.BlindThen != c.Path.Blind || c.Beat == 0 {
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
	if p := b.path("seldom"); p.Blind < 10*gap-slack || p.Resumed == 0 {
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
		if f.Now < last.Now || f.Beat < last.Beat || f.Path.Proof < last.Path.Proof {
			b.Fatalf("set back by %v, moments fall from %+v to %+v", d, last, f)
		}
		if !near(f.Beat, last.Beat) || f.Path.Blind > slack {
			b.Errorf("set back by %v: %+v, before %+v", d, f, last)
		}
		last = f
	}
	b.step(interval)
	b.beat(id)
	if f := b.candidate(id).Facts; !near(f.Beat.Sub(last.Beat), interval) {
		b.Errorf("%v later, moments went on by %v", interval, f.Beat.Sub(last.Beat))
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
	if c := b.candidate(id); !near(c.Now.Sub(c.Beat), 2*interval) {
		b.Errorf("quiet for %v, want %v", c.Now.Sub(c.Beat), 2*interval)
	}
}
