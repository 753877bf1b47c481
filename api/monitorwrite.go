package api

import (
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// action does what a person asked for with what the path names.
func (p *monitorPart) action(verb monitor.ActionType) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body apitype.MonitorAction
		if err := readJSON(r, &body); err != nil {
			return err
		}
		switch {
		case body.ForMS < 0 || millis(body.ForMS) > monitor.MaxInterval:
			return fmt.Errorf("%w: for_ms is %d: use 0 to %d", lease.ErrInvalid, body.ForMS, monitor.MaxInterval.Milliseconds())
		case body.ForMS > 0 && (verb != monitor.ActionPause || r.PathValue("source") == ""):
			return fmt.Errorf("%w: for_ms is for the pause of a source alone", lease.ErrInvalid)
		}
		if err := lease.ValidateText("note", body.Note, 0, monitor.MaxName); err != nil {
			return err
		}
		if err := checkNames(r); err != nil {
			return err
		}
		who, err := requesterOf(r, body.By)
		if err != nil {
			return err
		}
		a := monitor.Action{
			Type: verb, Check: r.PathValue("check"), Source: r.PathValue("source"), Alarm: r.PathValue("alarm"),
			For: millis(body.ForMS), Who: who, Note: body.Note,
		}
		if err := p.table.ApplyAction(r.Context(), a); err != nil {
			return err
		}
		p.snapshot.invalidate()
		return writeJSON(w, http.StatusOK, apitype.MonitorDone{Done: string(verb)})
	}
}

// declare makes sources known before their first beat.
func (p *monitorPart) declare(w http.ResponseWriter, r *http.Request) error {
	var body apitype.Declarations
	if err := readRenamed(r, &body); err != nil {
		return err
	}
	if n := len(body.Sources); n == 0 || n > monitor.MaxSources {
		return fmt.Errorf("%w: %d sources; use 1 to %d", lease.ErrInvalid, n, monitor.MaxSources)
	}
	sources := declarationsOf(body.Sources)
	for _, d := range sources {
		if err := d.Validate(); err != nil {
			return err
		}
	}
	added, err := p.table.Declare(r.Context(), sources)
	if err != nil {
		return err
	}
	p.snapshot.invalidate()
	count := 0
	for _, isNew := range added {
		if isNew {
			count++
		}
	}
	return writeJSON(w, http.StatusOK, apitype.Declared{Declared: len(added), New: count})
}

func declarationsOf(in []apitype.Declaration) []monitor.Declaration {
	var out []monitor.Declaration
	for _, d := range in {
		out = append(out, monitor.Declaration{Check: d.Check, Source: d.Source, Labels: d.Labels})
	}
	return out
}

// putCheck adds or changes one check.
func (p *monitorPart) putCheck(w http.ResponseWriter, r *http.Request) error {
	// What was shown of it may be sent back: what it counts changes nothing.
	v := apitype.CheckCount{Check: apitype.Check{Name: r.PathValue("check")}}
	if err := readRenamed(r, &v); err != nil {
		return err
	}
	if v.Name != r.PathValue("check") {
		return fmt.Errorf("%w: the path names check %.200q and the body %.200q", lease.ErrInvalid, r.PathValue("check"), v.Name)
	}
	return p.applyConfiguration(w, r, monitor.Configuration{Checks: []monitor.Check{checkOf(v.Check)}, Keep: true})
}

// configure puts all checks into force.
func (p *monitorPart) configure(w http.ResponseWriter, r *http.Request) error {
	var body apitype.MonitorConfiguration
	if err := readRenamed(r, &body); err != nil {
		return err
	}
	c := monitor.Configuration{Declared: declarationsOf(body.Declared), Keep: body.Keep}
	for _, e := range body.Checks {
		c.Checks = append(c.Checks, checkOf(e))
	}
	return p.applyConfiguration(w, r, c)
}

func (p *monitorPart) applyConfiguration(w http.ResponseWriter, r *http.Request, c monitor.Configuration) error {
	who, err := requesterOf(r, "API")
	if err != nil {
		return err
	}
	c.Origin = who
	if err := c.Validate(); err != nil {
		return err
	}
	done, err := p.table.Configure(r.Context(), c)
	if err != nil {
		return err
	}
	p.snapshot.invalidate()
	return writeJSON(w, http.StatusOK, apitype.ConfigurationChange{
		Added: append([]string{}, done.Added...), Changed: append([]string{}, done.Changed...),
		Removed: append([]string{}, done.Removed...), Declared: done.Declared,
	})
}

// letters lists the dead letters of this instance, the newest first.
func (p *monitorPart) letters(w http.ResponseWriter, _ *http.Request) error {
	out := apitype.DeadLetters{Letters: []apitype.DeadLetter{}, Counts: map[string]int64{}}
	if l := p.own.Letters; l != nil {
		out.Counts = l.Counts()
		for _, one := range l.List() {
			out.Letters = append(out.Letters, apitype.DeadLetter{At: one.At.UTC(), Path: one.Path, Cause: string(one.Cause), Detail: one.Detail, Body: printable(one.Body)})
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
