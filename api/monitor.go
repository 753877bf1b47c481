package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store"
)

// errNoMonitor: the store is one of those that cannot keep sources.
var errNoMonitor = errors.New("this server's store keeps no sources; SQLite and PostgreSQL do")

const (
	// monitorFresh is how old what is shown of the monitor may be, and
	// monitorScraped how old its metrics.
	monitorFresh   = time.Second
	monitorScraped = 5 * time.Second
	// maxConfiguration is the most bytes of a configuration.
	maxConfiguration = 8 << 20
	// maxShownAlarms is how many standing alarms the state lists, and alarms of a
	// source are shown with it.
	maxShownAlarms = 50
	// maxSearched is how many sources one request looks at that searches them.
	maxSearched = 10_000
)

// Monitor is what this process does for the monitor. Any of it may be missing.
type Monitor struct {
	Intake  *intake.HTTP
	Inlet   *monitor.Inlet
	Watcher *monitor.Watcher
	Routers []*intake.Router
	Letters *intake.Letters
}

// monitorPart is the part of the server that shows sources and alarms.
type monitorPart struct {
	table monitor.Table // nil when the store keeps none
	own   Monitor
	seen  *look[monitorSeen]
}

// monitorSeen is what a look at the monitor found.
type monitorSeen struct {
	view   MonitorView
	alarms []AlarmView // that stand, the newest first
}

func newMonitorPart(st store.Store, own *Monitor, running context.Context) *monitorPart {
	p := &monitorPart{}
	if m, ok := st.(store.Monitors); ok {
		p.table = m.Monitor()
	}
	if own != nil {
		p.own = *own
	}
	p.seen = &look[monitorSeen]{of: "the monitor", running: running, ask: p.read}
	return p
}

func (p *monitorPart) read(ctx context.Context) (out monitorSeen, err error) {
	overview, err := p.table.Overview(ctx)
	if err != nil {
		return out, err
	}
	out.view = ViewMonitor(overview)
	alarms, err := p.table.Alarms(ctx, monitor.AlarmQuery{Standing: true, Limit: maxShownAlarms})
	if err != nil {
		return out, err
	}
	for _, a := range alarms {
		out.alarms = append(out.alarms, ViewAlarm(a))
	}
	return out, nil
}

func (p *monitorPart) routes() []route {
	const one, event = "/v1/sources/{event}/{source}", "/v1/event-names/{event}"
	out := []route{
		{pattern: "GET /v1/monitor", handle: p.get},
		{pattern: "PUT /v1/monitor/configuration", handle: p.configure, body: maxConfiguration},
		{pattern: "GET /v1/monitor/letters", handle: p.letters},

		{pattern: "GET /v1/event-names", handle: p.listEvents},
		{pattern: "GET " + event, handle: p.getEvent},
		{pattern: "PUT " + event, handle: p.putEvent},
		{pattern: "POST " + event + "/pause", handle: p.act(monitor.Pause)},
		{pattern: "POST " + event + "/resume", handle: p.act(monitor.Unpause)},

		{pattern: "GET /v1/sources", handle: p.listSources},
		{pattern: "POST /v1/sources", handle: p.declare, body: maxConfiguration},
		{pattern: "GET " + one, handle: p.getSource},
		{pattern: "GET " + one + "/badge.svg", handle: p.badge},
		{pattern: "POST " + one + "/pause", handle: p.act(monitor.Pause)},
		{pattern: "POST " + one + "/resume", handle: p.act(monitor.Unpause)},
		{pattern: "POST " + one + "/retire", handle: p.act(monitor.PutAway)},

		{pattern: "GET /v1/alarms", handle: p.listAlarms},
		{pattern: "GET /v1/alarms/{alarm}", handle: p.getAlarm},
		{pattern: "POST /v1/alarms/{alarm}/acknowledge", handle: p.act(monitor.Acknowledge)},
	}
	for i := range out {
		out[i].handle = p.withTable(out[i].handle)
	}
	return append(out, p.intakeRoutes()...)
}

// intakeRoutes are where beats come in. They know their own callers: a ping key
// is no token.
func (p *monitorPart) intakeRoutes() (out []route) {
	if p.own.Intake == nil {
		return nil
	}
	for _, r := range p.own.Intake.Routes() {
		out = append(out, route{
			pattern: r.Method + " " + r.Pattern, open: true, keyed: true, scope: access.Ingest, body: r.Body,
			handle: func(w http.ResponseWriter, q *http.Request) error { r.Handler(w, withoutToken(q)); return nil },
		})
	}
	return out
}

// withoutToken is a request without the token that let it in, if one did: whoever looks for a ping key would take it for
// a wrong one.
func withoutToken(r *http.Request) *http.Request {
	if !callerOf(r.Context()).shown() {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Header = r.Header.Clone()
	r.Header.Del("Authorization")
	return r
}

// withTable are the handlers of the monitor: without a table they have nothing to say.
func (p *monitorPart) withTable(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if p.table == nil {
			return errNoMonitor
		}
		return handle(w, r)
	}
}

// state is what the page shows, as it is known; nil when there is nothing.
func (p *monitorPart) state(ctx context.Context) *monitorState {
	if p.table == nil {
		return nil
	}
	seen, err := p.seen.known(ctx, monitorFresh)
	out := &monitorState{MonitorView: seen.view, Alarms: append([]AlarmView{}, seen.alarms...), Own: p.ownView()}
	for _, e := range seen.view.Events {
		out.Totals.add(e)
	}
	out.Events = out.Events[:min(len(out.Events), maxShown)]
	if err != nil {
		out.Error = lease.CutReason(err.Error())
	}
	return out
}

// used tells whether anybody makes use of the monitor, so that it has a section.
func (s *monitorState) used(own Monitor) bool {
	return s != nil && (s.Totals.Events+len(s.Members) > 0 || own.Inlet != nil)
}

func (p *monitorPart) get(w http.ResponseWriter, r *http.Request) error {
	seen, err := p.seen.view(r.Context(), monitorFresh)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		MonitorView
		Own *ownMonitorView `json:"instance,omitempty"`
	}{seen.view, p.ownView()})
}

func (p *monitorPart) listEvents(w http.ResponseWriter, r *http.Request) error {
	seen, err := p.seen.view(r.Context(), monitorFresh)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"event_names": seen.view.Events})
}

func (p *monitorPart) getEvent(w http.ResponseWriter, r *http.Request) error {
	seen, err := p.seen.view(r.Context(), monitorFresh)
	if err != nil {
		return err
	}
	for _, e := range seen.view.Events {
		if e.Event == r.PathValue("event") {
			return writeJSON(w, http.StatusOK, e)
		}
	}
	return fmt.Errorf("%w: %.200q", monitor.ErrNoEvent, r.PathValue("event"))
}

func (p *monitorPart) listSources(w http.ResponseWriter, r *http.Request) error {
	q := monitor.SourceQuery{}
	var err error
	for name, to := range map[string]*string{"event": &q.Event, "source": &q.Source, "after_event": &q.AfterEvent, "after_source": &q.AfterSource} {
		if *to, err = filter(r, name); err != nil {
			return err
		}
	}
	if q.State, err = stateOf(r); err != nil {
		return err
	}
	if q.AfterSource != "" && q.AfterEvent == "" {
		if q.AfterEvent = q.Event; q.AfterEvent == "" {
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

type sourcePage struct {
	Sources []SourceView `json:"sources"`
	// What to ask for with after_event and after_source, if there may be more.
	NextEvent  string `json:"next_event,omitempty"`
	NextSource string `json:"next_source,omitempty"`
}

// search finds sources whose names contain a text in small letters. No index helps
// with that, so it looks at so many and leaves the rest to the next request.
func (p *monitorPart) search(ctx context.Context, q monitor.SourceQuery, part string) (sourcePage, error) {
	limit, out := q.Limit, sourcePage{Sources: []SourceView{}}
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
			out.Sources = append(out.Sources, ViewSource(s))
			if len(out.Sources) == limit {
				out.NextEvent, out.NextSource = s.Event, s.Source
				return out, nil
			}
		}
		if len(found) < q.Limit {
			return out, nil
		}
		last := found[len(found)-1]
		q.AfterEvent, q.AfterSource = last.Event, last.Source
	}
	out.NextEvent, out.NextSource = q.AfterEvent, q.AfterSource
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

// checkNames refuses a path with names that nothing can have.
func checkNames(r *http.Request) error {
	for _, name := range []string{"event", "source", "alarm"} {
		if text := r.PathValue(name); text != "" {
			if err := lease.ValidateText(name, text, 1, monitor.MaxName); err != nil {
				return err
			}
		}
	}
	return nil
}

// source finds the one that the path names.
func (p *monitorPart) source(r *http.Request) (monitor.SourceRecord, error) {
	if err := checkNames(r); err != nil {
		return monitor.SourceRecord{}, err
	}
	event, name := r.PathValue("event"), r.PathValue("source")
	found, err := p.table.Sources(r.Context(), monitor.SourceQuery{Event: event, Source: name, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %.200q of event %.200q", monitor.ErrNoSource, name, event)
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
	alarms, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{Event: s.Event, Source: s.Source, Limit: maxShownAlarms})
	if err != nil {
		return err
	}
	out := struct {
		SourceView
		Alarms []AlarmView `json:"alarms"`
	}{ViewSource(s), make([]AlarmView, 0, len(alarms))}
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, ViewAlarm(a))
	}
	return writeJSON(w, http.StatusOK, out)
}

func (p *monitorPart) listAlarms(w http.ResponseWriter, r *http.Request) error {
	q := monitor.AlarmQuery{}
	var err error
	for name, to := range map[string]*string{"event": &q.Event, "source": &q.Source, "before_id": &q.BeforeID} {
		if *to, err = filter(r, name); err != nil {
			return err
		}
	}
	if q.Standing, err = flag(r, "standing"); err != nil {
		return err
	}
	if text := r.URL.Query().Get("before"); text != "" {
		if q.Before, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return fmt.Errorf("%w: before=%.50q: use a time as 2006-01-02T15:04:05Z", lease.ErrInvalid, text)
		}
	}
	if q.BeforeID != "" && q.Before.IsZero() {
		return fmt.Errorf("%w: before_id needs before", lease.ErrInvalid)
	}
	limit, err := number(r, "limit", 1, monitor.MaxPage, 100)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	alarms, err := p.table.Alarms(r.Context(), q)
	if err != nil {
		return err
	}
	out := struct {
		Alarms []AlarmView `json:"alarms"`
		// What to ask for with before and before_id, if there may be more.
		Next   *time.Time `json:"next,omitempty"`
		NextID string     `json:"next_id,omitempty"`
	}{Alarms: make([]AlarmView, 0, len(alarms))}
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, ViewAlarm(a))
		if len(out.Alarms) == q.Limit {
			out.Next, out.NextID = orNone(a.Raised), a.ID
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (p *monitorPart) getAlarm(w http.ResponseWriter, r *http.Request) error {
	if err := checkNames(r); err != nil {
		return err
	}
	id := r.PathValue("alarm")
	found, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %.100q", monitor.ErrNoAlarm, id)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ViewAlarm(found[0]))
}
