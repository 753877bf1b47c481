package targettest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// Facts of scabbard services, measured on Splinter 0.6.14.
const (
	scabbardHistory = 100 // batches of a service that it remembers
	scabbardFull    = 30  // batches that wait behind the one in work, at which it refuses more
	scabbardRoom    = 15  // … below which it accepts again
)

// Scabbard stands in for the scabbard services of a Splinter node. Set its fields
// before its first request.
type Scabbard struct {
	// Services that there are, as CIRCUIT::SERVICE.
	Services []string
	// Token that the header Authorization must bear; "": none is asked for.
	Token string
	// Manual keeps batches pending until [Scabbard.Commit].
	Manual bool
	// Takes is how long a commit takes, one after the other; nil: none. The batch is Pending for the first few
	// milliseconds and then Valid. Without effect if Manual.
	Takes func() time.Duration
	// Invalid tells why a batch is invalid, by its payloads; nil or "": it is not.
	Invalid func(payloads [][]byte) string
	// SameEffect tells that a batch can be executed again without another effect; nil: none can.
	SameEffect func(payloads [][]byte) bool
	// Follows: another service coordinates. Of a batch that is invalid this one never learns: it stays Pending.
	Follows bool
	// Families of transactions that have a handler; nil: all. A batch of another one is never decided.
	Families []string
	// Peers are other nodes of its circuits, which learn what is committed or invalid here.
	Peers []*Scabbard
	// Older answers a question about anything unfinished with 408, as nodes did before February 2022.
	Older bool
	// Fault for a request; nil for none.
	Fault func(r *http.Request) Fault

	mu       sync.Mutex
	services map[string]*scabbardService
	receipts map[string][]string // of a circuit: ids of transactions, which outlive restarts
	diverged map[string]bool     // circuits whose nodes no longer agree
	peerDown bool
	stopping bool
	effects  []string
	posts    []string
}

type scabbardService struct {
	history []*scabbardBatch // the oldest first
	waiting []*scabbardBatch
	full    bool
	free    time.Time // when the last batch that waits will be committed
}

type scabbardBatch struct {
	held
	status string
	why    string
	posted time.Time
	due    time.Time // when it is committed, with Takes
}

func (s *Scabbard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if s.Fault != nil {
		f = s.Fault(r)
	}
	if !f.wait(r) || !f.After && f.strike(w, r, http.StatusOK) {
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var serve func(http.ResponseWriter, *http.Request, string, Fault)
	if len(parts) >= 4 && parts[0] == "scabbard" {
		serve = map[string]func(http.ResponseWriter, *http.Request, string, Fault){
			"POST batches": s.submit, "GET batch_statuses": s.statuses, "GET ws/subscribe": s.subscribe,
		}[r.Method+" "+strings.Join(parts[3:], "/")]
	}
	// In this order: what is there, who asks, which version, which service.
	switch version := r.Header.Get("SplinterProtocolVersion"); {
	case serve == nil: // a wrong method too
		scabbardError(w, 404, "404", "endpoint not found")
	case s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token:
		scabbardError(w, 401, "401", "Client is not authorized")
	case version != "" && version != "1":
		writeCompact(w, 400, map[string]any{
			"message": "Client must support protocol version 1", "requested_protocol": version, "splinter_protocol": 1, "libsplinter_version": "0.6.14",
		})
	case !s.has(parts[1] + "::" + parts[2]):
		scabbardError(w, 404, "", fmt.Sprintf("scabbard service %s on circuit %s not found", parts[2], parts[1]))
	default:
		serve(w, r, parts[1]+"::"+parts[2], f)
	}
}

func (s *Scabbard) has(service string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopping && slices.Contains(s.Services, service)
}

func (s *Scabbard) service(name string) *scabbardService {
	if s.services == nil {
		s.services = map[string]*scabbardService{}
	}
	if s.services[name] == nil {
		s.services[name] = &scabbardService{}
	}
	return s.services[name]
}

func (s *Scabbard) submit(w http.ResponseWriter, r *http.Request, service string, f Fault) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	list, err := sawtooth.ParseList(body)
	if err != nil {
		scabbardError(w, 400, "", "Invalid body: not a valid list of batches")
		return
	}
	var ids []string
	for _, b := range list {
		if b.CheckForm() != nil && !isEmpty(b) {
			scabbardError(w, 500, "500", "The server encountered an error")
			return
		}
		if b.Verify() != nil && !isEmpty(b) {
			scabbardError(w, 400, "", "No valid batches provided")
			return
		}
		ids = append(ids, b.ID)
	}
	if !s.accept(service, list) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusTooManyRequests) // and nothing else
		return
	}
	if f.strike(w, r, http.StatusAccepted) {
		return
	}
	link := strings.TrimSuffix(r.URL.Path, "batches") + "batch_statuses?ids=" + strings.Join(ids, ",")
	writeCompact(w, http.StatusAccepted, map[string]any{"link": link})
}

// isEmpty reports that a batch has no transactions, which is no error to a ledger.
func isEmpty(b sawtooth.Batch) bool {
	some := errors.New("some")
	return b.Transactions(func(sawtooth.Transaction) error { return some }) == nil
}

// accept takes batches in. It never looks whether it had them before.
func (s *Scabbard) accept(name string, list []sawtooth.Batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc := s.service(name)
	s.advance(name, svc, time.Now())
	if svc.full && len(svc.waiting) < scabbardRoom {
		svc.full = false
	}
	if svc.full {
		return false
	}
	for _, b := range list {
		s.posts = append(s.posts, b.ID)
		entry := &scabbardBatch{held: hold(b), status: "Pending", posted: time.Now()}
		if s.Takes != nil {
			if svc.free.Before(entry.posted) {
				svc.free = entry.posted
			}
			svc.free = svc.free.Add(s.Takes())
			entry.due = svc.free
		}
		svc.remember(entry)
		svc.waiting = append(svc.waiting, entry)
	}
	svc.full = len(svc.waiting) > scabbardFull
	if !s.Manual && s.Takes == nil {
		s.commit(name, svc, len(svc.waiting))
	}
	return true
}

func (svc *scabbardService) remember(entry *scabbardBatch) {
	svc.history = slices.DeleteFunc(svc.history, func(h *scabbardBatch) bool { return h.id == entry.id })
	svc.history = append(svc.history, entry)
	if len(svc.history) > scabbardHistory {
		svc.history = svc.history[1:] // it is Unknown from now on, even if it is in work
	}
}

// Commit decides up to n of the batches that wait at a service, the oldest first.
func (s *Scabbard) Commit(service string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit(service, s.service(service), n)
}

// advance decides what is due.
func (s *Scabbard) advance(name string, svc *scabbardService, now time.Time) {
	if s.Takes == nil || s.Manual {
		return
	}
	n := 0
	for _, b := range svc.waiting {
		if b.due.After(now) {
			break
		}
		n++
	}
	s.commit(name, svc, n)
	if len(svc.waiting) > 0 && now.Sub(svc.waiting[0].posted) > 6*time.Millisecond {
		svc.waiting[0].status = "Valid"
	}
}

func (s *Scabbard) commit(name string, svc *scabbardService, n int) {
	n = min(n, len(svc.waiting))
	for _, b := range svc.waiting[:n] {
		s.decide(name, b)
	}
	svc.waiting = svc.waiting[n:]
}

// decide gives a batch its fate, or leaves it without one for ever.
func (s *Scabbard) decide(name string, b *scabbardBatch) {
	circuit, _, _ := strings.Cut(name, "::")
	repeated := slices.Contains(s.effects, b.id)
	switch {
	case s.Families != nil && !slices.Contains(s.Families, b.family):
		return
	case s.peerDown, s.diverged[circuit]:
		b.status = "Valid" // "Proposal timed out; rejecting", "Hash mismatch": the node logs it and tells nobody
		return
	case s.Invalid != nil && s.Invalid(b.payloads) != "":
		b.why = s.Invalid(b.payloads)
		s.tellPeers(circuit, b, "Invalid")
		if !s.Follows {
			b.status = "Invalid"
		}
		return
	}
	s.effects = append(s.effects, b.id)
	if repeated && (s.SameEffect == nil || !s.SameEffect(b.payloads)) {
		// This node has written its new state before it finds that it has the receipt already.
		s.diverged = map[string]bool{circuit: true}
		b.status = "Valid"
		return
	}
	b.status = "Committed"
	if s.receipts == nil {
		s.receipts = map[string][]string{}
	}
	s.receipts[circuit] = append(s.receipts[circuit], b.txns...)
	s.tellPeers(circuit, b, "Committed")
}

// tellPeers lets the services of the same circuit at other nodes know.
func (s *Scabbard) tellPeers(circuit string, b *scabbardBatch, status string) {
	for _, peer := range s.Peers {
		peer.mu.Lock()
		for _, name := range peer.Services {
			if strings.HasPrefix(name, circuit+"::") {
				peer.service(name).remember(&scabbardBatch{held: b.held, status: status, why: b.why})
			}
		}
		peer.mu.Unlock()
	}
}

// Restart forgets the statuses of all batches, and those that wait.
func (s *Scabbard) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services, s.stopping = nil, false
}

// Stop answers as a node does for the second or two between SIGTERM and its end: it has no services any more.
func (s *Scabbard) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// SetPeerDown says whether the other node of the circuit is away: what is executed meanwhile stays Valid, also when it
// is back.
func (s *Scabbard) SetPeerDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peerDown = down
}

// HasDiverged reports that the nodes of a circuit no longer agree, which nothing repairs: a batch was executed twice.
func (s *Scabbard) HasDiverged(circuit string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.diverged[circuit]
}

// Effects are the ids of the batches that were carried out, in their order.
func (s *Scabbard) Effects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects)
}

// Posts are the ids of all batches that were submitted, in their order.
func (s *Scabbard) Posts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts)
}
