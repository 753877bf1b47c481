package monitortest

import (
	"context"
	"strings"

	"github.com/understudy-ha/understudy/monitor"
)

// look compares who is down with who must be.
func (o *outages) look() {
	down := map[string]monitor.SourceRecord{}
	o.call("Sources", func(ctx context.Context) error {
		all, err := o.rig.Table.Sources(ctx, monitor.SourceQuery{State: monitor.Down})
		for _, s := range all {
			down[s.Source] = s
		}
		return err
	})
	for _, s := range o.sources {
		record, found := down[s.name]
		switch {
		case s.habit == failing && s.bad > 0 && !found:
			o.fail("%s has failed, and is not down", s.name)
		case s.quiet <= inTime && found && (s.habit != failing || s.bad <= 0):
			o.fail("%s beat %d ticks ago, and is down: %+v", s.name, s.quiet, record)
		case s.quiet >= silent && !found:
			o.fail("%s has been quiet for %d ticks, and is not down", s.name, s.quiet)
		case found && !s.down:
			s.falls++
		}
		s.down = found
	}
}

// judgeNotices compares what the sink was told with what was true.
func (o *outages) judgeNotices() {
	told := map[string][]string{}
	for _, n := range o.rig.Sent(o.t, hook) {
		told[n.Key] = append(told[n.Key], n.ID)
	}
	used := map[string]bool{}
	for _, s := range o.sources {
		ids := told[monitor.OrderKey("e", s.name)]
		for i, id := range ids {
			alarm, turn, _ := strings.Cut(id, "/")
			want := monitor.Onset
			if i%2 == 1 {
				want = monitor.Abated
			}
			switch {
			case monitor.Transition(turn) != want:
				o.fail("%s: notice %d is %s, want %s, in %q", s.name, i, turn, want, ids)
			case want == monitor.Abated && ids[i-1] != alarm+"/ONSET":
				o.fail("%s: ABATED with another id than its ONSET, in %q", s.name, ids)
			case want == monitor.Onset && used[alarm]:
				o.fail("%s: the id %s stands for two outages", s.name, alarm)
			}
			used[alarm] = true
		}
		onsets := (len(ids) + 1) / 2
		if s.down != (len(ids)%2 == 1) || s.habit != racer && onsets != s.falls || onsets < s.falls {
			o.fail("%s: down %v, after %d outages, and the sink was told %q", s.name, s.down, s.falls, ids)
		}
	}
	o.judgeRecords()
}

// judgeRecords looks for beats that were lost or counted twice.
func (o *outages) judgeRecords() {
	for _, s := range o.sources {
		o.call("Sources", func(ctx context.Context) error {
			got, err := o.rig.Table.Sources(ctx, monitor.SourceQuery{Check: "e", Source: s.name})
			if err == nil && (len(got) != 1 || got[0].Beats != s.beats) {
				o.fail("%s has beaten %d times; the table says %+v", s.name, s.beats, got)
			}
			return err
		})
	}
}
