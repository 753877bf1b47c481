package monitortest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func storeTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"store/a beat is kept":                       testBeat,
		"store/counts all that it stands for":        testCount,
		"store/at once by many: none is lost":        testStoreRace,
		"store/signals":                              testSignals,
		"store/a beat makes only the watched due":    testWatched,
		"store/a signal makes its source due":        testSignalDue,
		"store/unknown sources harm nothing":         testUnknown,
		"store/a large delivery":                     testLargeDelivery,
		"store/what is none":                         testNoDelivery,
		"store/recent intervals":                     testRecent,
		"store/tells the generation":                 testGeneration,
		"D10 store/replays are counted, not renewed": testReplay,
		"D10 store/receive time counts":              testReceiveTime,
		"store/the sender's time, within bounds":     testBySender,
		"store/a first failure by the sender's time": testFirstFailureBySender,
	}
}

func (b *bench) now() time.Time {
	b.Helper()
	o, err := b.Overview(b.ctx)
	if err != nil {
		b.Fatalf("Overview: %v", err)
	}
	return o.Now
}

func testBeat(b *bench) {
	id := b.ready("a")[0]
	sent := b.now().Add(-time.Second).Truncate(time.Microsecond)
	b.stamp(monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: 17, Code: 3})
	s := b.source("e", "a")
	if !near(s.Last, b.now()) || s.Quiet > slack || s.Quiet < 0 || s.Beats != 2 || s.Path != "p" {
		b.Errorf("after two beats: %+v", s)
	}
	if !s.Sent.Equal(sent) || s.Seq != 17 || s.Code != 3 {
		b.Errorf("the beat's own account is %v, %d, %d", s.Sent, s.Seq, s.Code)
	}
	if !near(s.Left, limit) {
		b.Errorf("it may still be quiet for %v, want %v", s.Left, limit)
	}
	c := b.candidate(id)
	if !near(c.LastBeat, c.Now) || c.Path.Name != "p" || c.State != monitor.Up || c.Failing || c.RunStarted != 0 || c.Alarm != "" {
		b.Errorf("candidate: %+v", c)
	}
	b.step(limit + slack)
	b.prove()
	if s := b.source("e", "a"); s.Left >= 0 || !near(s.Quiet, limit+slack) {
		b.Errorf("overdue, it is %+v", s)
	}
}

func testCount(b *bench) {
	ids := b.ready("a", "b")
	b.stamp(monitor.HeartbeatUpdate{Source: ids[0], Count: 5}, monitor.HeartbeatUpdate{Source: ids[1]})
	if a, other := b.source("e", "a"), b.source("e", "b"); a.Beats != 6 || other.Beats != 2 {
		b.Errorf("beats of a: %d, want 6; of b: %d, want 2", a.Beats, other.Beats)
	}
}

func testStoreRace(b *bench) {
	ids := b.ready("a", "b", "c", "d", "e", "f")
	slices.Sort(ids)
	handles := []monitor.Store{b.Store, b.other()}
	var g sync.WaitGroup
	for i := range 6 {
		g.Go(func() {
			for round := range 10 {
				d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p"), proof(fmt.Sprint("own ", i))}}
				for k, id := range ids {
					if k%2 == round%2 || k == i {
						d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Path: k % 2, Count: 1})
					}
				}
				if i%2 == 1 { // another order of the paths
					slices.Reverse(d.Probes)
				}
				if _, err := handles[i%2].RecordHeartbeats(b.ctx, d); err != nil {
					b.Errorf("Store: %v", err)
				}
			}
		})
	}
	g.Wait()
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if s := b.source("e", name); s.Beats != 1+30+5 {
			b.Errorf("source %d has %d beats, want 36", i, s.Beats)
		}
	}
}

func testSignals(b *bench) {
	id := b.ready("a")[0]
	before := b.candidate(id)
	b.step(interval)
	b.signal(monitor.SignalStart, id)
	c := b.candidate(id)
	if c.LastBeat != before.LastBeat || !near(c.RunStarted, c.Now) || c.BeatRev == before.BeatRev || c.Failing {
		b.Fatalf("after a start: %+v, before %+v", c, before)
	}
	if s := b.source("e", "a"); !s.Running || s.Beats != 1 {
		b.Errorf("in a run: %+v", s)
	}
	b.stamp(monitor.HeartbeatUpdate{Source: id, Signal: monitor.SignalFail, Code: 7})
	c = b.candidate(id)
	if !near(c.LastBeat, c.Now) || c.RunStarted != 0 || !c.Failing {
		b.Fatalf("after a failure: %+v", c)
	}
	if s := b.source("e", "a"); s.Running || s.Code != 7 {
		b.Errorf("after a failure: %+v", s)
	}
	b.signal(monitor.SignalStart, id)
	if c = b.candidate(id); !c.Failing || c.RunStarted == 0 {
		b.Errorf("what failed and was started again: %+v", c)
	}
	b.beat(id)
	if c = b.candidate(id); c.Failing || c.RunStarted != 0 {
		b.Errorf("after a fine beat: %+v", c)
	}
	if s := b.source("e", "a"); s.Running || s.Code != 0 || s.Beats != 3 {
		b.Errorf("after a fine beat: %+v", s)
	}
}

// later puts a source's next look off for ever.
func (b *bench) later(ids ...int64) {
	b.Helper()
	for _, id := range ids {
		b.apply(b.change(b.candidate(id), monitor.NoTransition))
		b.wantDue(id, false)
	}
}

func testWatched(b *bench) {
	ids := b.ready("up", "down", "retired", "running", "paused with an alarm", "paused")
	b.onset(ids[1])
	b.apply(b.change(b.candidate(ids[2]), monitor.Retire))
	b.signal(monitor.SignalStart, ids[3])
	b.later(ids[0], ids[3])
	b.onset(ids[4])
	for _, name := range []string{"paused with an alarm", "paused"} {
		b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: name})
	}
	for _, id := range ids {
		b.wantDue(id, false)
	}
	b.beat(ids...)
	for i, want := range []bool{false, true, true, true, true, false} {
		b.wantDue(ids[i], want)
	}
	// The same in another handle, and once the reason has ended, no more.
	b.apply(b.change(b.candidate(ids[1]), monitor.Abated))
	b.apply(b.change(b.candidate(ids[2]), monitor.Return))
	b.later(ids[3])
	b.beat(ids[1], ids[2], ids[3])
	for _, id := range ids[1:4] {
		b.wantDue(id, false)
	}
}

func testSignalDue(b *bench) {
	ids := b.ready("start", "fail", "both")
	b.later(ids...)
	b.signal(monitor.SignalStart, ids[0], ids[2])
	b.signal(monitor.SignalFail, ids[1])
	for _, id := range ids {
		b.wantDue(id, true)
	}
	b.later(ids...)
	b.signal(monitor.SignalFail, ids[2]) // ends a run
	b.wantDue(ids[2], true)
}

func testUnknown(b *bench) {
	ids := b.ready("a", "b")
	strangers := []int64{max(ids[0], ids[1]) + 1000, max(ids[0], ids[1]) + 5000}
	out := b.stamp(monitor.HeartbeatUpdate{Source: ids[0]}, monitor.HeartbeatUpdate{Source: strangers[0]}, monitor.HeartbeatUpdate{Source: ids[1]}, monitor.HeartbeatUpdate{Source: strangers[1], Signal: monitor.SignalFail})
	slices.Sort(out.Unknown)
	if !slices.Equal(out.Unknown, strangers) {
		b.Errorf("unknown: %v, want %v", out.Unknown, strangers)
	}
	if a, other := b.source("e", "a"), b.source("e", "b"); a.Beats != 2 || other.Beats != 2 {
		b.Errorf("the others have %d and %d beats, want 2", a.Beats, other.Beats)
	}
}

func testLargeDelivery(b *bench) {
	b.configure(each("e"))
	const all = 3000
	beats := make([]monitor.HeartbeatUpdate, 0, all)
	for from := 0; from < all; from += monitor.MaxSources {
		names := make([]string, monitor.MaxSources)
		for i := range names {
			names[i] = fmt.Sprint("s", from+i)
		}
		for _, id := range b.resolve("e", names...) {
			beats = append(beats, monitor.HeartbeatUpdate{Source: id, Seq: id})
		}
	}
	if out := b.stamp(beats...); len(out.Unknown) != 0 || out.Replayed != 0 {
		b.Fatalf("%+v", out)
	}
	for _, i := range []int{0, 999, 1000, 2999} {
		if s := b.source("e", fmt.Sprint("s", i)); s.Beats != 1 {
			b.Errorf("source %d: %+v", i, s)
		}
	}
	if _, err := b.RecordHeartbeats(b.ctx, monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}, Beats: make([]monitor.HeartbeatUpdate, monitor.MaxBeats+1)}); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("more than MaxBeats: %v", err)
	}
}

func testNoDelivery(b *bench) {
	id := b.ready("a")[0]
	if _, err := b.RecordHeartbeats(b.ctx, monitor.HeartbeatBatch{}); err != nil {
		b.Errorf("nothing: %v", err)
	}
	for _, path := range []int{-1, 1} {
		d := monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}, Beats: []monitor.HeartbeatUpdate{{Source: id, Path: path, Count: 1}}}
		if _, err := b.RecordHeartbeats(b.ctx, d); !errors.Is(err, lease.ErrInvalid) {
			b.Errorf("path %d of 1: %v", path, err)
		}
	}
	if s := b.source("e", "a"); s.Beats != 1 {
		b.Errorf("a beat of an invalid delivery was stored: %+v", s)
	}
}

func testRecent(b *bench) {
	id := b.ready("a")[0]
	for range 3 {
		b.step(interval)
		b.beat(id)
	}
	b.step(2 * interval)
	r := b.source("e", "a").Recent
	if len(r) < 10 {
		b.Fatalf("recent: %v", r)
	}
	// A clock that runs on may have crossed into the next interval once.
	want := []bool{false, false, true, true, true, true, false}
	if !slices.Equal(r[:7], want) && !slices.Equal(r[1:8], want) {
		b.Errorf("recent: %v, want %v", r, want)
	}
	b.step(100 * interval)
	if r := b.source("e", "a").Recent; slices.Contains(r, true) {
		b.Errorf("a hundred intervals later: %v", r)
	}
}

func testGeneration(b *bench) {
	b.configure(each("e"))
	one := b.stamp().Generation
	b.configure(each("e"), each("f"))
	two := b.stamp().Generation
	if one == two || two != b.settings().Generation || two != b.look().Generation {
		b.Errorf("generations %d, then %d; Settings says %d", one, two, b.settings().Generation)
	}
}

func testReplay(b *bench) {
	id := b.ready("a")[0]
	sent := b.now().Truncate(time.Microsecond)
	b.stamp(monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: 5})
	before := b.candidate(id)
	b.step(interval)
	if out := b.stamp(monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: 5, Count: 4, Signal: monitor.SignalFail}); out.Replayed != 4 {
		b.Errorf("a replay of four: %+v", out)
	}
	if c := b.candidate(id); c.LastBeat != before.LastBeat || c.Failing {
		b.Errorf("a replay moved the last beat from %d to %d, failing %v", before.LastBeat, c.LastBeat, c.Failing)
	}
	b.later(id)
	b.stamp(monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: 5, Signal: monitor.SignalFail})
	b.wantDue(id, false)
	for _, fresh := range []monitor.HeartbeatUpdate{{Sent: sent, Seq: 6}, {Sent: sent.Add(time.Millisecond), Seq: 6}, {Seq: 6}, {Seq: 6}, {}, {}} {
		was := b.source("e", "a").Beats
		fresh.Source = id
		if out := b.stamp(fresh); out.Replayed != 0 || b.source("e", "a").Beats != was+1 {
			b.Errorf("%+v is no replay: %+v", fresh, out)
		}
	}
}

// testReceiveTime: a sender's clock that is wrong, or beats in another order,
// change nothing about when they were received.
func testReceiveTime(b *bench) {
	id := b.ready("a")[0]
	for i, off := range []time.Duration{-5 * time.Hour, 5 * time.Hour, -100 * time.Hour} {
		b.step(interval)
		b.stamp(monitor.HeartbeatUpdate{Source: id, Sent: b.now().Add(off), Seq: int64(10 - i)})
		if c := b.candidate(id); !near(c.LastBeat, c.Now) {
			b.Errorf("sent %v off, received %v ago", off, c.Now.Sub(c.LastBeat))
		}
	}
}

func testBySender(b *bench) {
	id := b.ready("a")[0]
	b.step(2 * interval)
	send := func(ago time.Duration) (got time.Duration) {
		b.stamp(monitor.HeartbeatUpdate{Source: id, BySender: true, Sent: b.now().Add(-ago), Seq: int64(ago)})
		c := b.candidate(id)
		return c.Now.Sub(c.LastBeat)
	}
	for _, c := range []struct {
		what      string
		ago, want time.Duration
	}{
		{"before the last one", 5 * interval, 2 * interval},
		{"late", interval, interval},
		{"older than that", interval + 5*time.Minute, interval},
		{"in the future", -time.Hour, 0},
	} {
		if got := send(c.ago); !near(got, c.want) {
			b.Errorf("%s: sent %v ago, it counts as %v ago, want %v", c.what, c.ago, got, c.want)
		}
	}
	b.step(interval)
	b.stamp(monitor.HeartbeatUpdate{Source: id, BySender: true})
	if c := b.candidate(id); !near(c.LastBeat, c.Now) {
		b.Errorf("without the sender's time it counts as %v ago", c.Now.Sub(c.LastBeat))
	}
}

// testFirstFailureBySender: a failure is sent before the monitor learns of its source by it.
func testFirstFailureBySender(b *bench) {
	check := each("e")
	check.SenderClock = true
	b.configure(check)
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "e", Source: "declared"}}); err != nil {
		b.Fatalf("Declare: %v", err)
	}
	b.step(2 * interval)
	for _, c := range []struct {
		source    string
		ago, want time.Duration
	}{
		{"learned", interval, 0},
		{"declared", interval, interval},
		{"declared", 5 * interval, interval}, // from before its last one
	} {
		id := b.resolve("e", c.source)[0]
		b.stamp(monitor.HeartbeatUpdate{Source: id, Signal: monitor.SignalFail, BySender: true, Sent: b.now().Add(-c.ago), Seq: int64(c.ago)})
		got := b.candidate(id)
		if since := got.Now.Sub(got.LastBeat); !near(since, c.want) {
			b.Errorf("%s: sent %v ago, it counts as %v ago, want %v", c.source, c.ago, since, c.want)
		}
		if v := check.Evaluate(got.Facts); v.Transition != monitor.Onset || v.Reason != monitor.Failed {
			b.Errorf("%s: it failed, and that is %q, %q", c.source, v.Transition, v.Reason)
		}
	}
}
