package monitor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// Validated returns a store that refuses what is not acceptable before the store sees it.
func Validated(s Store) Store { return validatedStore{s} }

type validatedStore struct{ Store }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
}

func atMost(most, n int, what string) error {
	if n > most {
		return invalid("%d %s at once; at most %d are allowed", n, what, most)
	}
	return nil
}

// within is a limit of what a call returns.
func within(limit int) int { return min(max(limit, 0), MaxSources) }

func (s validatedStore) ResolveSources(ctx context.Context, refs []SourceRef) ([]ResolvedSource, error) {
	if err := atMost(MaxSources, len(refs), "sources"); err != nil {
		return nil, err
	}
	return s.Store.ResolveSources(ctx, refs)
}

func (s validatedStore) RecordHeartbeats(ctx context.Context, d HeartbeatBatch) (BatchResult, error) {
	if err := atMost(MaxBeats, len(d.Beats), "heartbeats"); err != nil {
		return BatchResult{}, err
	}
	for i := range d.Beats {
		if path := d.Beats[i].Path; path < 0 || path >= len(d.Probes) {
			return BatchResult{}, invalid("a heartbeat came by path %d of %d", path, len(d.Probes))
		}
	}
	return s.Store.RecordHeartbeats(ctx, d)
}

func (s validatedStore) KeepReport(ctx context.Context, of SourceRef, r Report) error {
	r.Body = r.Body[:min(len(r.Body), MaxReport)]
	return s.Store.KeepReport(ctx, of, r)
}

func (s validatedStore) DueSources(ctx context.Context, partitions []int, limit int) (Scan, error) {
	for _, p := range partitions {
		if p < 0 || p >= Partitions {
			return Scan{}, invalid("partition %d; use 0 to %d", p, Partitions-1)
		}
	}
	return s.Store.DueSources(ctx, partitions, within(limit))
}

func (s validatedStore) ApplyChanges(ctx context.Context, changes []SourceChange) ([]bool, error) {
	if err := atMost(MaxSources, len(changes), "changes"); err != nil {
		return nil, err
	}
	for i := range changes {
		if err := changes[i].validate(); err != nil {
			return nil, err
		}
	}
	return s.Store.ApplyChanges(ctx, changes)
}

func (c *SourceChange) validate() error {
	switch c.Transition {
	case Onset:
		if c.Alarm == "" || c.At.IsZero() {
			return invalid("an ONSET of source %d without the id of its alarm, or its time", c.ID)
		}
	case NoTransition, Abated, Resume, Return, Retire, Forget:
	default:
		return invalid("%q is not a transition of source %d", c.Transition, c.ID)
	}
	return validateNotifications(c.Notifications)
}

func validateNotifications(all []Notification) error {
	for i := range all {
		if err := all[i].Message(cmp.Or(all[i].Sink, "all")).Validate(); err != nil { // "all" could be a name
			return err
		}
	}
	return nil
}

// Message is the notification as a message to a sink.
func (n *Notification) Message(sink string) dispatch.Message {
	return dispatch.Message{Queue: SinkQueue(sink), Key: n.Key, ID: n.ID, Payload: n.Payload, ContentType: "application/json"}
}

func (s validatedStore) Sweep(ctx context.Context, keep time.Duration, limit int) (Scan, error) {
	return s.Store.Sweep(ctx, keep, within(limit))
}

func (s validatedStore) ReportGroup(ctx context.Context, r GroupReport) (bool, error) {
	if err := r.validate(); err != nil {
		return false, err
	}
	return s.Store.ReportGroup(ctx, r)
}

func (r *GroupReport) validate() error {
	if err := atMost(MaxSources, len(r.Members), "members"); err != nil {
		return err
	}
	// A member that was listed twice could be counted twice, and its group would never end.
	members := slices.Sorted(slices.Values(r.Members))
	switch {
	case len(slices.Compact(members)) < len(r.Members):
		return invalid("a report of group %q lists a member twice", r.Group)
	case r.End == "" && len(r.Members) == 0:
		return invalid("a report of group %q without members", r.Group)
	case r.End != "" && (r.Alarm == "" || len(r.Members) > 0):
		return invalid("the end of group %q without its alarm, or with members", r.Group)
	case r.End != "" && r.End != Abated && r.End != Retire && r.End != Forget:
		return invalid("group %q cannot end by %q", r.Group, r.End)
	}
	return validateNotifications(r.Notifications)
}

func (s validatedStore) Parents(ctx context.Context, of []SourceRef) ([]Parent, error) {
	if err := atMost(MaxSources, len(of), "sources"); err != nil {
		return nil, err
	}
	return s.Store.Parents(ctx, of)
}

func (s validatedStore) Remind(ctx context.Context, r Reminder) (bool, error) {
	if err := validateNotifications(r.Notifications); err != nil {
		return false, err
	}
	return s.Store.Remind(ctx, r)
}

func (s validatedStore) Configure(ctx context.Context, c Configuration) (ConfigurationChanges, error) {
	if err := c.Validate(); err != nil {
		return ConfigurationChanges{}, err
	}
	return s.Store.Configure(ctx, c)
}

func (s validatedStore) Declare(ctx context.Context, sources []Declaration) ([]bool, error) {
	if err := atMost(MaxSources, len(sources), "sources"); err != nil {
		return nil, err
	}
	for _, d := range sources {
		if err := d.Validate(); err != nil {
			return nil, err
		}
	}
	return s.Store.Declare(ctx, sources)
}

func (s validatedStore) ApplyAction(ctx context.Context, a Action) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return s.Store.ApplyAction(ctx, a)
}

func (s validatedStore) RegisterMember(ctx context.Context, m Member) error {
	for _, sink := range m.Sinks {
		if err := ValidateSink(sink); err != nil {
			return err
		}
	}
	return s.Store.RegisterMember(ctx, m)
}
