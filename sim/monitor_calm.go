package sim

import (
	"context"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// tick looks for what should have happened by now.
func (j *monitorJudge) tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, well := time.Now(), j.world.health.since()
	if now.Before(well) {
		return
	}
	slack := 2 * time.Second
	if j.world.setup.SQLite {
		slack = 8 * time.Second // a real disk, in real time, on a machine that may be busy
	}
	late := func(since time.Time) bool {
		return now.After(maxTime(since, well).Add(j.world.setup.First + slack + j.world.setup.Poll))
	}
	for _, b := range j.sources {
		e := j.events[b.ref.Check]
		if b.told {
			continue
		}
		if why := j.missing(b, e, late); why != "" {
			b.told = true
			j.breach("%v: %s; all is well since %s", b.ref, why, j.at(well))
		}
	}
}

// missing tells what should have become of a source.
func (j *monitorJudge) missing(b *sourceBook, e *eventBook, late func(time.Time) bool) string {
	switch {
	case !e.removed.IsZero():
		if b.alarm != "" && late(e.removed) {
			return "its alarm stands, and its event was removed at " + j.at(e.removed)
		}
		return ""
	case !b.asked.IsZero() && late(b.asked):
		return "it was to be retired at " + j.at(b.asked)
	case b.retired:
		return ""
	case b.paused && !b.until.IsZero() && late(b.until.Add(j.lostEver())):
		return "its pause was over at " + j.at(b.until)
	case b.alarm == "" && b.known && !b.paused && !e.paused:
		if when, ok := j.latest(b, e); ok && late(when) {
			return "no alarm, and it is overdue since " + j.at(when)
		}
		return j.untold(b, e, late)
	case b.alarm != "":
		if b.held && late(b.onset.Add(e.GroupWait+max(e.GroupWait/4, time.Second))) {
			return "its alarm is held since " + j.at(b.onset)
		}
		if since, ok := j.wellFor(b, e); ok && late(since) {
			return "its alarm stands, and it is well since " + j.at(since)
		}
	}
	return ""
}

// lostEver is how much time the store's clock did not count.
func (j *monitorJudge) lostEver() (sum time.Duration) {
	for _, l := range j.lost {
		sum += l.d
	}
	return sum
}

// untold is for failures and runs that do not end.
func (j *monitorJudge) untold(b *sourceBook, e *eventBook, late func(time.Time) bool) string {
	last := b.lastWord()
	if last == nil || last.acked.IsZero() || !last.sent.After(maxTime(b.baseUp, maxTime(e.base, e.back))) {
		return ""
	}
	if j.world.health.since().After(last.sent.Add(-lateBy)) && b.busy(last) {
		return ""
	}
	if last.signal == monitor.SignalFail && j.failureCounts(b, e, last) && late(last.acked) {
		return "no alarm, and it failed at " + j.at(last.acked)
	}
	_, resumed := j.paths[b.from.path].blindBetween(last.sent, time.Now(), false)
	if last.signal == monitor.SignalStart && e.MaxRun > 0 && resumed.IsZero() && late(last.acked.Add(e.MaxRun+j.lostEver()+3*time.Second)) {
		return "no alarm, and its run began at " + j.at(last.acked)
	}
	return ""
}

// failureCounts reports whether a failure is one of now by the clock that counts: the sender may have sent it before its
// source was resumed, or its check changed.
func (j *monitorJudge) failureCounts(b *sourceBook, e *eventBook, n *sending) bool {
	return !e.SenderClock || n.own.IsZero() || !j.world.setup.Steps && n.own.After(maxTime(b.baseUp, maxTime(e.base, e.back)))
}

// busy reports whether something else was stored shortly before, and may be once more.
func (b *sourceBook) busy(last *sending) bool {
	return slices.ContainsFunc(b.notes, func(n *sending) bool { return n != last && n.acked.After(last.sent.Add(-lateBy)) })
}

// lastWord is the last that a source said, if nothing else can be: nil otherwise.
func (b *sourceBook) lastWord() *sending {
	var last *sending
	for _, n := range b.notes {
		if !n.sent.After(b.fresh) {
			continue
		}
		if n.again || n.open || n.acked.IsZero() && n.until.After(n.sent) {
			last = nil
			continue
		}
		if n.acked.IsZero() {
			continue
		}
		if last == nil || n.sent.After(last.acked) {
			last = n
		} else if !n.acked.Before(last.sent) && n != last {
			return nil // they overlap
		}
	}
	// What nobody answered may be stored after it.
	if slices.ContainsFunc(b.notes, func(n *sending) bool {
		return last != nil && n != last && (n.late.After(last.sent) || n.acked.IsZero() && n.until.After(last.sent))
	}) {
		return nil
	}
	return last
}

// wellFor is since when a source whose alarm stands beats in time; ok is false if it
// does not.
func (j *monitorJudge) wellFor(b *sourceBook, e *eventBook) (since time.Time, ok bool) {
	most := limitOf(e.Check) * 9 / 10
	if e.Schedule != "" {
		most = 20 * time.Second
	}
	if e.SenderClock && (j.world.setup.Steps || most < 0) {
		return since, false
	}
	next := time.Now()
	for i := len(b.notes) - 1; i >= 0; i-- {
		n := b.notes[i]
		// A failure that is said again after something else came is one more.
		if n.again && n.signal != monitor.SignalFail || n.open || n.acked.IsZero() && !n.until.After(n.sent) {
			continue
		}
		if n.signal != monitor.SignalSuccess || n.acked.IsZero() || next.Sub(n.counts(e)) > most || !n.sent.After(b.onset) {
			break
		}
		since, ok, next = n.acked, true, n.sent
	}
	if e.Flaps > 0 {
		since = since.Add(e.Steady + time.Second)
	}
	return since, ok
}

// settle ends all faults: what goes silent then is still found, and in the end all
// sources are well, and nothing is stuck.
func (w *monitorWorld) settle() {
	if d := time.Until(w.health.since()); d > 0 {
		pause(d)
	}
	w.calm.Store(true)
	w.judge.trace("no more faults")
	for i, n := range w.nodes {
		if n == nil {
			w.launch(i)
		}
	}
	w.health.up(time.Now().Add(4 * time.Second))
	pause(w.dice.between(10*time.Second, 30*time.Second))
	w.restore()
	w.well.Store(true)
	w.judge.trace("all sources are well")
	within := 20*time.Second + 2*w.setup.First
	for _, e := range w.setup.Checks {
		within = max(within, 20*time.Second+2*w.setup.First+2*limitOf(e.WithDefaults())+e.WithDefaults().Steady+e.GroupWait)
		if e.Schedule != "" {
			within += 30 * time.Second
		}
	}
	pause(within)
	w.judge.final()
}

// restore puts into force what was configured at first, and ends all pauses.
func (w *monitorWorld) restore() {
	w.reconfigure(func(all map[string]monitor.Check) {
		for _, e := range w.setup.Checks {
			all[e.Name] = e
		}
	})
	for _, e := range w.setup.Checks {
		w.act(monitor.Action{Type: monitor.ActionResume, Check: e.Name})
	}
	for _, s := range w.sources {
		w.act(monitor.Action{Type: monitor.ActionResume, Check: s.ref.Check, Source: s.ref.Source})
	}
}

// final checks that nothing is stuck, and that nothing was lost.
func (j *monitorJudge) final() {
	j.mu.Lock()
	defer j.mu.Unlock()
	ctx := context.Background()
	alarms, err := j.world.base.Alarms(ctx, monitor.AlarmQuery{Standing: true})
	if err != nil {
		j.breach("%v", err)
	}
	for _, a := range alarms {
		j.breach("stuck: the alarm of %s/%s%s stands, and all is well", a.Check, a.Source, a.Group)
	}
	for _, name := range monitorSinks {
		for key := range j.sinks[name].stands {
			j.breach("stuck: %s was not told that %s is over", name, key)
		}
		if j.sinks[name].count != j.sinks[monitorSinks[0]].count {
			j.breach("sinks were told %d and %d", j.sinks[name].count, j.sinks[monitorSinks[0]].count)
		}
	}
	found, err := j.world.base.Sources(ctx, monitor.SourceQuery{})
	if err != nil {
		j.breach("%v", err)
	}
	seen := map[monitor.SourceRef]bool{}
	for _, r := range found {
		ref := monitor.SourceRef{Check: r.Check, Source: r.Source}
		seen[ref] = true
		j.stored(j.source(ref), r)
	}
	for ref, b := range j.sources {
		if b.known && !seen[ref] {
			j.breach("%v: it is not there", ref)
		}
	}
	settings, err := j.world.base.Settings(ctx)
	if err != nil || len(settings.Checks) != len(j.world.setup.Checks) {
		j.breach("stuck: %d events, %v", len(settings.Checks), err)
	}
}

// stored checks that what was acknowledged is stored.
func (j *monitorJudge) stored(b *sourceBook, r monitor.SourceRecord) {
	var beats int64
	at := map[time.Time]int{} // more signals at once than this are merged
	for _, n := range b.notes {
		switch at[n.sent]++; {
		case n.acked.IsZero() || n.signal == monitor.SignalStart || !n.sent.After(b.fresh) || at[n.sent] > 60:
		case n.again:
			beats-- // with a copy of the newest in one flush, an older one passes for a copy
		case !n.copies: // the same of what was said again when it was not answered
			beats++
		}
	}
	if r.Beats < beats {
		j.breach("%v: %d beats were acknowledged, and %d are stored", b.ref, beats, r.Beats)
	}
	if r.State != monitor.Up {
		j.breach("stuck: %v is %s, and all is well", b.ref, r.State)
	}
	e := j.events[b.ref.Check]
	if last := b.lastAcked(time.Now()); last != nil && !e.SenderClock && r.Quiet > time.Since(last.sent)+time.Millisecond {
		j.breach("%v: the beat of %s was acknowledged, and it is quiet for %v", b.ref, j.at(last.sent), r.Quiet)
	}
}
