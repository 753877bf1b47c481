package checks

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// twins are the broken tables by what is wrong with them.
func twins() map[string]twin {
	all := map[string]twin{}
	for _, part := range []map[string]twin{storeTwins(), detectTwins(), deskTwins()} {
		maps.Copy(all, part)
	}
	return all
}

func storeTwins() map[string]twin {
	return map[string]twin{
		"sources are numbered in two steps": {by: "D11 resolve/at once by many: none doubled", resolve: numberedApart},
		"ids are used again": {by: "resolve/ids are not used again", apply: func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
			made, err := r.ApplyChanges(ctx, changes)
			within(r, func(s step) {
				s.lastID = 0
				for id := range s.sources {
					s.lastID = max(s.lastID, id)
				}
				for _, e := range s.checks {
					s.lastID = max(s.lastID, e.ID%3)
				}
			})
			return made, err
		}},
		"nobody looks when the watched beat": {by: "store/a beat makes only the watched due", store: keepingDue(func(s monitor.Signal) bool { return s == monitor.SignalSuccess })},
		"nobody looks at signals":            {by: "store/a signal makes its source due", store: keepingDue(func(s monitor.Signal) bool { return s != monitor.SignalSuccess })},
		"a beat has everybody look": {by: "store/a beat makes only the watched due", store: func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			out, err := r.RecordHeartbeats(ctx, d)
			within(r, func(s step) {
				for _, b := range d.Beats {
					if n := s.sources[b.Source]; n != nil {
						n.due = s.now
					}
				}
			})
			return out, err
		}},
		"beats come before the proofs":   {by: "path/proofs come before the beats", store: beatsFirst},
		"a gap is not blind":             {by: "path/longer than the gap it was blind", store: proving(func(p *monitor.Probe) { p.MaxGap = 1e6 * time.Hour })},
		"all gaps are blind":             {by: "path/within the gap it could see", store: proving(func(p *monitor.Probe) { p.MaxGap = 0 })},
		"each counts a gap":              {by: "race/late proofs count a gap once", store: gapByEach},
		"what is unproven counts":        {by: "path/named by beats, unproven", store: proving(func(p *monitor.Probe) { p.NameOnly = false })},
		"replays renew":                  {by: "D10 store/replays are counted, not renewed", store: beating(func(b *monitor.HeartbeatUpdate) { b.Sent = time.Time{} })},
		"the sender's clock is believed": {by: "D10 store/receive time counts", store: beating(func(b *monitor.HeartbeatUpdate) { b.BySender = true })},
		"the sender's clock is not used": {by: "store/the sender's time, within bounds", store: beating(func(b *monitor.HeartbeatUpdate) { b.BySender = false })},
		"old beats rewind": {by: "store/the sender's time, within bounds", store: func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			within(r, func(s step) {
				for _, b := range d.Beats {
					if n := s.sources[b.Source]; n != nil && b.BySender {
						n.lastBeat = 0
					}
				}
			})
			return r.RecordHeartbeats(ctx, d)
		}},
		"a start is a beat":                 {by: "store/signals", store: startBeats},
		"one beat is one, whatever it says": {by: "store/counts all that it stands for", store: beating(func(b *monitor.HeartbeatUpdate) { b.Count = 1 })},
		"beats are counted in two steps":    {by: "store/at once by many: none is lost", store: countingTwice},
		"unknown sources are not told": {by: "store/unknown sources harm nothing", store: func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			out, err := r.RecordHeartbeats(ctx, d)
			out.Unknown = nil
			return out, err
		}},
		"a clock that skips is not noticed": {by: "D24 path/a clock that skipped blinds all", store: func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			within(r, func(s step) { s.Memory.lastProbe = 0 })
			return r.RecordHeartbeats(ctx, d)
		}},
		"moments go back": {by: "D24 path/a clock set back: moments go on", store: func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
			forgetClock(r)
			return r.RecordHeartbeats(ctx, d)
		}, due: func(r *Memory, ctx context.Context, partitions []int, limit int) (monitor.Scan, error) {
			forgetClock(r)
			return r.DueSources(ctx, partitions, limit)
		}},
	}
}

// startBeats has a start count as a beat.
func startBeats(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	out, err := r.RecordHeartbeats(ctx, d)
	within(r, func(s step) {
		for _, b := range d.Beats {
			if n := s.sources[b.Source]; n != nil && b.Signal == monitor.SignalStart {
				n.lastBeat = s.now
			}
		}
	})
	return out, err
}

func forgetClock(r *Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.ahead = 0, 0
}

func detectTwins() map[string]twin {
	return map[string]twin{
		"a beat in between is ignored":           {by: "apply/a beat in between undoes it", apply: believing(func(n *source, c *monitor.SourceChange) { c.BeatRev = n.beatRev })},
		"another's turn in between is ignored":   {by: "apply/another's turn undoes it", apply: believing(func(n *source, c *monitor.SourceChange) { c.Rev = n.rev })},
		"a person in between is ignored":         {by: "apply/a person in between undoes it", apply: believing(func(n *source, c *monitor.SourceChange) { c.Rev = n.rev })},
		"its event in between is ignored":        {by: "apply/a change of its event undoes it", apply: believing(func(n *source, c *monitor.SourceChange) { c.CheckRev = n.check.Rev })},
		"two at once both turn it":               {by: "apply/of two at once one is made", apply: believing(func(n *source, c *monitor.SourceChange) { c.Rev = n.rev })},
		"a beat at once is not seen":             {by: "apply/beat and onset at once", apply: believing(func(n *source, c *monitor.SourceChange) { c.BeatRev = n.beatRev }), store: keepingDue(func(monitor.Signal) bool { return true })},
		"a look puts off what a signal made due": {by: "race/a signal and a mere look", apply: lookInTwoSteps},
		"a look moves the version": {by: "apply/a mere look undoes nothing", apply: func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
			made, err := r.ApplyChanges(ctx, changes)
			within(r, func(s step) {
				for _, c := range changes {
					if n := s.sources[c.ID]; n != nil && c.Transition == monitor.NoTransition {
						n.rev++
					}
				}
			})
			return made, err
		}},
		"one that cannot be stops the rest": {by: "apply/those that cannot be harm no others", apply: func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
			for i := range changes {
				if made, err := r.ApplyChanges(ctx, changes[i:i+1]); err != nil || !made[0] {
					return make([]bool, len(changes)), err
				}
			}
			return slices.Repeat([]bool{true}, len(changes)), nil
		}},
		"notices of what was not made": {by: "apply/notices are enqueued if it is made", apply: tellAnyway},
		"notices of ends are lost": {by: "apply/notices are enqueued if it is made", apply: telling(func(c *monitor.SourceChange) {
			if c.Transition == monitor.Abated {
				c.Notifications = nil
			}
		})},
		"notices in another order": {by: "apply/notices keep their order", apply: telling(func(c *monitor.SourceChange) { slices.Reverse(c.Notifications) })},
		"notices twice": {by: "apply/notices of one id are enqueued once", apply: func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
			within(r, func(s step) { clear(s.enqueued) })
			return r.ApplyChanges(ctx, changes)
		}},
		"all partitions are due": {by: "due/of the partitions that are asked for", due: func(r *Memory, ctx context.Context, _ []int, limit int) (monitor.Scan, error) {
			return r.DueSources(ctx, everyPartition(), limit)
		}},
		"a failure is older than its source": {by: "store/a first failure by the sender's time", due: looking(func(l *monitor.Scan) {
			forEach(l, func(c *monitor.Candidate) {
				if c.Failing && c.LastBeat == c.ExpectedFrom {
					c.ExpectedFrom++
				}
			})
		})},
		"what is late is no heartbeat": {by: "turn/the next outage is another alarm", due: looking(func(l *monitor.Scan) {
			forEach(l, func(c *monitor.Candidate) { c.BeatSinceOnset = c.Alarm != "" && c.LastBeat >= c.OnsetAt })
		})},
		"due in another order": {by: "due/the one due longest first", due: looking(func(l *monitor.Scan) { slices.Reverse(l.Candidates) })},
		"next is not told":     {by: "due/only when it is time", due: looking(func(l *monitor.Scan) { l.Next = monitor.Never })},
		"more is not told":     {by: "due/no more than wanted, and next", due: looking(func(l *monitor.Scan) { l.Next = max(l.Next, l.Now+1) })},
		"removed is not told":  {by: "D15 turn/a removed event ends standing alarms", due: looking(func(l *monitor.Scan) { forEach(l, func(c *monitor.Candidate) { c.Removed = false }) })},
		"onsets are not counted": {by: "turn/onsets within the flap window", due: looking(func(l *monitor.Scan) {
			forEach(l, func(c *monitor.Candidate) { c.RecentOnsets = min(c.RecentOnsets, 1) })
		})},
		"the event's base is lost": {by: "configure/a shorter limit begins now", due: looking(func(l *monitor.Scan) { forEach(l, func(c *monitor.Candidate) { c.CheckChanged = 0 }) })},
		"the other path's facts":   {by: "path/facts are of the last beat's", due: looking(func(l *monitor.Scan) { forEach(l, func(c *monitor.Candidate) { c.Path.Name = "p" }) })},
		"well is forgotten":        {by: "turn/well since", apply: telling(func(c *monitor.SourceChange) { c.WellSince = 0 })},
		"an end resumes what is paused": {by: "turn/an alarm of a paused source", apply: func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
			made, err := r.ApplyChanges(ctx, changes)
			within(r, func(s step) {
				for _, c := range changes {
					if n := s.sources[c.ID]; n != nil && c.Transition == monitor.Abated {
						n.state = monitor.Up
					}
				}
			})
			return made, err
		}},
		"a sweep looks at nobody again": {by: "sweep/looks again after a shorter limit", sweep: func(r *Memory, ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
			within(r, func(s step) {
				for _, e := range s.checks {
					clear(e.reschedule)
				}
			})
			return r.Sweep(ctx, keep, limit)
		}},
		"a sweep deletes all that ended": {by: "sweep/deletes alarms that ended long ago", sweep: func(r *Memory, ctx context.Context, _ time.Duration, limit int) (monitor.Scan, error) {
			return r.Sweep(ctx, 0, limit)
		}},
		"a sweep deletes nothing": {by: "sweep/deletes alarms that ended long ago", sweep: func(r *Memory, ctx context.Context, _ time.Duration, limit int) (monitor.Scan, error) {
			return r.Sweep(ctx, 100_000*time.Hour, limit)
		}},
		"some members are reported": {by: "group/only while all members are held", report: someMembers},
		"a group ends early":        {by: "group/ends when none stands, and not before", report: endsEarly},
		"a second alarm of a group": {by: "group/who joined later", report: func(r *Memory, ctx context.Context, rep monitor.GroupReport) (bool, error) {
			within(r, func(s step) {
				for _, a := range s.alarms {
					if a.Source == "" && rep.End == "" && a.ID != rep.Alarm {
						a.endedAt = s.now
					}
				}
			})
			return r.ReportGroup(ctx, rep)
		}},
	}
}

func forEach(l *monitor.Scan, f func(*monitor.Candidate)) {
	for i := range l.Candidates {
		f(&l.Candidates[i])
	}
}

func deskTwins() map[string]twin {
	return map[string]twin{
		"configured event by event": {by: "D18 configure/whole or not at all", configure: oneByOne},
		"half of one is seen":       {by: "D22 configure/nobody sees half of one", configure: oneByOne},
		"an empty one is taken":     {by: "D18 configure/an empty one is refused", configure: emptyTaken},
		"a person's pause is lost":  {by: "configure/a person's pause survives", configure: resumesAll},
		"others are removed": {by: "configure/what is kept", configure: func(r *Memory, ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
			c.Keep = c.Keep && len(c.Checks) == 0
			return r.Configure(ctx, c)
		}},
		"defaults are left out": {by: "configure/every field", configure: func(r *Memory, ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
			c.Checks = slices.Clone(c.Checks)
			for i := range c.Checks {
				c.Checks[i].GroupWait = 0
			}
			return r.Configure(ctx, c)
		}},
		"the dead are members":  {by: "D1 enlist/members whose sessions are over", made: func(r *Memory) { r.o.Sessions = nil }},
		"nothing is recorded":   {by: "act/is recorded", made: func(r *Memory) { r.o.History = nil }},
		"alarms leave no trace": {by: "turn/each is an event of the history", made: func(r *Memory) { r.o.History = nil }},
		"pages overlap": {by: "alarms/raised at one time", alarms: func(r *Memory, ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
			q.BeforeID = ""
			return r.Alarms(ctx, q)
		}},
		"pages begin anew": {by: "sources/in pages", sources: func(r *Memory, ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
			q.AfterSource = ""
			return r.Sources(ctx, q)
		}},
		"labels are not asked for": {by: "sources/filters", sources: func(r *Memory, ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
			q.Label = ""
			return r.Sources(ctx, q)
		}},
		"a pause never ends": {by: "turn/a pause ends by itself", act: func(r *Memory, ctx context.Context, a monitor.Action) error {
			if a.Source != "" {
				a.For = 0
			}
			return r.ApplyAction(ctx, a)
		}},
		"what is resumed has no new base": {by: "act/pause and resume a source", act: func(r *Memory, ctx context.Context, a monitor.Action) error {
			ref, was := monitor.SourceRef{Check: a.Check, Source: a.Source}, monitor.StoreTime(0)
			within(r, func(s step) {
				if n := s.names[ref]; n != nil {
					was = n.expectedFrom
				}
			})
			err := r.ApplyAction(ctx, a)
			within(r, func(s step) {
				if n := s.names[ref]; n != nil {
					n.expectedFrom = was
				}
			})
			return err
		}},
	}
}

func everyPartition() (all []int) {
	for p := range monitor.Partitions {
		all = append(all, p)
	}
	return all
}
