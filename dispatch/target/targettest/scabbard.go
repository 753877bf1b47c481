package targettest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// Facts of scabbard services.
const (
	scabbardHistory = 100 // batches of a service that it remembers
	scabbardFull    = 30  // batches waiting, at which it refuses more
	scabbardRoom    = 15  // batches waiting, below which it accepts again
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
	// Invalid tells why a batch is invalid, by its payloads; nil or "": it is not.
	Invalid func(payloads [][]byte) string
	// Older answers a question about anything unfinished with 408, as nodes did.
	Older bool
	// Fault for a request; nil for none.
	Fault func(r *http.Request) Fault

	mu       sync.Mutex
	services map[string]*scabbardService
	effects  []string
	posts    []string
}

type scabbardService struct {
	history []*scabbardBatch // the oldest first
	waiting []*scabbardBatch
	full    bool
}

type scabbardBatch struct {
	held
	status string
	why    string
}

func (s *Scabbard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if s.Fault != nil {
		f = s.Fault(r)
	}
	if !f.wait(r) || !f.After && f.strike(w, r, http.StatusOK) {
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case r.Header.Get("SplinterProtocolVersion") != "1":
		scabbardError(w, 400, "the protocol version must be 1")
		return
	case s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token:
		scabbardError(w, 401, "no valid token")
		return
	case len(parts) != 5 || parts[0] != "" || parts[1] != "scabbard":
		scabbardError(w, 404, "no such path")
		return
	case !slices.Contains(s.Services, parts[2]+"::"+parts[3]):
		scabbardError(w, 404, "no such service")
		return
	}
	switch r.Method + " " + parts[4] {
	case "POST batches":
		s.submit(w, r, parts[2]+"::"+parts[3], f)
	case "GET batch_statuses":
		s.statuses(w, r, parts[2]+"::"+parts[3], f)
	default:
		scabbardError(w, 404, "no such path")
	}
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		scabbardError(w, 413, "too large")
		return
	}
	list, err := sawtooth.ParseList(body)
	if err != nil {
		scabbardError(w, 400, "not a list of batches")
		return
	}
	var ids []string
	for _, b := range list {
		if verify(b) != nil {
			scabbardError(w, 400, "No valid batches provided")
			return
		}
		ids = append(ids, b.ID)
	}
	if !s.accept(service, list) {
		w.WriteHeader(http.StatusTooManyRequests) // and nothing else
		return
	}
	if f.strike(w, r, http.StatusAccepted) {
		return
	}
	link := strings.TrimSuffix(r.URL.Path, "batches") + "batch_statuses?ids=" + strings.Join(ids, ",")
	writeCompact(w, http.StatusAccepted, map[string]any{"link": link})
}

// accept takes batches in. It never looks whether it had them before.
func (s *Scabbard) accept(name string, list []sawtooth.Batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc := s.service(name)
	if svc.full && len(svc.waiting) < scabbardRoom {
		svc.full = false
	}
	if svc.full {
		return false
	}
	for _, b := range list {
		s.posts = append(s.posts, b.ID)
		entry := &scabbardBatch{held: hold(b), status: "Pending"}
		svc.history = slices.DeleteFunc(svc.history, func(h *scabbardBatch) bool { return h.id == b.ID })
		svc.history = append(svc.history, entry)
		if len(svc.history) > scabbardHistory {
			svc.history = svc.history[1:]
		}
		svc.waiting = append(svc.waiting, entry)
	}
	svc.full = len(svc.waiting) >= scabbardFull
	if !s.Manual {
		s.commit(svc, len(svc.waiting))
	}
	return true
}

// Commit decides up to n of the batches that wait at a service, the oldest first.
func (s *Scabbard) Commit(service string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit(s.service(service), n)
}

func (s *Scabbard) commit(svc *scabbardService, n int) {
	for _, b := range svc.waiting[:min(n, len(svc.waiting))] {
		if s.Invalid != nil {
			if b.why = s.Invalid(b.payloads); b.why != "" {
				b.status = "Invalid"
				continue
			}
		}
		b.status = "Committed"
		s.effects = append(s.effects, b.id)
	}
	svc.waiting = svc.waiting[min(n, len(svc.waiting)):]
}

// Restart forgets the statuses of all batches, and those that wait.
func (s *Scabbard) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = nil
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

func (s *Scabbard) statuses(w http.ResponseWriter, r *http.Request, service string, f Fault) {
	asked := r.URL.Query().Get("ids")
	if asked == "" {
		scabbardError(w, 400, "the query ids is missing")
		return
	}
	ids := strings.Split(asked, ",")
	slices.Sort(ids)
	ids = slices.Compact(ids) // an order of its own, and nothing twice
	s.mu.Lock()
	svc := s.service(service)
	out, unfinished := make([]map[string]any, 0, len(ids)), false
	for _, id := range ids {
		status, messages := "Unknown", []any{}
		at := slices.IndexFunc(svc.history, func(b *scabbardBatch) bool { return b.id == id })
		if at >= 0 {
			status, messages = svc.history[at].describe()
		}
		unfinished = unfinished || status != "Committed" && status != "Invalid"
		out = append(out, map[string]any{
			"id":        id,
			"status":    map[string]any{"statusType": status, "message": messages},
			"timestamp": map[string]any{"secs_since_epoch": time.Now().Unix(), "nanos_since_epoch": 0},
		})
	}
	s.mu.Unlock()
	if f.strike(w, r, http.StatusOK) {
		return
	}
	if s.Older && unfinished {
		scabbardError(w, 408, "timed out")
		return
	}
	writeCompact(w, http.StatusOK, out)
}

func (b *scabbardBatch) describe() (status string, messages []any) {
	messages = []any{}
	for i, id := range b.txns {
		switch {
		case b.status == "Committed" || b.status == "Valid":
			messages = append(messages, map[string]any{"transaction_id": id})
		case b.status == "Invalid" && i == 0:
			messages = append(messages, map[string]any{"transaction_id": id, "error_message": b.why, "error_data": []int{1, 255}})
		}
	}
	return b.status, messages
}

func scabbardError(w http.ResponseWriter, status int, message string) {
	writeCompact(w, status, map[string]any{"message": message})
}

func writeCompact(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint("an answer that is no JSON: ", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
