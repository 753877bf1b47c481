package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
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
	// maxDeclared is how many sources fit into one.
	maxDeclared = maxConfiguration / len(`{"check":"c","source":"s"}`)
	// maxShownAlarms is how many standing alarms the state lists, and alarms of a
	// source are shown with it.
	maxShownAlarms = 50
	// maxSearched is how many sources one search reads before it answers with a cursor.
	maxSearched = 10_000
)

// Monitor is what this process does for the monitor. Any of it may be missing.
type Monitor struct {
	HTTP     *intake.HTTP    // the routes by which heartbeats come
	Intake   *monitor.Intake // what stores them
	Watcher  *monitor.Watcher
	Routers  func() []*intake.Router // nil: none
	Rejected *intake.RejectedInputs
	// Ready returns why this process receives no heartbeats yet; nil: it always does.
	Ready func() error
}

func (m *Monitor) routers() []*intake.Router {
	if m.Routers == nil {
		return nil
	}
	return m.Routers()
}

// monitorPart is the part of the server that shows sources and alarms.
type monitorPart struct {
	table    monitor.Store // nil when the store keeps none
	own      Monitor
	snapshot *sharedRead[monitorSnapshot]
	acts     acts

	linksMu sync.Mutex
	secret  []byte // of links; nil: not read yet
}

// monitorSnapshot is the result of one read.
type monitorSnapshot struct {
	view   apitype.Monitor
	alarms []apitype.Alarm // that stand, the newest first
}

func newMonitorPart(cfg Config, running context.Context) *monitorPart {
	st, own := cfg.Store, cfg.Monitor
	p := &monitorPart{acts: acts{st, cfg.Logger}}
	if m, ok := st.(store.Monitors); ok {
		p.table = m.Monitor()
	}
	if own != nil {
		p.own = *own
	}
	p.snapshot = &sharedRead[monitorSnapshot]{subject: "the monitor", running: running, load: p.read}
	return p
}

func (p *monitorPart) read(ctx context.Context) (out monitorSnapshot, err error) {
	overview, err := p.table.Overview(ctx)
	if err != nil {
		return out, err
	}
	out.view = ViewMonitor(overview)
	alarms, err := p.table.Alarms(ctx, monitor.AlarmQuery{Standing: true, Limit: maxShownAlarms})
	if err != nil {
		return out, err
	}
	out.alarms = views(alarms, viewAlarm)
	return out, nil
}

func (p *monitorPart) routes() []route {
	const one, check = "/v1/sources/{check}/{source}", checksPath + "/{check}"
	out := guarded(p.checkTable, []route{
		{pattern: "GET /v1/monitor", handle: inJSON(p.get)},
		{pattern: "PUT /v1/monitor/configuration", handle: p.configure, body: maxConfiguration, long: true},
		{pattern: "GET /v1/monitor/rejected", handle: inJSON(p.rejected)},

		{pattern: "GET " + checksPath, handle: inJSON(p.listChecks)},
		{pattern: "GET " + check, handle: inJSON(p.getCheck)},
		{pattern: "PUT " + check, handle: inJSON(p.putCheck)},
		{pattern: "POST " + check + "/pause", handle: p.action(monitor.ActionPause)},
		{pattern: "POST " + check + "/resume", handle: p.action(monitor.ActionResume)},

		{pattern: "GET /v1/sources", handle: inJSON(p.listSources)},
		{pattern: "POST /v1/sources", handle: p.declare, body: maxConfiguration},
		{pattern: "GET " + one, handle: inJSON(p.getSource)},
		{pattern: "GET " + one + "/badge.svg", handle: p.badge},
		{pattern: "POST " + one + "/pause", handle: p.action(monitor.ActionPause)},
		{pattern: "POST " + one + "/resume", handle: p.action(monitor.ActionResume)},
		{pattern: "POST " + one + "/retire", handle: p.action(monitor.ActionRetire)},
	})
	out = append(out, guarded(p.checkTable, p.linkRoutes())...)
	return append(withOldPaths(out), p.intakeRoutes()...)
}

// intakeRoutes are where beats come in. They know their own callers: a ping key
// is no token.
func (p *monitorPart) intakeRoutes() (out []route) {
	if p.own.HTTP == nil {
		return nil
	}
	for _, r := range p.own.HTTP.Routes() {
		out = append(out, route{
			pattern: r.Method + " " + r.Pattern, open: true, keyed: true, scope: access.Ingest, body: r.Body, ownBodies: true, hidden: r.Hidden,
			handle: func(w http.ResponseWriter, q *http.Request) error { r.Handler(w, withoutToken(q)); return nil },
		})
	}
	return out
}

// withoutToken is a request without the token that let it in, if one did: the handler of ping keys would take it for a
// wrong key.
func withoutToken(r *http.Request) *http.Request {
	if !callerOf(r.Context()).hasToken() {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Header = r.Header.Clone()
	r.Header.Del("Authorization")
	return r
}

func (p *monitorPart) checkTable(*http.Request) error {
	if p.table == nil {
		return errNoMonitor
	}
	return nil
}

// state is what the page shows, as it is known; nil when there is nothing.
func (p *monitorPart) state(ctx context.Context) *apitype.MonitorState {
	if p.table == nil {
		return nil
	}
	seen, err := p.snapshot.latest(ctx, monitorFresh)
	out := &apitype.MonitorState{Monitor: seen.view, Alarms: append([]apitype.Alarm{}, seen.alarms...), Own: p.ownView()}
	for _, e := range seen.view.Checks {
		addTotals(&out.Totals, e)
	}
	out.Checks = out.Checks[:min(len(out.Checks), maxShown)]
	if err != nil {
		out.Error = lease.TruncateReason(err.Error())
	}
	return out
}

// mayHaveSinks reports whether the store's monitor sends alarms anywhere, as far as is known.
func (p *monitorPart) mayHaveSinks(ctx context.Context) bool {
	if p.table == nil {
		return false
	}
	seen, err := p.snapshot.fresh(ctx, monitorFresh)
	return err != nil || len(seen.view.Sinks) > 0
}

// isUsed reports whether the monitor is in use, so that it has a section.
func (p *monitorPart) isUsed(s *apitype.MonitorState) bool {
	return s != nil && (s.Totals.Checks+len(s.Members) > 0 || p.own.Intake != nil)
}

func (p *monitorPart) get(r *http.Request) (apitype.MonitorWithInstance, error) {
	seen, err := p.snapshot.fresh(r.Context(), monitorFresh)
	return apitype.MonitorWithInstance{Monitor: seen.view, Own: p.ownView()}, err
}
