package checks

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Configure implements [monitor.Admin].
func (r *Memory) Configure(ctx context.Context, c monitor.Configuration) (out monitor.ConfigurationChanges, err error) {
	err = r.atomically(ctx, func(s step) error {
		wanted := map[string]bool{}
		for _, e := range c.Checks {
			wanted[e.Name] = true
		}
		for _, d := range c.Declared {
			if !wanted[d.Check] && s.configuredCheck(d.Check) == nil {
				return fmt.Errorf("%q: %w", d.Check, monitor.ErrNoCheck)
			}
		}
		for _, e := range c.Checks {
			s.configure(e.WithDefaults(), &out)
		}
		for name, e := range s.checks {
			if !c.Keep && !wanted[name] && !e.Removed {
				e.Removed = true
				e.Rev++
				out.Removed = append(out.Removed, name)
			}
		}
		for _, d := range c.Declared {
			if s.declare(d) {
				out.Declared++
			}
		}
		for _, names := range [][]string{out.Added, out.Changed, out.Removed} {
			slices.Sort(names)
			if len(names) > 0 {
				s.generation++
			}
		}
		s.configured, s.origin, s.refused = s.wall, c.Origin, ""
		out.Generation = s.generation
		return nil
	})
	return out, err
}

// configure adds or changes one check.
func (s step) configure(to monitor.Check, out *monitor.ConfigurationChanges) {
	e := s.checks[to.Name]
	switch {
	case e == nil:
		e = &check{reschedule: map[int64]bool{}, expectedFrom: s.now, configured: to}
		e.Check, e.ID, e.Rev = to, s.newID(), 1
		s.checks[to.Name] = e
		out.Added = append(out.Added, to.Name)
		return
	case e.Removed:
		e.Removed = false
		e.configured.Paused = to.Paused
		e.Paused, e.expectedFrom = to.Paused, s.now
		out.Added = append(out.Added, to.Name)
	case reflect.DeepEqual(e.configured, to):
		return
	default:
		out.Changed = append(out.Changed, to.Name)
	}
	old, paused := e.configured, e.Paused
	if to.Paused != old.Paused {
		paused = to.Paused
	}
	if to.IsStricterThan(&old) || e.Paused && !paused {
		e.expectedFrom = s.now
	}
	e.configured, e.Check = to, to
	e.Paused = paused
	s.reevaluateSources(e)
}

// reevaluateSources makes instances reload a check and evaluate its sources again.
func (s step) reevaluateSources(e *check) {
	e.Rev++
	for id, n := range s.sources {
		if n.check == e {
			e.reschedule[id] = true
		}
	}
}

// RejectConfiguration implements [monitor.Admin].
func (r *Memory) RejectConfiguration(ctx context.Context, origin, reason string) error {
	return r.atomically(ctx, func(s step) error {
		s.refused = strings.TrimPrefix(origin+": "+reason, ": ")
		return nil
	})
}

// Declare implements [monitor.Admin].
func (r *Memory) Declare(ctx context.Context, sources []monitor.Declaration) ([]bool, error) {
	added := make([]bool, len(sources))
	err := r.atomically(ctx, func(s step) error {
		for _, d := range sources {
			if s.configuredCheck(d.Check) == nil {
				return fmt.Errorf("%q: %w", d.Check, monitor.ErrNoCheck)
			}
		}
		for i, d := range sources {
			added[i] = s.declare(d)
		}
		return nil
	})
	return added, err
}

func (s step) declare(d monitor.Declaration) (added bool) {
	n := s.names[monitor.SourceRef{Check: d.Check, Source: d.Source}]
	if n == nil {
		n, added = s.addSource(s.checks[d.Check], d.Source), true
	}
	if n.check.MovesFromParent(d.Source, n.labels, d.Labels) {
		n.expectedFrom = s.now
	}
	n.declared, n.labels = true, maps.Clone(d.Labels)
	return added
}

// ApplyAction implements [monitor.Admin].
func (r *Memory) ApplyAction(ctx context.Context, a monitor.Action) error {
	return r.atomically(ctx, func(s step) error {
		subject, err := s.applyAction(a)
		if err == nil {
			s.recordEvent(subject, a.HistoryReason(), 0)
		}
		return err
	})
}

func (s step) applyAction(a monitor.Action) (subject string, err error) {
	switch a.Type {
	case monitor.ActionPause, monitor.ActionResume, monitor.ActionRetire, monitor.ActionRemove:
		e := s.configuredCheck(a.Check)
		if e == nil {
			return "", fmt.Errorf("%q: %w", a.Check, monitor.ErrNoCheck)
		}
		if a.Source == "" {
			s.applyToCheck(e, a)
			return a.Check, nil
		}
		n := s.names[monitor.SourceRef{Check: a.Check, Source: a.Source}]
		if n == nil {
			return "", fmt.Errorf("%s/%s: %w", a.Check, a.Source, monitor.ErrNoSource)
		}
		if a.Type == monitor.ActionRemove && n.alarm != nil {
			return "", monitor.AlarmOpenError(a.Check, a.Source)
		}
		s.applyToSource(n, a)
		return a.Check + "/" + a.Source, nil
	case monitor.ActionAcknowledge:
		alarm := s.alarms[a.Alarm]
		if alarm == nil {
			return "", fmt.Errorf("%q: %w", a.Alarm, monitor.ErrNoAlarm)
		}
		alarm.Acknowledged = a.Actor()
		return a.Alarm, nil
	case monitor.ActionRemoveSink:
		if !s.sinks[a.Source] {
			return "", invalid("no sink %q", a.Source)
		}
		delete(s.sinks, a.Source)
		s.generation++
		return a.Source, nil
	case monitor.ActionRemovePath:
		p := s.paths[a.Source]
		if p == nil {
			return "", invalid("no path %q", a.Source)
		}
		p.removed = true
		delete(s.paths, a.Source)
		return a.Source, nil
	}
	return "", invalid("%q is not an action", a.Type)
}

func (s step) applyToCheck(e *check, a monitor.Action) {
	if a.Type == monitor.ActionRemove {
		e.Removed = true
		e.Rev++
		s.generation++
		return
	}
	pause := a.Type == monitor.ActionPause
	if e.Paused == pause {
		return
	}
	e.Paused = pause
	if !pause {
		e.expectedFrom = s.now
	}
	s.reevaluateSources(e)
	s.generation++
}

func (s step) applyToSource(n *source, a monitor.Action) {
	switch a.Type {
	case monitor.ActionPause:
		if n.state == monitor.Retired {
			return
		}
		n.state, n.pausedUntil, n.due, n.note = monitor.Paused, 0, monitor.Never, a.Note
		if a.For > 0 {
			n.pausedUntil = s.now.Add(a.For)
			n.due = n.pausedUntil
		}
		if n.retireRequested {
			n.due = s.now // nobody would look at it
		}
	case monitor.ActionResume:
		if n.state != monitor.Paused {
			return
		}
		n.state, n.pausedUntil, n.expectedFrom, n.due, n.note = monitor.Up, 0, s.now, s.now, ""
		if n.alarm != nil {
			n.state = monitor.Down
		}
	case monitor.ActionRemove:
		s.forgetSource(n)
		return
	case monitor.ActionRetire:
		if n.state == monitor.Retired {
			return
		}
		n.retireRequested, n.due, n.note = true, s.now, a.Note
	}
	n.rev++
}

// RegisterMember implements [monitor.Admin].
func (r *Memory) RegisterMember(ctx context.Context, m monitor.Member) error {
	lives, err := r.liveSessions(ctx)
	if err != nil {
		return err
	}
	if !lives(m.Session) {
		return fmt.Errorf("%q: %w", m.Session, lease.ErrLapsed)
	}
	return r.atomically(ctx, func(s step) error {
		m.Sinks = slices.Clone(m.Sinks)
		s.members[m.Session] = m
		for _, sink := range m.Sinks {
			if !s.sinks[sink] {
				if s.o.Queues != nil {
					if err := s.o.Queues.CreateQueue(ctx, monitor.SinkQueue(sink)); err != nil {
						return err
					}
				}
				s.sinks[sink] = true
				s.generation++
			}
		}
		return nil
	})
}

// liveSessions returns a test of whether a session is live.
func (r *Memory) liveSessions(ctx context.Context) (func(session string) bool, error) {
	if r.o.Sessions == nil {
		return func(string) bool { return true }, nil
	}
	sessions, err := r.o.Sessions.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	return func(id string) bool {
		return slices.ContainsFunc(sessions, func(s lease.Session) bool { return s.ID == id })
	}, nil
}
