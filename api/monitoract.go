package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// act does what a person asked for with what the path names.
func (p *monitorPart) act(verb monitor.Verb) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			// ForMS is how long a pause lasts; 0 is until it is resumed.
			ForMS int64  `json:"for_ms"`
			Note  string `json:"note"`
			By    string `json:"by"`
		}
		if err := readJSON(r, &body); err != nil {
			return err
		}
		switch {
		case body.ForMS < 0 || millis(body.ForMS) > monitor.MaxInterval:
			return fmt.Errorf("%w: for_ms is %d: use 0 to %d", lease.ErrInvalid, body.ForMS, monitor.MaxInterval.Milliseconds())
		case body.ForMS > 0 && (verb != monitor.Pause || r.PathValue("source") == ""):
			return fmt.Errorf("%w: for_ms is for the pause of a source alone", lease.ErrInvalid)
		}
		if err := lease.ValidateText("note", body.Note, 0, monitor.MaxName); err != nil {
			return err
		}
		if err := checkNames(r); err != nil {
			return err
		}
		who, err := by(r, body.By)
		if err != nil {
			return err
		}
		a := monitor.Action{
			Verb: verb, Event: r.PathValue("event"), Source: r.PathValue("source"), Alarm: r.PathValue("alarm"),
			For: millis(body.ForMS), Who: who, Note: body.Note,
		}
		if err := p.table.Act(r.Context(), a); err != nil {
			return err
		}
		p.seen.forget()
		return writeJSON(w, http.StatusOK, map[string]string{"done": string(verb)})
	}
}

// declare makes sources known before their first beat.
func (p *monitorPart) declare(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Sources []monitor.Declaration `json:"sources"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if n := len(body.Sources); n == 0 || n > monitor.MaxSources {
		return fmt.Errorf("%w: %d sources; use 1 to %d", lease.ErrInvalid, n, monitor.MaxSources)
	}
	for _, d := range body.Sources {
		if err := d.Validate(); err != nil {
			return err
		}
	}
	added, err := p.table.Declare(r.Context(), body.Sources)
	if err != nil {
		return err
	}
	p.seen.forget()
	count := 0
	for _, isNew := range added {
		if isNew {
			count++
		}
	}
	return writeJSON(w, http.StatusOK, map[string]int{"declared": len(added), "new": count})
}

// putEvent adds or changes one event name.
func (p *monitorPart) putEvent(w http.ResponseWriter, r *http.Request) error {
	// What was shown of it may be sent back: what it counts changes nothing.
	v := EventCountView{EventView: EventView{Event: r.PathValue("event")}}
	if err := readJSON(r, &v); err != nil {
		return err
	}
	if v.Event != r.PathValue("event") {
		return fmt.Errorf("%w: the path names event %.200q and the body %.200q", lease.ErrInvalid, r.PathValue("event"), v.Event)
	}
	return p.put(w, r, monitor.Configuration{Events: []monitor.Event{v.expected()}, Keep: true})
}

// configure puts all event names into force.
func (p *monitorPart) configure(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		EventNames []EventView           `json:"event_names"`
		Declared   []monitor.Declaration `json:"declared"`
		// Keep leaves event names alone that are not among these.
		Keep bool `json:"keep"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	c := monitor.Configuration{Declared: body.Declared, Keep: body.Keep}
	for _, e := range body.EventNames {
		c.Events = append(c.Events, e.expected())
	}
	return p.put(w, r, c)
}

func (p *monitorPart) put(w http.ResponseWriter, r *http.Request, c monitor.Configuration) error {
	who, err := by(r, "API")
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
	p.seen.forget()
	return writeJSON(w, http.StatusOK, map[string]any{
		"added": append([]string{}, done.Added...), "changed": append([]string{}, done.Changed...),
		"removed": append([]string{}, done.Removed...), "declared": done.Declared,
	})
}

// LetterView is a message that could not be taken for what it should be.
type LetterView struct {
	At     time.Time `json:"at"`
	Path   string    `json:"path"`
	Cause  string    `json:"cause"`
	Detail string    `json:"detail"`
	// Body is its beginning.
	Body string `json:"body"`
}

// letters lists the dead letters of this instance, the newest first.
func (p *monitorPart) letters(w http.ResponseWriter, _ *http.Request) error {
	out := struct {
		Letters []LetterView     `json:"letters"`
		Counts  map[string]int64 `json:"counts"`
	}{Letters: []LetterView{}, Counts: map[string]int64{}}
	if l := p.own.Letters; l != nil {
		out.Counts = l.Counts()
		for _, one := range l.List() {
			out.Letters = append(out.Letters, LetterView{At: one.At.UTC(), Path: one.Path, Cause: string(one.Cause), Detail: one.Detail, Body: printable(one.Body)})
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
