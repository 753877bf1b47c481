package sink

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
)

func (*LogConfig) name() string { return "log" }

func (c *LogConfig) validate() error {
	if c.Logger == nil {
		return errors.New("it needs a logger")
	}
	return nil
}

func (c *LogConfig) open(sink string) (receiver, error) {
	to := c.Logger.Handler().WithAttrs([]slog.Attr{slog.String("sink", sink)})
	return receiver{deliver: func(ctx context.Context, a alarm) dispatch.Answer {
		// To the handler itself, which says whether it could, and whatever level is enabled: an alarm always is.
		if err := to.Handle(ctx, logRecord(a)); err != nil {
			return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "the log failed: " + err.Error(), RequestEnded: true}
		}
		return dispatch.Answer{Outcome: dispatch.Done}
	}}, nil
}

func logRecord(a alarm) slog.Record {
	level, what := slog.LevelWarn, "alarm raised"
	if a.m.Status == monitor.Abated {
		level, what = slog.LevelInfo, "alarm ended"
	}
	r := slog.NewRecord(time.Now(), level, what, 0)
	if a.formatted {
		r.AddAttrs(slog.String("control_loop", string(a.Payload)))
		return r
	}
	r.AddAttrs(slog.String("request_id", a.m.RequestID), slog.String("event", a.m.Event))
	if a.m.Source != "" {
		r.AddAttrs(slog.String("source", a.m.Source))
	} else {
		r.AddAttrs(slog.String("group_by", a.m.GroupBy), slog.String("group", a.m.Group),
			slog.Int("count", count(a.m)), slog.String("members", members(a.m)))
	}
	r.AddAttrs(slog.String("reason", string(a.m.Reason)), slog.String("severity", a.m.Severity), slog.Time("started", a.m.Started))
	if a.m.Reminder > 0 {
		r.AddAttrs(slog.Int("reminder", a.m.Reminder))
	}
	if a.m.Ended != nil {
		r.AddAttrs(slog.String("end", string(a.m.End)), slog.Time("ended", *a.m.Ended))
	}
	return r
}
