package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/monitor"
)

// row of a check as the database takes it. What statements read often of its
// configuration has columns.
type checkRow struct {
	Name        string          `json:"name"`
	Config      json.RawMessage `json:"config"`
	Paused      bool            `json:"paused"`
	Schedule    string          `json:"schedule"`
	MaxRun      int64           `json:"max_run"`
	Fixed       bool            `json:"fixed"`
	SenderClock bool            `json:"sender_clock"`
	Every       int64           `json:"every"`
	Patience    int64           `json:"patience"`
	Flaps       int             `json:"flaps"`
	FlapWindow  int64           `json:"flap_window"`
}

func newCheckRow(e monitor.Check) (checkRow, error) {
	e = e.WithDefaults()
	config, err := e.MarshalStored()
	every := e.Interval.Microseconds()
	return checkRow{
		Name: e.Name, Config: config, Paused: e.Paused, Schedule: e.Schedule, MaxRun: e.MaxRun.Microseconds(), Fixed: e.Fixed,
		SenderClock: e.SenderClock, Every: every, Patience: every*int64(e.Missed) + e.Grace.Microseconds(),
		Flaps: e.Flaps, FlapWindow: e.FlapWindow.Microseconds(),
	}, err
}

// Configure implements [monitor.Admin].
func (m *monitors) Configure(ctx context.Context, c monitor.Configuration) (out monitor.ConfigurationChanges, err error) {
	events := make([]checkRow, len(c.Checks))
	for i, e := range c.Checks {
		if events[i], err = newCheckRow(e); err != nil {
			return out, fmt.Errorf("configuring the monitor: %w", err)
		}
	}
	config, err := json.Marshal(events)
	if err != nil {
		return out, fmt.Errorf("configuring the monitor: %w", err)
	}
	declared, _ := distinct(c.Declared)
	names, sources, labels, err := declarationArgs(declared)
	if err != nil {
		return out, fmt.Errorf("configuring the monitor: %w", err)
	}
	var missing *string
	var count, generation *int64
	err = m.db.rowReadCommitted(ctx, `SELECT missing, added, changed, removed, declared, generation
		FROM {{rules}}.monitor_configure($1, $2, $3, $4, $5, $6, $7, $8)`,
		func(r pgx.Row) error {
			return r.Scan(&missing, &out.Added, &out.Changed, &out.Removed, &count, &generation)
		}, m.latest.Load(), string(config), c.Keep, clean(c.Origin), names, sources, labels, lockTimeout{})
	switch {
	case err != nil:
		return monitor.ConfigurationChanges{}, fmt.Errorf("configuring the monitor: %w", err)
	case missing != nil:
		return monitor.ConfigurationChanges{}, fmt.Errorf("sources are declared for %q: %w", *missing, monitor.ErrNoCheck)
	}
	out.Declared, out.Generation = int(*count), *generation
	for _, list := range []*[]string{&out.Added, &out.Changed, &out.Removed} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	return out, nil
}

// distinct leaves the last declaration of each source, at the place of the first.
func distinct(sources []monitor.Declaration) (out []monitor.Declaration, places []int) {
	at := make(map[monitor.SourceRef]int, len(sources))
	for i, d := range sources {
		ref := monitor.SourceRef{Check: d.Check, Source: d.Source}
		n, twice := at[ref]
		if twice {
			out[n] = d
			continue
		}
		at[ref] = len(out)
		out, places = append(out, d), append(places, i)
	}
	return out, places
}

func declarationArgs(sources []monitor.Declaration) (events, names, labels []string, err error) {
	events, names, labels = make([]string, len(sources)), make([]string, len(sources)), make([]string, len(sources))
	for i, d := range sources {
		text := []byte("{}")
		if len(d.Labels) > 0 {
			if text, err = json.Marshal(d.Labels); err != nil {
				return nil, nil, nil, err
			}
		}
		events[i], names[i], labels[i] = d.Check, d.Source, string(text)
	}
	return events, names, labels, nil
}

// RejectConfiguration implements [monitor.Admin].
func (m *monitors) RejectConfiguration(ctx context.Context, origin, reason string) error {
	text := clean(strings.TrimPrefix(origin+": "+reason, ": "))
	err := m.db.rowReadCommitted(ctx, "UPDATE {{schema}}.monitor_setting SET error = $1 RETURNING true", func(r pgx.Row) error { return r.Scan(nil) }, text)
	return during(err, "recording that a configuration was refused")
}

// Declare implements [monitor.Admin].
func (m *monitors) Declare(ctx context.Context, sources []monitor.Declaration) ([]bool, error) {
	out := make([]bool, len(sources))
	declared, places := distinct(sources)
	events, names, labels, err := declarationArgs(declared)
	if err != nil {
		return nil, fmt.Errorf("declaring %d sources: %w", len(sources), err)
	}
	if len(declared) == 0 {
		return out, nil
	}
	var missing *string
	var fresh []int64
	err = m.db.rowReadCommitted(ctx, "SELECT missing, fresh FROM {{rules}}.monitor_declare($1, $2, $3, $4, $5)",
		func(r pgx.Row) error { return r.Scan(&missing, &fresh) }, m.latest.Load(), events, names, labels, lockTimeout{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("declaring %d sources: %w", len(sources), err)
	case missing != nil:
		return nil, fmt.Errorf("%q: %w", *missing, monitor.ErrNoCheck)
	}
	for _, i := range fresh {
		out[places[i-1]] = true
	}
	return out, nil
}
