package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// configureTimeout bounds one change of the configuration: there may be many checks and declared sources.
const configureTimeout = time.Minute

// maxOrigin is the most bytes of the name of what a configuration comes from: the longest path of a file.
const maxOrigin = 4096

// action does what an operator asked for with what the path names.
func (p *monitorPart) action(verb monitor.ActionType) handler {
	return inJSON(func(r *http.Request) (out apitype.MonitorDone, err error) {
		body, err := bodyOf[apitype.MonitorAction](r)
		if err != nil {
			return out, err
		}
		switch {
		case body.ForMS < 0 || millis(body.ForMS) > monitor.MaxInterval:
			return out, fmt.Errorf("%w: for_ms is %d: use 0 to %d", lease.ErrInvalid, body.ForMS, monitor.MaxInterval.Milliseconds())
		case body.ForMS > 0 && (verb != monitor.ActionPause || r.PathValue("source") == ""):
			return out, fmt.Errorf("%w: for_ms is for the pause of a source alone", lease.ErrInvalid)
		}
		if err := lease.ValidateText("note", body.Note, 0, monitor.MaxName); err != nil {
			return out, err
		}
		if err := checkNames(r); err != nil {
			return out, err
		}
		who, err := requesterOf(r, body.By)
		if err != nil {
			return out, err
		}
		a := monitor.Action{
			Type: verb, Check: r.PathValue("check"), Source: r.PathValue("source"), Alarm: r.PathValue("alarm"),
			For: millis(body.ForMS), Who: who, Note: body.Note,
		}
		if err := p.table.ApplyAction(r.Context(), a); err != nil {
			return out, err
		}
		p.snapshot.invalidate()
		return apitype.MonitorDone{Done: string(verb)}, nil
	})
}

// declare makes sources known before their first heartbeat.
func (p *monitorPart) declare(w http.ResponseWriter, r *http.Request) error {
	out, err := p.declareSources(r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if out.New > 0 {
		status = http.StatusCreated
	}
	return writeJSON(w, status, out)
}

func (p *monitorPart) declareSources(r *http.Request) (out apitype.Declared, err error) {
	var sources []monitor.Declaration
	if err := readObject(r, map[string]field{"sources": declarationsOf(&sources, monitor.MaxSources)}); err != nil {
		return out, err
	}
	if len(sources) == 0 {
		return out, fmt.Errorf("%w: 0 sources; use 1 to %d", lease.ErrInvalid, monitor.MaxSources)
	}
	subject := sources[0].Check + "/" + sources[0].Source
	added, err := p.table.Declare(r.Context(), sources)
	if err != nil {
		p.acts.recordUnknown(r, err, "monitor", subject, fmt.Sprintf("declaration (sources: %d)", len(sources)), "")
		return out, err
	}
	p.snapshot.invalidate()
	out.Declared = len(added)
	for _, isNew := range added {
		if isNew {
			out.New++
		}
	}
	p.acts.record(r, "monitor", subject, fmt.Sprintf("%d declared, %d of them new,", out.Declared, out.New), "")
	return out, nil
}

func declarationsOf(into *[]monitor.Declaration, most int) field {
	return listOf("sources", into, most, func(_ int, in declarationInput) (monitor.Declaration, error) { return in.declaration() })
}

// putCheck adds or changes one check.
func (p *monitorPart) putCheck(r *http.Request) (out apitype.ConfigurationChange, err error) {
	// What was shown of it may be sent back: what it counts changes nothing.
	v := struct {
		apitype.CheckCount
		Old string `json:"event"` // as its key was called before
	}{CheckCount: apitype.CheckCount{Check: apitype.Check{Name: r.PathValue("check")}}}
	if err := readJSON(r, &v); err != nil {
		return out, err
	}
	v.Name = cmp.Or(v.Old, v.Name)
	if v.Name != r.PathValue("check") {
		return out, fmt.Errorf("%w: the path names check %.200q and the body %.200q", lease.ErrInvalid, r.PathValue("check"), v.Name)
	}
	return p.applyConfiguration(r, monitor.Configuration{Checks: []monitor.Check{CheckOf(v.Check)}, Keep: true}, "")
}

// configure puts all checks into force. It takes as long as the store needs for very many of them.
func (p *monitorPart) configure(w http.ResponseWriter, r *http.Request) error {
	extendWriteDeadline(w, 2*configureTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), configureTimeout)
	defer cancel()
	out, err := p.configureAll(r.WithContext(ctx))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

func (p *monitorPart) configureAll(r *http.Request) (out apitype.ConfigurationChange, err error) {
	var c monitor.Configuration
	var by string
	checks := listOf("checks", &c.Checks, monitor.MaxChecks, func(_ int, in checkInput) (monitor.Check, error) { return in.check() })
	if err := readObject(r, map[string]field{
		"checks": checks, "event_names": checks, // as they were called before
		"declared": declarationsOf(&c.Declared, maxDeclared), "keep": valueOf(&c.Keep), "origin": valueOf(&c.Origin), "by": valueOf(&by),
	}); err != nil {
		return out, err
	}
	if err := lease.ValidateText("origin", c.Origin, 0, maxOrigin); err != nil {
		return out, err
	}
	return p.applyConfiguration(r, c, by)
}

func (p *monitorPart) applyConfiguration(r *http.Request, c monitor.Configuration, by string) (out apitype.ConfigurationChange, err error) {
	who, err := requesterOf(r, cmp.Or(by, "API"))
	if err != nil {
		return out, err
	}
	if c.Origin != "" {
		who = c.Origin + " by " + who
	}
	c.Origin = who
	if err := c.Validate(); err != nil {
		return out, err
	}
	subject := "checks"
	if len(c.Checks) == 1 {
		subject = c.Checks[0].Name
	}
	done, err := p.table.Configure(r.Context(), c)
	if err != nil {
		p.acts.recordUnknown(r, err, "monitor", subject, "configuration", by)
		return out, err
	}
	p.snapshot.invalidate()
	if w := p.own.Watcher; w != nil {
		_ = w.Refresh(r.Context()) // or its next scan does: heartbeats are accepted from the first configuration on
	}
	out = apitype.ConfigurationChange{
		Added: append([]string{}, done.Added...), Changed: append([]string{}, done.Changed...),
		Removed: append([]string{}, done.Removed...), Declared: done.Declared, Generation: done.Generation,
	}
	p.acts.record(r, "monitor", subject, fmt.Sprintf("configured (%d added, %d changed, %d removed)", len(out.Added), len(out.Changed), len(out.Removed)), by)
	return out, nil
}

// rejected lists the input that this instance rejected, the newest first.
func (p *monitorPart) rejected(*http.Request) (apitype.RejectedInputs, error) {
	l := p.own.Rejected
	if l == nil {
		return apitype.RejectedInputs{Rejected: []apitype.RejectedInput{}, Counts: map[string]int64{}}, nil
	}
	return apitype.RejectedInputs{Counts: l.Counts(), Rejected: views(l.List(), func(one intake.RejectedInput) apitype.RejectedInput {
		return apitype.RejectedInput{At: one.At.UTC(), Path: one.Path, Cause: string(one.Cause), Detail: one.Detail, Body: printable(one.Body)}
	})}, nil
}
