// Package outagelog is a [slog.Handler] that turns the many failures of one store outage into few lines: one when it
// starts, one a minute with how many there were, one when the store answers again.
//
// Each part of a process notices an outage by itself, every interval. A record at WARN or above counts as a part of it when one of
// its attributes is an error that wraps lease.ErrUnavailable or lease.ErrUnknown. A record whose message is [lease.StoreAnswers] ends
// it, and is dropped where there is none. Not every part that fails logs that message: an outage of which nobody has said anything
// for two minutes has ended, too, and the next failure is the first of another one. Every other record passes unchanged.
package outagelog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

const (
	reportEvery = time.Minute
	// quiet is after how long without a failure the next one is of another outage: while one goes on, the renewals of a session
	// and the reads of a server fail, and say so every minute at least.
	quiet = 2 * reportEvery
	// maxReason bounds the text of an error: drivers list every address that they tried.
	maxReason = 200
)

// New returns a handler in front of another one. One is enough for a process.
func New(next slog.Handler) slog.Handler {
	return handler{next: next, outage: &outage{}}
}

type handler struct {
	next   slog.Handler
	outage *outage // shared by all handlers that were derived from one
}

// outage is what is known of the present outage of the store.
type outage struct {
	mu       sync.Mutex
	since    time.Time // zero: there is none
	reported time.Time
	failed   time.Time // the last failure
	failures int       // since the last line
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	// lease.StoreAnswers must be seen at any level.
	return h.next.Enabled(ctx, level) || level == slog.LevelInfo
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.next.WithAttrs(attrs), h.outage}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.next.WithGroup(name), h.outage}
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == lease.StoreAnswers {
		return h.end(ctx, r)
	}
	if err := storeError(r); err != nil && r.Level >= slog.LevelWarn {
		return h.failed(ctx, r, err)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// storeError is the error of the store among a record's attributes.
func storeError(r slog.Record) (found error) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if ok && (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown)) {
			found = err
		}
		return found == nil
	})
	return found
}

func (h handler) failed(ctx context.Context, r slog.Record, err error) error {
	line := slog.NewRecord(r.Time, slog.LevelWarn, "the store does not answer", r.PC)
	h.outage.mu.Lock()
	switch o := h.outage; {
	case o.since.IsZero(), r.Time.Sub(o.failed) >= quiet:
		o.since, o.reported, o.failed, o.failures = r.Time, r.Time, r.Time, 0
	case r.Time.Sub(o.reported) >= reportEvery:
		line.AddAttrs(slog.Duration("for", r.Time.Sub(o.since).Round(time.Second)), slog.Int("failures", o.failures+1))
		o.reported, o.failed, o.failures = r.Time, r.Time, 0
	default:
		o.failed = r.Time
		o.failures++
		o.mu.Unlock()
		return nil
	}
	h.outage.mu.Unlock()
	line.AddAttrs(slog.String("noticed_as", r.Message), slog.String("err", short(err.Error())))
	return h.next.Handle(ctx, line)
}

func (h handler) end(ctx context.Context, r slog.Record) error {
	o := h.outage
	o.mu.Lock()
	since := o.since
	o.since = time.Time{}
	o.mu.Unlock()
	if since.IsZero() {
		return nil
	}
	line := slog.NewRecord(r.Time, slog.LevelWarn, r.Message, r.PC)
	line.AddAttrs(slog.Duration("after", r.Time.Sub(since).Round(time.Millisecond)))
	return h.next.Handle(ctx, line)
}

// short cuts an error to one line that can be read.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}
