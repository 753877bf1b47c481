package sink

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
)

// logged is told by a line of a log.
type logged struct{ handler slog.Handler }

func (*LogConfig) name() string { return "log" }

func (c *LogConfig) validate() error {
	if c.Logger == nil {
		return errors.New("it needs a logger")
	}
	return nil
}

func (c *LogConfig) open(sink string) (receiver, error) {
	return &logged{handler: c.Logger.Handler().WithAttrs([]slog.Attr{slog.String("sink", sink)})}, nil
}

func (*logged) address() string    { return "" }
func (*logged) secrets() []string  { return nil }
func (*logged) deduplicates() bool { return false }

// deliver writes to the handler itself, which says whether it could, and asks nobody
// which levels are wanted: an alarm always is.
func (l *logged) deliver(ctx context.Context, a alarm) dispatch.Answer {
	level, what := slog.LevelWarn, "alarm raised"
	if a.m.Status == monitor.Abated {
		level, what = slog.LevelInfo, "alarm ended"
	}
	r := slog.NewRecord(time.Now(), level, what, 0)
	r.AddAttrs(slog.String("request_id", a.m.RequestID), slog.String("event", a.m.Event))
	if a.m.Source != "" {
		r.AddAttrs(slog.String("source", a.m.Source))
	} else {
		r.AddAttrs(slog.String("group_by", a.m.GroupBy), slog.String("group", a.m.Group),
			slog.Int("count", count(a.m)), slog.String("members", members(a.m)))
	}
	r.AddAttrs(slog.String("reason", string(a.m.Reason)), slog.String("severity", a.m.Severity), slog.Time("started", a.m.Started))
	if a.m.Ended != nil {
		r.AddAttrs(slog.String("end", string(a.m.End)), slog.Time("ended", *a.m.Ended))
	}
	if err := l.handler.Handle(ctx, r); err != nil {
		return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "the log failed: " + err.Error(), RequestEnded: true}
	}
	return dispatch.Answer{Outcome: dispatch.Done}
}
