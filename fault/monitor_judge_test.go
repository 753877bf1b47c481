package fault_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/monitor"
)

func told(id string, status monitor.Transition, second int) fault.Told {
	return fault.Told{ID: id + "/" + string(status), At: at(second), AlarmMessage: monitor.AlarmMessage{RequestID: id, Status: status, Source: "s"}}
}

func beaten(second int, stored bool) fault.Beaten {
	return fault.Beaten{Source: "s", Sent: at(second), Answered: at(second).Add(100 * time.Millisecond), Stored: stored}
}

// watched is evidence that breaks no rule: two outages of a source that may be quiet
// for 3 s, of which the second stands.
func watched() fault.MonitorEvidence {
	return fault.MonitorEvidence{
		Limit: 3 * time.Second, Linger: 10 * time.Second, Quiet: []string{"s"}, Well: []string{"other"},
		Beats: []fault.Beaten{beaten(1, true), beaten(10, true), beaten(12, true), beaten(13, false)},
		Alarms: []monitor.Alarm{
			{ID: "b", Source: "s", Started: at(15), Raised: at(16)},
			{ID: "a", Source: "s", Started: at(4), Raised: at(5), Ended: at(10).Add(50 * time.Millisecond), End: monitor.Abated},
		},
		Sinks: [][]fault.Told{{told("a", monitor.Onset, 5), told("a", monitor.Onset, 6), told("a", monitor.Abated, 11), told("b", monitor.Onset, 16)}},
	}
}

// TestFaultMonitorJudgeCatches shows the judge one broken monitor after the other.
func TestFaultMonitorJudgeCatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(e *fault.MonitorEvidence)
		want  []fault.Rule
	}{
		{"nothing wrong", func(*fault.MonitorEvidence) {}, nil},
		{"a source that beat in time", func(e *fault.MonitorEvidence) { e.Beats[3] = beaten(14, true) }, []fault.Rule{fault.False}},
		{"raised before it began", func(e *fault.MonitorEvidence) { e.Alarms[0].Started = at(17) }, []fault.Rule{fault.False}},
		{"over without a beat", func(e *fault.MonitorEvidence) { e.Alarms[1].Ended = at(9) }, []fault.Rule{fault.Ghost}},
		{"over by what cannot have arrived", func(e *fault.MonitorEvidence) {
			e.Beats[0].Stored, e.Linger, e.Alarms[1].Ended = false, 2*time.Second, at(9)
		}, []fault.Rule{fault.Ghost}},
		{"a person ended it", func(e *fault.MonitorEvidence) { e.Alarms[1].Ended, e.Alarms[1].End = at(9), monitor.Forget }, nil},
		{"two stand", func(e *fault.MonitorEvidence) { e.Alarms[1].Ended = at(17) }, []fault.Rule{fault.Twice}},
		{"an ONSET is missing", func(e *fault.MonitorEvidence) { e.Sinks[0] = e.Sinks[0][:3] }, []fault.Rule{fault.Lost}},
		{"an ABATED is missing", func(e *fault.MonitorEvidence) {
			e.Sinks[0] = append(e.Sinks[0][:2:2], e.Sinks[0][3])
		}, []fault.Rule{fault.Lost, fault.Order}},
		{"an ABATED is early", func(e *fault.MonitorEvidence) {
			e.Sinks[0][0], e.Sinks[0][1], e.Sinks[0][2] = e.Sinks[0][2], e.Sinks[0][0], e.Sinks[0][1]
		}, []fault.Rule{fault.Order}},
		{"of nobody's alarm", func(e *fault.MonitorEvidence) {
			e.Sinks[0] = append(e.Sinks[0], told("b", monitor.Abated, 17), told("c", monitor.Onset, 18))
		}, []fault.Rule{fault.Ghost}},
		{"two sinks, one of them told nothing", func(e *fault.MonitorEvidence) { e.Sinks = append(e.Sinks, nil) }, []fault.Rule{fault.Lost}},
		{"an outage is missing", func(e *fault.MonitorEvidence) { e.Quiet = append(e.Quiet, "other") }, []fault.Rule{fault.Lost}},
		{"an outage that ended only when the trouble had", func(e *fault.MonitorEvidence) { e.Stalled = []string{"s"} }, []fault.Rule{fault.Lost}},
		{"an end is missing", func(e *fault.MonitorEvidence) { e.Well = append(e.Well, "s") }, []fault.Rule{fault.Shown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := watched()
			c.spoil(&e)
			var got []fault.Rule
			broken := map[fault.Rule]bool{}
			for _, v := range fault.JudgeMonitor(e).Violations {
				if !broken[v.Rule] {
					got = append(got, v.Rule)
				}
				broken[v.Rule] = true
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s\n%v", diff, fault.JudgeMonitor(e).Violations)
			}
		})
	}
}
