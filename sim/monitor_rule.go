package sim

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// blindBetween is for how long a path was blind after a moment, as was known at
// another, and when that ended last. Only what is sure, or all that may be. What ended at
// that very moment may have been recorded after it.
func (p *pathBook) blindBetween(after, known time.Time, sure bool) (sum time.Duration, resumed time.Time) {
	if p == nil {
		return 0, time.Time{}
	}
	for _, v := range p.blind {
		if v.to.After(after) && !v.to.After(known) && (!sure || v.sure && v.to.Before(known)) {
			from := v.from
			if sure {
				from = maxTime(from, after)
			}
			sum += v.to.Sub(from)
			resumed = v.to
		}
	}
	return sum, resumed
}

// lastAcked is the last beat of a source that was acknowledged by a moment.
func (b *sourceBook) lastAcked(by time.Time) *sending {
	var last *sending
	for _, n := range b.notes {
		if !n.again && n.signal != monitor.SignalStart && !n.acked.IsZero() && !n.acked.After(by) && n.sent.After(b.fresh) && !b.passesForCopy(n) &&
			(last == nil || n.sent.After(last.sent)) {
			last = n
		}
	}
	return last
}

// passesForCopy tells that a copy of a newer beat was in the same flush.
func (b *sourceBook) passesForCopy(n *sending) bool {
	return slices.ContainsFunc(b.notes, func(m *sending) bool {
		return (m.again || m.copies) && m.acked.Equal(n.acked) && m.own.After(n.own)
	})
}

// mayBeat tells that it may have been heard until then, although no beat was acknowledged as new: one was
// stored without an answer, and acknowledged when it was said again.
func (b *sourceBook) mayBeat(by time.Time) bool {
	return slices.ContainsFunc(b.notes, func(n *sending) bool {
		return (n.again || n.acked.IsZero()) && n.signal != monitor.SignalStart && n.sent.After(b.fresh) && !n.sent.After(by)
	})
}

// counts is from when on a beat counts: when it was received at the earliest, or when
// it was sent, if the sender's clock decides.
func (n *sending) counts(e *eventBook) time.Time {
	if e.SenderClock && n.book.from.wrong == 0 && !n.own.IsZero() && n.own.Before(n.sent) {
		return n.own
	}
	return n.sent
}

// earliest is before when a source must not be called silent, by what was known then.
func (j *monitorJudge) earliest(b *sourceBook, e *eventBook, known time.Time) time.Time {
	base := maxTime(b.base, e.base)
	path := j.paths[b.from.path]
	last := b.lastAcked(known)
	if last == nil {
		// It was never heard of: all of its limit is left when any path can see again.
		if base.IsZero() {
			return b.first()
		}
		_, resumed := path.blindBetween(base, known, true)
		if len(j.paths) > 1 {
			resumed = time.Time{} // which path it will beat by is not known
		}
		whole := maxTime(base, resumed).Add(limitOf(e.Check))
		if b.mayBeat(known) {
			return minTime(whole, allowed(path, base, base, known, limitOf(e.Check), e.Interval+e.Grace))
		}
		return whole
	}
	if e.Schedule != "" {
		return last.counts(e).Add(e.Grace)
	}
	from, after := last.counts(e), last.acked
	if from.Before(last.sent) {
		after = from // it was late: what its path was blind for since then is not its silence
	}
	beaten := allowed(path, from, after, known, limitOf(e.Check), e.Interval+e.Grace)
	if !base.After(from) {
		return beaten
	}
	based := allowed(path, base, maxTime(base, last.acked), known, limitOf(e.Check), limitOf(e.Check))
	if base.After(last.acked) {
		return based
	}
	return minTime(beaten, based)
}

// allowed is when a limit is over that began at from, with the blind time after it.
func allowed(path *pathBook, from, after, known time.Time, limit, more time.Duration) time.Time {
	sum, resumed := path.blindBetween(after, known, true)
	if resumed.IsZero() {
		return from.Add(limit)
	}
	end := from.Add(limit + min(sum, resumed.Sub(after)))
	return maxTime(end, minTime(resumed, end).Add(more))
}

func (b *sourceBook) first() time.Time {
	for _, n := range b.notes {
		if n.sent.After(b.fresh) {
			return n.sent
		}
	}
	return b.fresh
}

// early checks an alarm that is raised: by what was known when its source was
// looked at, it was due, and no beat came since.
func (j *monitorJudge) early(b *sourceBook, r monitor.Reason, looked time.Time) {
	e := j.events[b.ref.Check]
	for _, n := range b.notes {
		if !n.again && !n.acked.IsZero() && n.sent.After(looked) && n.signal == monitor.SignalSuccess {
			j.breach("%v: an alarm was raised although a beat was acknowledged at %s, after it was looked at", b.ref, j.at(n.acked))
			return
		}
	}
	switch r {
	case monitor.Silent:
		if e.SenderClock && j.world.setup.Steps {
			return
		}
		when := j.earliest(b, e, looked)
		if !looked.Before(when) {
			j.blindly(b, when, looked)
			return
		}
		last, text := b.lastAcked(looked), "never"
		if last != nil {
			text = "at " + j.at(last.sent)
			if _, resumed := j.paths[b.from.path].blindBetween(last.sent, looked, false); !resumed.IsZero() {
				text += ", blind until " + j.at(resumed)
			}
		}
		j.breach("%v: a false alarm: silent at %s, it beat %s, and has until %s", b.ref, j.at(looked), text, j.at(when))
	case monitor.Failed:
		if !j.failed(b, looked) {
			j.breach("%v: a false alarm: it did not fail", b.ref)
		}
	case monitor.Overrun:
		if !j.overran(b, e, looked) {
			j.breach("%v: a false alarm: no run of it has lasted so long", b.ref)
		}
	}
}

// blindly checks that the path of a source that is silent was seen to work past its
// deadline.
func (j *monitorJudge) blindly(b *sourceBook, deadline, looked time.Time) {
	p, trust := j.paths[b.from.path], steadyGap
	if b.from.path == "router" {
		trust = 0
	}
	if b.lastAcked(looked) == nil || p == nil {
		return // it is judged by another path
	}
	// By a clock that was stepped back, the proof may be as young as it can be.
	old := !p.hidden && looked.Sub(p.proof) > j.gap(b.from.path)
	if p.proof.Add(trust).Before(deadline) || old && p.proof.Before(deadline) {
		j.breach("%v: a false alarm: its path was last seen to work at %s, and it had until %s", b.ref, j.at(p.proof), j.at(deadline))
	}
	r := j.world.router
	r.mu.Lock()
	defer r.mu.Unlock()
	// A proof may be recorded some time after the poll that it is of.
	if b.from.path == "router" && r.down.Add(routerGap).Before(deadline) && looked.Before(r.until) {
		j.breach("%v: a false alarm: its router is down since %s, and it had until %s", b.ref, j.at(r.down), j.at(deadline))
	}
}

// lateBy is how long after a request was given up the store may carry it out.
const lateBy = 2 * time.Second

// failed reports whether what it said last may be that it failed.
func (j *monitorJudge) failed(b *sourceBook, known time.Time) bool {
	return b.lastly(known, func(n *sending) bool { return n.signal == monitor.SignalFail })
}

func (j *monitorJudge) overran(b *sourceBook, e *eventBook, known time.Time) bool {
	return b.lastly(known, func(n *sending) bool {
		return n.signal == monitor.SignalStart && !known.Before(n.sent.Add(e.MaxRun))
	})
}

// lastly reports whether such a signal may be the last one that the store has.
func (b *sourceBook) lastly(known time.Time, is func(*sending) bool) bool {
	return slices.ContainsFunc(b.notes, func(n *sending) bool {
		if !is(n) || n.sent.After(known) || n.acked.IsZero() && !n.open && !n.until.After(n.sent) {
			return false
		}
		end := maxTime(n.acked.Add(lateBy), n.late) // a request that was made again may be carried out after that
		if n.acked.IsZero() {
			end = known.Add(time.Hour)
		}
		return !slices.ContainsFunc(b.notes, func(m *sending) bool {
			return !m.again && m.signal != monitor.SignalStart && !is(m) && !m.acked.IsZero() && !m.acked.After(known) && m.sent.After(end)
		})
	})
}

// latest is by when a source is overdue whatever happened to what nobody heard of.
// ok is false when it need not be.
func (j *monitorJudge) latest(b *sourceBook, e *eventBook) (when time.Time, ok bool) {
	now := time.Now()
	path := j.paths[b.from.path]
	var beat, sent time.Time
	for _, n := range b.notes {
		at := n.acked
		switch {
		case n.signal == monitor.SignalStart && e.MaxRun == 0, !n.sent.After(b.fresh) && n.acked.IsZero() && !n.open && now.After(n.until):
			continue
		case n.again && !n.acked.IsZero() && b.replayed(n):
			continue
		case n.open:
			at = now
		case n.acked.IsZero():
			if at = n.until; !at.After(n.sent) {
				continue // refused
			}
		}
		if n.signal == monitor.SignalStart && e.Schedule == "" {
			continue // it is no beat
		}
		at = maxTime(at, n.late)
		if beat = maxTime(beat, at); beat.Equal(at) {
			sent = n.sent
		}
	}
	base := maxTime(maxTime(b.baseUp, b.learned), maxTime(e.base, e.back))
	from := maxTime(beat, base)
	if from.IsZero() {
		return now, false
	}
	limit := limitOf(e.Check)
	if e.Schedule != "" {
		limit = time.Minute + e.Grace + min(e.Grace, time.Minute) // its beat may have kept a time so much later
	}
	sum, resumed := path.blindBetween(minTime(sent, from), now, false)
	for name, p := range j.paths {
		if beat.IsZero() && name != b.from.path {
			more, last := p.blindBetween(from, now, false)
			sum, resumed = max(sum, more), maxTime(resumed, last)
		}
	}
	when = from.Add(limit + sum)
	if !resumed.IsZero() {
		when = maxTime(when, resumed).Add(limit + 10*time.Second)
	}
	for _, l := range j.lost {
		if l.at.After(sent) {
			when = when.Add(l.d)
		}
	}
	if b.from.path == "router" {
		when = when.Add(3 * time.Second)
	}
	return when, true
}

// replayed reports whether it is for sure only what was stored last, once more.
func (b *sourceBook) replayed(n *sending) bool {
	if n.own.IsZero() {
		return false
	}
	first, sent := false, b.firstSent(n)
	for _, m := range b.notes {
		switch {
		case m == n, m.sent.After(n.acked):
		case m.own.Equal(n.own) && m.seq == n.seq:
			first = first || !m.acked.IsZero() && !m.acked.After(n.sent)
		case m.seq > n.seq, m.signal == monitor.SignalStart:
			return false
		case m.acked.IsZero() && (m.open || m.until.After(m.sent)), !m.acked.IsZero() && m.acked.After(sent):
			return false
		}
	}
	return first
}

// firstSent is when the beat that n says again was sent first.
func (b *sourceBook) firstSent(n *sending) time.Time {
	for _, m := range b.notes {
		if m.seq == n.seq {
			return m.sent
		}
	}
	return n.sent
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
