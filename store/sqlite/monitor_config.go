package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	addCheck = `
INSERT INTO understudy_monitor_event (name, config, paused, flaps, window_us, every_us, base_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`

	// setCheck has all sources of the check evaluated again.
	setCheck = `
UPDATE understudy_monitor_event
SET config = ?2, paused = ?3, flaps = ?4, window_us = ?5, every_us = ?6, base_us = ?7, removed = 0, rev = rev + 1, spread = ''
WHERE id = ?1`

	removeCheck = "UPDATE understudy_monitor_event SET removed = 1, rev = rev + 1, spread = NULL WHERE id = ?1"

	recordConfigured = "UPDATE understudy_monitor SET configured_us = ?1, origin = ?2, error = ''"
	recordRefused    = "UPDATE understudy_monitor SET error = ?1"

	countDeclared = "SELECT count(*) FROM understudy_monitor_source WHERE event = ?1 AND name = ?2 AND labels = ?3 AND declared = 1"

	readLabels = "SELECT labels FROM understudy_monitor_source WHERE id = ?1"

	relabel = "UPDATE understudy_monitor_source SET labels = ?2, declared = 1, base_us = coalesce(?3, base_us) WHERE id = ?1"
)

// Configure implements [monitor.Admin].
func (m monitors) Configure(ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
	var out monitor.ConfigurationChanges
	declared, err := m.undeclared(ctx, c.Declared)
	if err != nil {
		return monitor.ConfigurationChanges{}, err
	}
	err = m.write(ctx, "configuring the monitor", func(t *monitorTxn) error {
		out = monitor.ConfigurationChanges{}
		if err := t.configure(c, &out); err != nil {
			return err
		}
		checks := checksOf(t)
		for i := range declared {
			added, err := t.declare(checks, &declared[i])
			if err != nil {
				return err
			}
			if added {
				out.Declared++
			}
		}
		if len(out.Added)+len(out.Changed)+len(out.Removed) > 0 {
			if err := t.changed(); err != nil {
				return err
			}
		}
		out.Generation = t.generation
		_, err := t.exec(recordConfigured, t.wall, c.Origin)
		return err
	})
	if err != nil {
		return monitor.ConfigurationChanges{}, err
	}
	return out, nil
}

// undeclared leaves out what is declared already, so that a configuration that is
// applied again and again keeps nobody waiting.
func (m monitors) undeclared(ctx context.Context, all []monitor.Declaration) (out []monitor.Declaration, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	err = m.read(ctx, "reading what is declared", func(t *monitorTxn) error {
		out = nil
		checks := checksOf(t)
		for _, d := range all {
			e, err := checks.named(d.Check)
			if err != nil {
				return err
			}
			labels, err := labelsIn(d.Labels)
			if err != nil {
				return err
			}
			known := 0
			if e != nil {
				if err := t.one(countDeclared, []any{e.ID, d.Source, labels}, &known); err != nil {
					return err
				}
			}
			if known == 0 {
				out = append(out, d)
			}
		}
		return nil
	})
	return out, err
}

// configure applies checks.
func (t *monitorTxn) configure(c monitor.Configuration, out *monitor.ConfigurationChanges) error {
	all, err := list(t.call, allChecks, nil, func(scan scanner) (*checkRow, error) { return scanCheck(scan) })
	if err != nil {
		return err
	}
	known := map[string]*checkRow{}
	for _, e := range all {
		known[e.Name] = e
	}
	for _, e := range c.Checks {
		if err := t.put(known[e.Name], e.WithDefaults(), out); err != nil {
			return err
		}
		delete(known, e.Name)
	}
	for name, old := range known {
		if c.Keep || old.Removed {
			continue
		}
		if _, err := t.exec(removeCheck, old.ID); err != nil {
			return err
		}
		out.Removed = append(out.Removed, name)
	}
	slices.Sort(out.Added)
	slices.Sort(out.Changed)
	slices.Sort(out.Removed)
	return nil
}

// put adds or changes a check. What an operator paused stays paused until the configured pause changes.
func (t *monitorTxn) put(old *checkRow, e monitor.Check, out *monitor.ConfigurationChanges) error {
	config, err := e.MarshalStored()
	if err != nil {
		return err
	}
	every := e.SlotLength(t.wallTime()).Microseconds()
	if old == nil {
		out.Added = append(out.Added, e.Name)
		_, err := t.exec(addCheck, e.Name, string(config), e.Paused, e.Flaps, e.FlapWindow.Microseconds(), every, t.at)
		return err
	}
	before, err := old.configured.MarshalStored()
	if err != nil {
		return err
	}
	if !old.Removed && string(before) == string(config) {
		return nil
	}
	paused, base := old.Paused, old.base
	if e.Paused != old.configured.Paused || old.Removed {
		paused = e.Paused
	}
	if old.Removed || e.IsStricterThan(&old.configured) || old.Paused && !paused {
		base = t.at
	}
	if old.Removed {
		out.Added = append(out.Added, e.Name)
	} else {
		out.Changed = append(out.Changed, e.Name)
	}
	_, err = t.exec(setCheck, old.ID, string(config), paused, e.Flaps, e.FlapWindow.Microseconds(), every, base)
	return err
}

// declare makes a source known, or gives it its labels, and reports whether it is new.
func (t *monitorTxn) declare(checks *checkCache, d *monitor.Declaration) (added bool, err error) {
	e, err := checks.named(d.Check)
	if err != nil {
		return false, err
	}
	if e == nil {
		return false, fmt.Errorf("%q, for which source %q is declared: %w", d.Check, d.Source, monitor.ErrNoCheck)
	}
	labels, err := labelsIn(d.Labels)
	if err != nil {
		return false, err
	}
	id, added, err := t.add(e, d.Source, labels, true)
	if err == nil && !added {
		err = t.relabel(e, id, d, labels)
	}
	return added, err
}

// relabel gives a known source its labels, which may move it to another parent.
func (t *monitorTxn) relabel(e *checkRow, id int64, d *monitor.Declaration, labels string) error {
	var text string
	if err := t.one(readLabels, []any{id}, &text); err != nil {
		return err
	}
	before, err := labelsOf(text)
	if err != nil {
		return err
	}
	var from any // null leaves it as it is
	if e.MovesFromParent(d.Source, before, d.Labels) {
		from = t.at
	}
	_, err = t.exec(relabel, id, labels, from)
	return err
}

// RejectConfiguration implements [monitor.Admin].
func (m monitors) RejectConfiguration(ctx context.Context, origin, reason string) error {
	text := reason
	if origin != "" {
		text = origin + ": " + reason
	}
	return m.write(ctx, "recording a refused configuration", func(t *monitorTxn) error {
		_, err := t.exec(recordRefused, text)
		return err
	})
}

// Declare implements [monitor.Admin].
func (m monitors) Declare(ctx context.Context, sources []monitor.Declaration) ([]bool, error) {
	added := make([]bool, len(sources))
	err := m.write(ctx, "declaring sources", func(t *monitorTxn) (err error) {
		checks := checksOf(t)
		for i := range sources {
			if added[i], err = t.declare(checks, &sources[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}
