package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

func (p *monitorPart) listSources(r *http.Request) (out apitype.Sources, err error) {
	params := queryOf(r)
	q := monitor.SourceQuery{
		Check: params.name("check", "event"), Source: params.name("source"), State: monitor.State(params.values.Get("state")),
		AfterCheck: params.name("after_event"), AfterSource: params.name("after_source"), Limit: params.limit(monitor.MaxPage),
	}
	if known := []monitor.State{monitor.Up, monitor.Down, monitor.Paused, monitor.Retired}; q.State != "" && !slices.Contains(known, q.State) {
		params.refuse("state=%.50q: use one of %v", q.State, known)
	}
	if after := params.cursor(2); after != nil {
		q.AfterCheck, q.AfterSource = after[0], after[1]
	}
	if q.AfterSource != "" && q.AfterCheck == "" {
		if q.AfterCheck = q.Check; q.AfterCheck == "" {
			params.refuse("after_source needs after_event")
		}
	}
	label := params.name("label")
	var valued bool
	if q.Label, q.Value, valued = strings.Cut(label, "="); label != "" && (!valued || q.Label == "") {
		params.refuse("label=%.50q: use label=NAME=VALUE", label)
	}
	part := params.name("contains")
	if params.err != nil {
		return out, params.err
	}
	return p.search(r.Context(), q, strings.ToLower(part))
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

func (p *monitorPart) getSource(r *http.Request) (out apitype.SourceAlarms, err error) {
	s, err := p.source(r)
	if err != nil {
		return out, err
	}
	alarms, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{Check: s.Check, Source: s.Source, Limit: maxShownAlarms})
	if err != nil {
		return out, err
	}
	report, err := p.table.Report(r.Context(), monitor.SourceRef{Check: s.Check, Source: s.Source})
	if err != nil {
		return out, err
	}
	links, err := p.links(r.Context())
	return apitype.SourceAlarms{
		Source: viewSource(s), Report: viewReport(report), Badge: links.Badge(monitor.SourceRef{Check: s.Check, Source: s.Source}), Alarms: views(alarms, viewAlarm),
	}, err
}
