package intake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// How long it counts which source an ID stands for, of how many IDs it is remembered, and how many look-ups the store has
// at once.
const (
	idLasts    = time.Minute
	maxIDs     = 100_000
	maxLookups = 64
)

// pingIDs are the IDs of sources (see [monitor.PingLabel]) that were asked for lately.
type pingIDs struct {
	mu    sync.Mutex
	known map[string]pingID
}

type pingID struct {
	of    monitor.SourceRef
	until time.Time
}

// find returns what an ID stands for, if that still counts, and whether the ID is remembered at all.
func (p *pingIDs) find(id string, now time.Time) (of monitor.SourceRef, counts, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, known := p.known[id]
	return k.of, now.Before(k.until), known
}

func (p *pingIDs) remember(id string, of monitor.SourceRef, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxIDs {
		p.known = map[string]pingID{}
	}
	p.known[id] = pingID{of, now.Add(idLasts)}
}

func (p *pingIDs) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
}

// pingByID answers /ping/{id} in the form of healthchecks.io.
func (h *HTTP) pingByID(w http.ResponseWriter, r *http.Request) error {
	of, key, err := h.admitID(r)
	if err != nil {
		return err
	}
	return h.answerPing(w, r, key, of)
}

// heartbeatByID answers /v2/heartbeats/{id}/ping as Opsgenie does.
func (h *HTTP) heartbeatByID(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	of, key, err := h.admitID(r)
	if err == nil {
		err = h.recordPing(r, key, of, "")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"result": "PONG - Heartbeat received", "took": time.Since(began).Seconds(), "requestId": rand.Text(),
	})
	return nil
}

// admitID finds the source that an ID stands for. An ID that is a UUID is its own key: whoever has it may ping with it.
func (h *HTTP) admitID(r *http.Request) (of monitor.SourceRef, key *PingKey, err error) {
	id := r.PathValue("id")
	secret := IsUUID(id)
	if secret {
		id = strings.ToLower(id)
	} else if key, err = h.gate.admit(r); err != nil {
		return of, nil, err
	}
	of, counts, known := h.ids.find(id, time.Now())
	if counts {
		return of, key, nil
	}
	if err := lease.ValidateText("id", id, 1, monitor.MaxName); err != nil {
		return of, nil, err
	}
	guarded := secret && !h.gate.open()
	// Whoever guesses must not keep the store busy. An ID that was right before is not a guess: behind a proxy the pings of
	// all jobs and all guesses come from one address.
	if guarded && !known && h.gate.hasSentTooMany(r) {
		return of, nil, errFlood
	}
	of, err = h.lookUp(r.Context(), id)
	switch {
	case !guarded || !errors.Is(err, errID):
		return of, key, err
	case h.gate.tooMany(r):
		return of, nil, errFlood
	}
	return of, nil, h.gate.deny(r.Context(), errID)
}

// lookUp asks the store for the source that an ID stands for, and remembers it. It waits for its turn: that the store is slow,
// or that others guess, is not the sender's fault.
func (h *HTTP) lookUp(ctx context.Context, id string) (of monitor.SourceRef, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	select {
	case h.lookups <- struct{}{}:
		defer func() { <-h.lookups }()
	case <-ctx.Done():
		return of, ctx.Err()
	}
	var found []monitor.SourceRecord
	for _, label := range spellings(id) {
		some, err := h.cfg.Reports.Sources(ctx, monitor.SourceQuery{Label: monitor.PingLabel, Value: label, Limit: 2})
		if err != nil {
			return of, err
		}
		found = append(found, some...)
	}
	switch {
	case len(found) > 1:
		return of, fmt.Errorf("%w: %s/%s and %s/%s", errTwice, found[0].Check, found[0].Source, found[1].Check, found[1].Source)
	case len(found) == 0:
		h.ids.forget(id)
		return of, errID
	}
	of = monitor.SourceRef{Check: found[0].Check, Source: found[0].Source}
	h.ids.remember(id, of, time.Now())
	return of, nil
}

// spellings are the labels that an ID stands for: of a UUID that in capitals, too, as uuidgen of macOS writes it. Stores
// find labels as they were declared.
func spellings(id string) []string {
	if upper := strings.ToUpper(id); IsUUID(id) && upper != id {
		return []string{id, upper}
	}
	return []string{id}
}

// IsUUID reports whether a text is a UUID in its usual form.
func IsUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f'):
			return false
		}
	}
	return true
}

// opsgenieError answers with a fault as Opsgenie does.
func opsgenieError(w http.ResponseWriter, f fault) {
	w.Header().Set("Content-Type", "application/json")
	f.head(w)
	_ = json.NewEncoder(w).Encode(map[string]any{"message": f.detail, "took": 0.0, "requestId": rand.Text()})
}

// watchdog answers POST /v1/watchdog/{event}/{source}: a notification of Alertmanager's webhook, in which an alert that
// fires all the time is the heartbeat. That it is resolved means that it came no more, which is none.
func (h *HTTP) watchdog(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	of := monitor.SourceRef{Check: r.PathValue("event"), Source: r.PathValue("source")}
	if err := (monitor.Declaration{Check: of.Check, Source: of.Source}).Validate(); err != nil {
		return err
	}
	if !key.allows(of.Check) {
		return fmt.Errorf("%w: %q", errNotFor, of.Check)
	}
	firing, err := h.isFiring(w, r)
	if err != nil {
		return err
	}
	if firing {
		ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
		defer cancel()
		if err := h.recordOne(ctx, monitor.Heartbeat{Check: of.Check, Source: of.Source}); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// isFiring reports whether an alert of the notification in a request's body fires.
func (h *HTTP) isFiring(w http.ResponseWriter, r *http.Request) (bool, error) {
	d, done, err := h.bufferPool.take(w, r)
	if err != nil {
		return false, err
	}
	defer done()
	return anyFiring(d.body.Bytes())
}

// anyFiring scans a notification, as the other bodies are scanned: a list of small alerts would take many times its bytes
// if it were decoded.
func anyFiring(body []byte) (firing bool, err error) {
	s := scanner{data: body}
	alerts, err := s.member("alerts")
	if err != nil || len(alerts) == 0 || alerts[0] != '[' {
		return false, errAlerts
	}
	s = scanner{data: alerts, at: 1}
	for first := true; ; first = false {
		more, err := s.next(first, ']')
		switch {
		case err != nil, !more && first: // a notification has at least one
			return false, errAlerts
		case !more:
			return firing, nil
		}
		status, err := s.member("status")
		if err != nil || !absent(status) && !isText(status) {
			return false, errAlerts
		}
		firing = firing || string(status) == `"firing"`
	}
}
