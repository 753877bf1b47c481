package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listSources(w http.ResponseWriter, r *http.Request) error {
	q := monitor.SourceQuery{}
	var err error
	if q.Check, err = eitherFilter(r, "check", "event"); err != nil {
		return err
	}
	for name, to := range map[string]*string{"source": &q.Source, "after_event": &q.AfterCheck, "after_source": &q.AfterSource} {
		if *to, err = filter(r, name); err != nil {
			return err
		}
	}
	if q.State, err = stateOf(r); err != nil {
		return err
	}
	after, err := afterCursor(r, 2)
	if err != nil {
		return err
	}
	if after != nil {
		q.AfterCheck, q.AfterSource = after[0], after[1]
	}
	if q.AfterSource != "" && q.AfterCheck == "" {
		if q.AfterCheck = q.Check; q.AfterCheck == "" {
			return fmt.Errorf("%w: after_source needs after_event", lease.ErrInvalid)
		}
	}
	label, err := filter(r, "label")
	if err != nil {
		return err
	}
	var valued bool
	if q.Label, q.Value, valued = strings.Cut(label, "="); label != "" && (!valued || q.Label == "") {
		return fmt.Errorf("%w: label=%.50q: use label=NAME=VALUE", lease.ErrInvalid, label)
	}
	part, err := filter(r, "contains")
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", 1, monitor.MaxPage, 100)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	page, err := p.search(r.Context(), q, strings.ToLower(part))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, page)
}

// search finds sources whose names contain a text in small letters. No index helps
// with that, so that one request reads maxSearched of them and leaves the rest to the next.
func (p *monitorPart) search(ctx context.Context, q monitor.SourceQuery, part string) (apitype.Sources, error) {
	limit, out := q.Limit, apitype.Sources{Sources: []apitype.Source{}}
	if part != "" {
		q.Limit = monitor.MaxPage
	}
	for range maxSearched / monitor.MaxPage {
		found, err := p.table.Sources(ctx, q)
		if err != nil {
			return out, err
		}
		for _, s := range found {
			if !strings.Contains(strings.ToLower(s.Source), part) {
				continue
			}
			out.Sources = append(out.Sources, viewSource(s))
			if len(out.Sources) == limit {
				out.Next = cursor(s.Check, s.Source)
				return out, nil
			}
		}
		if len(found) < q.Limit {
			return out, nil
		}
		last := found[len(found)-1]
		q.AfterCheck, q.AfterSource = last.Check, last.Source
	}
	out.Next = cursor(q.AfterCheck, q.AfterSource)
	return out, nil
}

func stateOf(r *http.Request) (monitor.State, error) {
	state := monitor.State(r.URL.Query().Get("state"))
	known := []monitor.State{monitor.Up, monitor.Down, monitor.Paused, monitor.Retired}
	if state != "" && !slices.Contains(known, state) {
		return "", fmt.Errorf("%w: state=%.50q: use one of %v", lease.ErrInvalid, state, known)
	}
	return state, nil
}

// source finds the one that the path names.
func (p *monitorPart) source(r *http.Request) (monitor.SourceRecord, error) {
	if err := checkNames(r); err != nil {
		return monitor.SourceRecord{}, err
	}
	check, name := r.PathValue("check"), r.PathValue("source")
	found, err := p.table.Sources(r.Context(), monitor.SourceQuery{Check: check, Source: name, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %.200q of check %.200q", monitor.ErrNoSource, name, check)
	}
	if err != nil {
		return monitor.SourceRecord{}, err
	}
	return found[0], nil
}

func (p *monitorPart) getSource(w http.ResponseWriter, r *http.Request) error {
	s, err := p.source(r)
	if err != nil {
		return err
	}
	alarms, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{Check: s.Check, Source: s.Source, Limit: maxShownAlarms})
	if err != nil {
		return err
	}
	out := apitype.SourceAlarms{Source: viewSource(s), Alarms: make([]apitype.Alarm, 0, len(alarms))}
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, viewAlarm(a))
	}
	return writeJSON(w, http.StatusOK, out)
}
