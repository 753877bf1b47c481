package api

import (
	"encoding/json"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

// forever is longer than anything can be expected: a schedule with no more times.
const forever = 100 * 365 * 24 * time.Hour

// viewSource shows a source.
func viewSource(s monitor.SourceRecord) apitype.Source {
	out := apitype.Source{
		Check: s.Check, Name: s.Source, Labels: s.Labels, Declared: s.Declared, State: string(s.State), CheckPaused: s.CheckPaused, Running: s.Running,
		Last: s.Last.UTC(), Beats: s.Beats, Sent: s.Sent.UTC(), Seq: s.Seq, Code: s.Code, Path: s.Path,
		Alarm: s.Alarm, Reason: string(s.Reason), Since: s.Since.UTC(), Until: s.Until.UTC(), Note: s.Note,
	}
	if !s.Last.IsZero() {
		out.QuietMS = new(s.Quiet.Milliseconds())
	}
	if (s.State == monitor.Up || s.State == monitor.Down) && s.Left < forever {
		out.LeftMS = new(s.Left.Milliseconds())
	}
	recent := make([]byte, len(s.Recent))
	for i, beat := range s.Recent {
		recent[i] = '0'
		if beat {
			recent[i] = '1'
		}
	}
	out.Recent = string(recent)
	return out
}

// viewReport shows a report; nil for none.
func viewReport(r monitor.Report) *apitype.Report {
	if r.At.IsZero() {
		return nil
	}
	return &apitype.Report{At: r.At.UTC(), Kind: string(r.Kind), Code: r.Code, Run: r.Run, Body: printable(r.Body)}
}

// viewAlarm shows an alarm.
func viewAlarm(a monitor.Alarm) apitype.Alarm {
	return apitype.Alarm{
		ID: a.ID, Check: a.Check, Source: a.Source, Group: a.Group, Members: a.Members, Labels: a.Labels, Reason: string(a.Reason),
		Started: a.Started.UTC(), Raised: a.Raised.UTC(), Ended: a.Ended.UTC(), End: string(a.End), Acknowledged: a.Acknowledged, Reminders: a.Reminders,
	}
}

// ViewCheck shows a check.
func ViewCheck(e monitor.Check) (out apitype.Check) {
	convertCheck(e, &out)
	return out
}

// CheckOf is the check that a caller describes. What is too long for a duration is as long as one can be,
// which [monitor.Check.Validate] refuses.
func CheckOf(v apitype.Check) (out monitor.Check) {
	convertCheck(v, &out)
	return out
}

// convertCheck goes through JSON, in which the check of package monitor and that of the API are the same: so a new option
// needs no line here.
func convertCheck(from, to any) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err) // both are plain structs of the same fields; a test compares them
	}
}

func millis(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// ViewMonitor shows the monitor; its lists are never null.
func ViewMonitor(o monitor.Overview) apitype.Monitor {
	return apitype.Monitor{
		Checks: views(o.Checks, viewCheckCount), Paths: views(o.Paths, viewPath), Sinks: append([]string{}, o.Sinks...),
		Open: o.Standing, Standing: o.Standing, Members: views(o.Members, viewMember),
		Configured: o.Configured.UTC(), Origin: o.Origin, ConfigError: o.Error,
	}
}

func viewCheckCount(c monitor.CheckCount) apitype.CheckCount {
	return apitype.CheckCount{
		Check: ViewCheck(c.Check), Up: c.Up, Down: c.Down, PausedSources: c.Paused, Retired: c.Retired, Unseen: c.NeverSeen, Removed: c.Removed,
	}
}

func viewPath(p monitor.PathView) apitype.Path {
	out := apitype.Path{Path: p.Name, Working: p.Working, BlindMS: p.BlindTotal.Milliseconds()}
	if p.LastSeen != 0 {
		out.QuietMS = new(p.Quiet.Milliseconds())
	}
	return out
}

func viewMember(m monitor.Member) apitype.MonitorMember {
	return apitype.MonitorMember{
		Instance: viewInstance(m.Instance), Partitions: m.Partitions, Active: m.Active, Process: m.Process, Host: m.Host, Service: m.Service,
		Sinks: append([]string{}, m.Sinks...),
	}
}
