package intake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// HTTPConfig of the beats that come by HTTP.
type HTTPConfig struct {
	// Flow that records them; its path is Synchronous ([monitor.PathConfig]). Required.
	Flow Flow
	// Name of the path in [RejectedInputs]. Default "http".
	Name string
	// Keys that let programs send beats.
	Keys []PingKey
	// Reports keeps what pings bring along, and knows sources by the ID that they are pinged with. nil: no ping has an
	// ID, and bodies are thrown away.
	Reports ReportStore
	// Rejected keeps what was not accepted; nil keeps none.
	Rejected *RejectedInputs
	// Ready returns why heartbeats cannot be accepted yet: their senders are told to try again. nil: they always can.
	Ready func() error
	// AnyDomain reports whether VES events of every domain are heartbeats of a check. nil: of none.
	AnyDomain func(check string) bool
	// RejectUnknown refuses VES heartbeats of checks that are not configured. Otherwise they are accepted and counted:
	// a collector takes whatever is valid.
	RejectUnknown bool
	// Authorize reports whether a request has the API's own token. nil: whoever has no key may send beats.
	Authorize func(*http.Request) bool
	// TooManyWrong is called for each request with a wrong key or UUID, or without a key where one is needed. It reports whether
	// its sender has sent too many, and is to be refused at once. nil: only their number at one time is bounded.
	TooManyWrong func(*http.Request) bool
	// HasSentTooMany reports whether TooManyWrong would refuse a request, and counts nothing: a UUID is found to be wrong only
	// when the store has been asked, and for such a sender it is not. nil: nobody has.
	HasSentTooMany func(*http.Request) bool
	// Timeout of storing what a request brought. Default 10 s.
	Timeout time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	c.Name = cmp.Or(c.Name, "http")
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid] and shows no key.
func (c HTTPConfig) Validate() error {
	switch {
	case c.Flow == nil:
		return fmt.Errorf("%w: beats need a flow that takes them", lease.ErrInvalid)
	case c.Timeout < 0:
		return fmt.Errorf("%w: a time-out of %v is negative", lease.ErrInvalid, c.Timeout)
	}
	_, err := newGate(c)
	return err
}

// HTTP takes beats by HTTP. It is made by [NewHTTP].
type HTTP struct {
	cfg        HTTPConfig
	ignored    ignored // VES events
	gate       *gate
	ids        pingIDs
	lookups    chan struct{} // of IDs, those under way
	bufferPool bufferPool
}

// NewHTTP checks the configuration; see [HTTPConfig.Validate].
func NewHTTP(c HTTPConfig) (*HTTP, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	g, err := newGate(c)
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &HTTP{cfg: c, ignored: ignored{log: c.Logger, path: c.Name}, gate: g, lookups: make(chan struct{}, maxLookups)}, nil
}

// Ignored are the VES events that came by HTTP and that no check counts.
func (h *HTTP) Ignored() IgnoredStats { return h.ignored.snapshot() }

// Route is one operation. It checks by itself who may ask.
type Route struct {
	// Method, and Pattern of its path, for [http.ServeMux]; GET is HEAD too.
	Method, Pattern string
	// Body is the most bytes of the request's body that it reads.
	Body    int64
	Handler http.HandlerFunc
	// Hidden: another form of a path that is described.
	Hidden bool
}

// Routes are all operations.
func (h *HTTP) Routes() (routes []Route) {
	add := func(method, path string, body int64, handler http.HandlerFunc) {
		routes = append(routes, Route{Method: method, Pattern: path, Body: body, Handler: handler})
	}
	routes = h.vesRoutes()
	add(http.MethodPost, "/v1/beats", MaxBody, h.serve(h.beats, problem))
	for _, base := range []string{"/v1/ping/", "/v1/ping/key/{key}/"} {
		for _, path := range []string{base + "{event}/{source}", base + "{event}/{source}/{what}"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				add(method, path, monitor.MaxReport, h.serve(h.ping, problem))
			}
		}
	}
	add(http.MethodPost, "/v1/watchdog/{event}/{source}", MaxBody, h.serve(h.watchdog, problem))
	if h.cfg.Reports == nil {
		return routes
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, path := range []string{"/ping/{id}", "/ping/{id}/{what}"} {
			add(method, path, monitor.MaxReport, h.answer(h.whenReady(h.pingByID), problem))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch} {
		add(method, "/v2/heartbeats/{id}/ping", monitor.MaxReport, h.answer(h.whenReady(h.heartbeatByID), opsgenieError))
	}
	return routes
}

// serve lets in who may.
func (h *HTTP) serve(handle func(http.ResponseWriter, *http.Request, *PingKey) error, refuse func(http.ResponseWriter, fault)) http.HandlerFunc {
	return h.answer(func(w http.ResponseWriter, r *http.Request) error {
		key, err := h.gate.admit(r)
		if err != nil {
			return err
		}
		return h.whenReady(func(w http.ResponseWriter, r *http.Request) error { return handle(w, r, key) })(w, r)
	}, refuse)
}

// whenReady refuses what comes before there is a configuration.
func (h *HTTP) whenReady(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h.cfg.Ready != nil {
			if err := h.cfg.Ready(); err != nil {
				return err
			}
		}
		return handle(w, r)
	}
}

// answer answers errors as the operation's clients expect them.
func (h *HTTP) answer(handle func(http.ResponseWriter, *http.Request) error, refuse func(http.ResponseWriter, fault)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := handle(w, r)
		if err == nil {
			return
		}
		f := faultOf(err)
		if f.status == http.StatusInternalServerError {
			h.cfg.Logger.Error("a heartbeat was not taken", "route", r.Pattern, "err", err)
		}
		refuse(w, f)
	}
}

// maxErrors is how many of a body's flaws are told to its sender.
const maxErrors = 10

// tally is what became of a body.
type tally struct {
	Accepted int         `json:"accepted"`
	Unknown  int         `json:"unknown"`
	Bad      int         `json:"bad"`
	Errors   []itemError `json:"errors,omitempty"`
	other    int         // of Bad: VES events of other domains
}

type itemError struct {
	Index  int    `json:"index"`
	Cause  Cause  `json:"cause"`
	Detail string `json:"detail"`
}

func (t *tally) add(index int, cause Cause, detail string) {
	if cause.isUnknown() {
		t.Unknown++
	} else {
		t.Bad++
	}
	if cause == OtherDomain {
		t.other++
	}
	if len(t.Errors) < maxErrors {
		t.Errors = append(t.Errors, itemError{index, cause, detail})
	}
}

// store takes what a body was decoded to, and returns when that is stored.
func (h *HTTP) store(ctx context.Context, d *decoder, key *PingKey) (tally, error) {
	if key != nil {
		d.keep(key.allows)
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	var outcomes []monitor.Outcome
	if len(d.beats) > 0 {
		var err error
		if outcomes, err = h.cfg.Flow.Record(ctx, d.beats); err != nil {
			return tally{}, err
		}
	}
	var t tally
	recordOutcomes(d, outcomes, h.cfg.Name, h.cfg.Rejected, t.add)
	t.Accepted = d.items - t.Unknown - t.Bad
	return t, nil
}

// keep makes flaws of the beats whose event a key is not for.
func (d *decoder) keep(allowed func(event string) bool) {
	n := 0
	for i, b := range d.beats {
		if !allowed(b.Check) {
			d.flaws = append(d.flaws, flaw{index: d.places[i], cause: Forbidden, detail: fmt.Sprintf("the key is not for event %q", b.Check)})
			continue
		}
		d.beats[n], d.places[n] = b, d.places[i]
		n++
	}
	d.beats, d.places = d.beats[:n], d.places[:n]
}

// recordOutcomes keeps what was not accepted as rejected input, and calls tell for each.
func recordOutcomes(d *decoder, outcomes []monitor.Outcome, path string, rejected *RejectedInputs, tell func(index int, cause Cause, detail string)) {
	now := time.Now()
	for _, f := range d.flaws {
		if f.cause == OtherDomain {
			tell(f.index, f.cause, f.detail)
			continue
		}
		rejected.Add(RejectedInput{At: now, Path: path, Cause: f.cause, Detail: f.detail, Body: f.raw})
		tell(f.index, f.cause, f.detail)
	}
	for i, o := range outcomes {
		cause, b := NotKnown, d.beats[i]
		switch o {
		case monitor.Accepted:
			continue
		case monitor.Malformed:
			cause = Refused
		}
		detail := fmt.Sprintf("event %q, source %q", b.Check, b.Source)
		if o == monitor.Full {
			cause, detail = CheckFull, detail+": "+monitor.WhyFull
		}
		rejected.Add(RejectedInput{At: now, Path: path, Cause: cause, Detail: detail})
		tell(d.places[i], cause, detail)
	}
}

// decode reads a body's beats. One that is not JSON at all is rejected input.
func (h *HTTP) decode(d *buffer) error {
	d.anyDomain = h.cfg.AnyDomain
	err := d.decode(d.body.Bytes())
	if broken := (*syntaxError)(nil); errors.As(err, &broken) {
		h.cfg.Rejected.Add(RejectedInput{At: time.Now(), Path: h.cfg.Name, Cause: Syntax, Detail: err.Error(), Body: d.body.Bytes()})
	}
	return err
}

// handleBody reads the heartbeats of a request, stores them, and lets respond answer. The buffer is the
// request's until then.
func (h *HTTP) handleBody(w http.ResponseWriter, r *http.Request, key *PingKey, respond func(*buffer, tally)) error {
	d, done, err := h.bufferPool.take(w, r)
	if err != nil {
		return err
	}
	defer done()
	if err := h.decode(d); err != nil {
		return err
	}
	t, err := h.store(r.Context(), &d.decoder, key)
	if err != nil {
		return err
	}
	respond(d, t)
	return nil
}

// beats answers POST /v1/beats. A body of one beat that is not taken is refused;
// of more, the counts tell.
func (h *HTTP) beats(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	return h.handleBody(w, r, key, func(d *buffer, t tally) {
		status := http.StatusOK
		switch single := d.items == 1 && !d.listed; {
		case t.Accepted == d.items:
		case !single:
			status = http.StatusAccepted
		case t.Unknown == 1:
			status = http.StatusNotFound
		case t.Errors[0].Cause == Forbidden:
			status = http.StatusForbidden
		default:
			status = http.StatusBadRequest
		}
		answer(w, status, t)
	})
}

func answer(w http.ResponseWriter, status int, t tally) {
	body, _ := json.Marshal(t)
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
