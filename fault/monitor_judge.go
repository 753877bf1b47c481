package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// False is the rule of monitors that a source which beat in time raises no alarm.
const False Rule = "false"

// Beaten is one attempt to send a beat that is well.
type Beaten struct {
	Source string
	// Sent and Answered are when it began and was over, by the wall clock; Answered is
	// zero before. Stored: the answer said that it is.
	Sent, Answered time.Time
	Stored         bool
}

// Told is a message that a sink took, in the order in which it did.
type Told struct {
	ID string // of the message, by which it is recognised
	monitor.AlarmMessage
	At time.Time
}

// MonitorEvidence is what [JudgeMonitor] looks at.
type MonitorEvidence struct {
	Beats []Beaten
	// Alarms as the store has them, by the same wall clock, in any order.
	Alarms []monitor.Alarm
	// Sinks is what each was told, in the order in which it was.
	Sinks [][]Told
	// Limit is how long a source may be quiet.
	Limit time.Duration
	// Linger is for how long an attempt that was not answered may still be stored.
	Linger time.Duration
	// Well are sources that must be up at the end; Quiet those that must be down.
	Well, Quiet []string
	// Stalled are sources whose outage did not come to its end, at all sinks, in the time of trouble.
	Stalled []string
}

// MonitorVerdict is what it says.
type MonitorVerdict struct {
	Violations []Violation
	Beats      int // that were stored
	Failed     int // attempts that were not
	Outages    int
	Again      int // messages that came more than once
	// Late is the longest from the end of a limit until the ONSET was at a sink. No rule bounds it: random troubles can follow one
	// another faster than a takeover takes.
	Late time.Duration
}

type monitorJudge struct {
	MonitorEvidence
	MonitorVerdict
	beats  map[string][]Beaten
	alarms map[string][]monitor.Alarm
	ids    map[string]monitor.Alarm
}

// JudgeMonitor looks for broken rules.
func JudgeMonitor(e MonitorEvidence) MonitorVerdict {
	j := monitorJudge{MonitorEvidence: e, beats: map[string][]Beaten{}, alarms: map[string][]monitor.Alarm{}, ids: map[string]monitor.Alarm{}}
	for _, b := range e.Beats {
		j.beats[b.Source] = append(j.beats[b.Source], b)
		if b.Stored {
			j.MonitorVerdict.Beats++
		} else {
			j.Failed++
		}
	}
	for _, a := range e.Alarms {
		j.alarms[a.Source] = append(j.alarms[a.Source], a)
		j.ids[a.ID] = a
	}
	j.Outages = len(e.Alarms)
	for source, alarms := range j.alarms {
		slices.SortFunc(alarms, func(a, b monitor.Alarm) int { return a.Raised.Compare(b.Raised) })
		for i, a := range alarms {
			j.alarm(source, a)
			if i > 0 && (alarms[i-1].Ended.IsZero() || alarms[i-1].Ended.After(a.Raised)) {
				j.breaks(Twice, source, "%s was raised while %s stood", a.ID, alarms[i-1].ID)
			}
		}
	}
	for n, told := range e.Sinks {
		j.sink(n, told)
	}
	j.end()
	slices.SortFunc(j.Violations, func(a, b Violation) int { return cmp.Compare(a.String(), b.String()) })
	return j.MonitorVerdict
}

func (j *monitorJudge) breaks(r Rule, source, format string, args ...any) {
	j.Violations = append(j.Violations, Violation{Rule: r, Subject: source, Detail: fmt.Sprintf(format, args...)})
}

// alarm judges one by the beats of its source.
func (j *monitorJudge) alarm(source string, a monitor.Alarm) {
	sign := a.Ended.IsZero() || a.End != monitor.Abated
	for _, b := range j.beats[source] {
		if b.Stored && b.Sent.After(a.Raised.Add(-j.Limit)) && b.Answered.Before(a.Raised) {
			j.breaks(False, source, "%s was raised %v after a beat had been sent, and %v after it was stored", a.ID, a.Raised.Sub(b.Sent), a.Raised.Sub(b.Answered))
		}
		until := b.Answered
		if !b.Stored {
			until = b.Sent.Add(j.Linger)
		}
		sign = sign || !b.Sent.After(a.Ended) && !until.Before(a.Raised)
	}
	if !sign {
		j.breaks(Ghost, source, "%s ended %v after it was raised, without a beat", a.ID, a.Ended.Sub(a.Raised))
	}
	if a.Started.After(a.Raised) {
		j.breaks(False, source, "%s was raised %v before its outage began", a.ID, a.Started.Sub(a.Raised))
	}
}

// sink judges what one of them was told.
func (j *monitorJudge) sink(n int, told []Told) {
	type turn struct {
		id     string
		status monitor.Transition
	}
	seen, last := map[turn]bool{}, map[string]turn{}
	for _, t := range told {
		now := turn{t.RequestID, t.Status}
		a, known := j.ids[t.RequestID]
		switch {
		case seen[now]:
			j.Again++
			continue
		case !known || a.Source != t.Source:
			j.breaks(Ghost, t.Source, "sink %d was told of %s, which no alarm of it is", n, t.RequestID)
		case t.Status == monitor.Abated && a.Ended.IsZero():
			j.breaks(Ghost, t.Source, "sink %d was told that %s is over, which stands", n, a.ID)
		}
		before := last[t.Source]
		switch {
		case t.Status == monitor.Onset && before.status == monitor.Onset:
			j.breaks(Order, t.Source, "sink %d was told of the ONSET of %s after that of %s", n, t.RequestID, before.id)
		case t.Status == monitor.Abated && before != turn{t.RequestID, monitor.Onset}:
			j.breaks(Order, t.Source, "sink %d was told that %s is over after %s %s", n, t.RequestID, before.status, before.id)
		case t.Status == monitor.Onset && known:
			j.Late = max(j.Late, t.At.Sub(a.Started))
		}
		seen[now], last[t.Source] = true, now
	}
	for _, a := range j.ids {
		for _, s := range []monitor.Transition{monitor.Onset, monitor.Abated} {
			if !seen[turn{a.ID, s}] && (s == monitor.Onset || !a.Ended.IsZero()) {
				j.breaks(Lost, a.Source, "sink %d was not told of the %s of %s", n, s, a.ID)
			}
		}
	}
}

// end judges what stands in the end.
func (j *monitorJudge) end() {
	stands := func(source string) bool {
		return slices.ContainsFunc(j.alarms[source], func(a monitor.Alarm) bool { return a.Ended.IsZero() })
	}
	for _, source := range j.Well {
		if stands(source) {
			j.breaks(Shown, source, "it beats, and its alarm stands")
		}
	}
	for _, source := range j.Quiet {
		if !stands(source) {
			j.breaks(Lost, source, "it is quiet, and no alarm stands")
		}
	}
	for _, source := range j.Stalled {
		j.breaks(Lost, source, "its outage did not come to its end at every sink while there was trouble")
	}
}
