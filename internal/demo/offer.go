package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// offer is something that people may do to the demonstration: the page by the route of its ID, a terminal by its command.
type offer struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Command string `json:"command"`
	Text    string `json:"text"` // who it is done to, and what happens then
	// Promised is how soon, in milliseconds; 0 where no time is promised.
	Promised int64 `json:"promised_ms,omitempty"`
	// Off is why it cannot be done now; "" when it can.
	Off string `json:"off,omitempty"`

	do func(ctx context.Context) error // returns as soon as it is done: what comes of it is recorded
}

// promise is what happens then, and how soon.
func (o offer) promise() string {
	if o.Promised == 0 {
		return o.Text
	}
	return o.Text + " within " + seconds(time.Duration(o.Promised)*time.Millisecond)
}

// unserving is why nothing can be done to a process now; "" when it can.
func unserving(p *process, who string) string {
	switch {
	case p == nil:
		return "there is no " + who + " now"
	case !p.isServing():
		return p.name + " is not back yet"
	}
	return ""
}

// kill offers to kill a process, which may be nil; who is what it is.
func (d *demo) kill(p *process, who string, o offer, worst time.Duration) offer {
	o.Title, o.Promised, o.Off = "Kill the "+who, worst.Milliseconds(), unserving(p, who)
	if p != nil {
		o.Title, o.Command = "Kill "+p.name, fmt.Sprintf("kill -9 %d", p.running())
		o.do = func(context.Context) error { return p.kill() }
	}
	return o
}

// byPage is the command for what only the page's server can do.
func (d *demo) byPage(id string) string { return fmt.Sprintf("curl -X POST %s/v1/demo/%s", d.url, id) }

// view is what the page shows.
type view struct {
	Now   int64      `json:"now_ms"`
	Auto  bool       `json:"auto,omitempty"` // it does everything by itself, and offers nothing
	Parts []partView `json:"parts"`
}

type partView struct {
	Part     string   `json:"part"`
	Lanes    []lane   `json:"lanes"`
	Marks    []mark   `json:"marks"`
	Outcomes []result `json:"outcomes"`
	Offers   []offer  `json:"offers"`
}

// handler answers the page: GET /v1/demo is what has happened and what may be done, POST /v1/demo/ID does it. The
// server around it has checked that no page of another site asks.
func (d *demo) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/demo", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", d.view())
	})
	mux.HandleFunc("POST /v1/demo/{offer}", func(w http.ResponseWriter, r *http.Request) {
		if err := d.runOffer(r.Context(), r.PathValue("offer")); err != nil {
			answer(w, http.StatusConflict, "application/problem+json", apitype.Problem{
				Status: http.StatusConflict, Title: http.StatusText(http.StatusConflict), Code: "not_now", Detail: err.Error(),
			})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func answer(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// allOffers are the offers of an act; none with Auto, which does everything by itself.
func (d *demo) allOffers(a act) []offer {
	if d.cfg.Auto {
		return []offer{}
	}
	return a.offers()
}

func (d *demo) view() view {
	v := view{Now: time.Now().UnixMilli(), Auto: d.cfg.Auto}
	for _, a := range d.acts {
		p := partView{Part: a.part(), Offers: d.allOffers(a)}
		p.Lanes, p.Marks, p.Outcomes = d.record.read(p.Part)
		v.Parts = append(v.Parts, p)
	}
	return v
}

// do does what an act offers, and says so.
func (d *demo) do(ctx context.Context, a act, o offer) error {
	if o.Off != "" {
		return errors.New(o.Off)
	}
	d.voice.event(a.part(), "%s: %s", o.Title, o.Text)
	return o.do(ctx)
}

// runOffer does what is offered under a name.
func (d *demo) runOffer(ctx context.Context, id string) error {
	for _, a := range d.acts {
		for _, o := range d.allOffers(a) {
			if o.ID == id {
				return d.do(ctx, a, o)
			}
		}
	}
	return fmt.Errorf("%.100q is not offered: GET /v1/demo lists what is, and with --auto nothing is", id)
}
