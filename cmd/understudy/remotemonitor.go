package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// sourceDesk is what the commands do with sources and alarms. A [monitor.Table] is one.
type sourceDesk interface {
	Declare(ctx context.Context, sources []monitor.Declaration) ([]bool, error)
	Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error)
	Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error)
	Act(ctx context.Context, a monitor.Action) error
}

// withSources lets f use the desk of the store or of a server; f bounds its own calls.
func (a *app) withSources(ctx context.Context, f func(context.Context, sourceDesk) error) error {
	if !a.remote() {
		return a.withMonitor(ctx, func(ctx context.Context, t monitor.Table) error { return f(ctx, t) })
	}
	c, err := a.server()
	if err != nil {
		return err
	}
	return monitorAdvice(f(ctx, remoteSources{c}))
}

// askSources is withSources within callTimeout.
func (a *app) askSources(ctx context.Context, f func(context.Context, sourceDesk) error) error {
	return a.withSources(ctx, func(ctx context.Context, d sourceDesk) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx, d)
	})
}

// remoteSources are those that a server knows.
type remoteSources struct{ c *client.Client }

// Declare sends them one by one, because a server tells only how many of all are new.
func (r remoteSources) Declare(ctx context.Context, sources []monitor.Declaration) ([]bool, error) {
	out := make([]bool, len(sources))
	for i, d := range sources {
		n, err := r.c.Declare(ctx, client.Declaration{Event: d.Event, Source: d.Source, Labels: d.Labels})
		if err != nil {
			return nil, heard(err)
		}
		out[i] = n > 0
	}
	return out, nil
}

func (r remoteSources) Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
	ask := client.SourceQuery{Event: q.Event, Source: q.Source, State: string(q.State), Label: q.Label, Value: q.Value, Limit: q.Limit}
	if q.AfterEvent != "" {
		ask.After = &client.SourceCursor{Event: q.AfterEvent, Source: q.AfterSource}
	}
	sources, _, err := r.c.Sources(ctx, ask)
	out := make([]monitor.SourceRecord, len(sources))
	for i, s := range sources {
		out[i] = sourceRecord(s)
	}
	return out, heard(err)
}

func sourceRecord(s client.Source) monitor.SourceRecord {
	out := monitor.SourceRecord{
		Event: s.Event, Source: s.Source, Labels: s.Labels, Declared: s.Declared, State: monitor.State(s.State), Running: s.Running,
		Last: orZero(s.Last), Beats: s.Beats, Sent: orZero(s.Sent), Seq: s.Seq, Code: s.Code, Path: s.Path,
		Left: math.MaxInt64, Alarm: s.Alarm, Reason: monitor.Reason(s.Reason), Since: orZero(s.Since), Until: orZero(s.Until), Note: s.Note,
	}
	if s.QuietMS != nil {
		out.Quiet = millis(*s.QuietMS)
	}
	if s.LeftMS != nil {
		out.Left = millis(*s.LeftMS)
	}
	for _, beat := range s.Recent {
		out.Recent = append(out.Recent, beat == '1')
	}
	return out
}

func (r remoteSources) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	if q.ID != "" {
		al, err := r.c.Alarm(ctx, q.ID)
		if err := heard(err); errors.Is(err, monitor.ErrNoAlarm) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return []monitor.Alarm{alarmRecord(al)}, nil
	}
	alarms, err := r.c.Alarms(ctx, client.AlarmQuery{
		Event: q.Event, Source: q.Source, Standing: q.Standing, Before: q.Before, BeforeID: q.BeforeID, Limit: q.Limit,
	})
	out := make([]monitor.Alarm, len(alarms))
	for i, al := range alarms {
		out[i] = alarmRecord(al)
	}
	return out, heard(err)
}

func alarmRecord(al client.Alarm) monitor.Alarm {
	return monitor.Alarm{
		ID: al.ID, Event: al.Event, Source: al.Source, Group: al.Group, Members: al.Members, Labels: al.Labels, Reason: monitor.Reason(al.Reason),
		Started: al.Started, Raised: al.Raised, Ended: orZero(al.Ended), End: monitor.Turn(al.End), Acknowledged: al.Acknowledged,
	}
}

func (r remoteSources) Act(ctx context.Context, a monitor.Action) error {
	var err error
	switch {
	case a.Verb == monitor.Acknowledge:
		err = r.c.Acknowledge(ctx, a.Alarm, a.Who, a.Note)
	case a.Verb == monitor.Pause && a.Source == "":
		err = r.c.PauseEvent(ctx, a.Event, a.Who, a.Note)
	case a.Verb == monitor.Unpause && a.Source == "":
		err = r.c.ResumeEvent(ctx, a.Event, a.Who, a.Note)
	case a.Verb == monitor.Pause:
		err = r.c.Pause(ctx, a.Event, a.Source, a.For, a.Who, a.Note)
	case a.Verb == monitor.Unpause:
		err = r.c.Resume(ctx, a.Event, a.Source, a.Who, a.Note)
	case a.Verb == monitor.PutAway:
		err = r.c.Retire(ctx, a.Event, a.Source, a.Who, a.Note)
	default:
		err = fmt.Errorf("%w: a server does not know %q", lease.ErrInvalid, a.Verb)
	}
	return heard(err)
}
