package targettest

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// Facts of the Sawtooth REST API.
const (
	bodyLimit       = 10_485_760
	sawtoothForgets = 600 * time.Second // an invalid batch
)

// Sawtooth stands in for the Sawtooth REST API and its validator. Set its fields
// before its first request.
type Sawtooth struct {
	// Manual keeps batches pending until [Sawtooth.Commit].
	Manual bool
	// Invalid tells why a batch is invalid, by its payloads; nil or "": it is not.
	Invalid func(payloads [][]byte) string
	// Room is how many batches may be pending. 0: no limit.
	Room int
	// Fault for a request; nil for none.
	Fault func(r *http.Request) Fault
	// Now is the clock by which it forgets; nil is the real one.
	Now func() time.Time

	mu      sync.Mutex
	pending []held
	blocks  map[string]bool // committed: durable
	invalid map[string]verdict
	effects []string
	posts   []string
}

type held struct {
	id       string
	payloads [][]byte
	txns     []string
}

type verdict struct {
	txn, message string
	at           time.Time
}

func (s *Sawtooth) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Sawtooth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if s.Fault != nil {
		f = s.Fault(r)
	}
	if !f.wait(r) || !f.After && f.strike(w, r, http.StatusOK) {
		return
	}
	switch path := r.Method + " " + r.URL.Path; {
	case path == "POST /batches":
		s.submit(w, r, f)
	case path == "GET /batch_statuses" || path == "POST /batch_statuses":
		s.statuses(w, r, f)
	case strings.HasPrefix(path, "GET /batches/"):
		s.batch(w, strings.TrimPrefix(path, "GET /batches/"))
	default:
		http.NotFound(w, r)
	}
}

func (s *Sawtooth) submit(w http.ResponseWriter, r *http.Request, f Fault) {
	if r.Header.Get("Content-Type") != "application/octet-stream" {
		sawtoothError(w, 400, 42, "Wrong Content Type")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	if len(body) == 0 {
		sawtoothError(w, 400, 34, "No Batches Submitted")
		return
	}
	list, err := sawtooth.ParseList(body)
	if err != nil {
		sawtoothError(w, 400, 35, "Protobuf Not Decodable")
		return
	}
	for _, b := range list {
		if verify(b) != nil {
			sawtoothError(w, 400, 30, "Submitted Batches Invalid")
			return
		}
	}
	if !s.accept(list) {
		sawtoothError(w, 429, 31, "Unable to Accept Batches")
		return
	}
	if f.strike(w, r, http.StatusAccepted) {
		return
	}
	ids := make([]string, len(list))
	for i, b := range list {
		ids[i] = b.ID
	}
	writePretty(w, http.StatusAccepted, map[string]any{
		"link": "http://" + r.Host + "/batch_statuses?id=" + strings.Join(ids, ","),
	})
}

// accept takes batches in. One that is scheduled or committed is dropped without
// a word; one that was invalid is judged again.
func (s *Sawtooth) accept(list []sawtooth.Batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Room > 0 && len(s.pending) >= s.Room {
		return false
	}
	for _, b := range list {
		s.posts = append(s.posts, b.ID)
		scheduled := slices.ContainsFunc(s.pending, func(h held) bool { return h.id == b.ID })
		if s.blocks[b.ID] || scheduled {
			continue
		}
		delete(s.invalid, b.ID)
		s.pending = append(s.pending, hold(b))
	}
	if !s.Manual {
		s.commit()
	}
	return true
}

func hold(b sawtooth.Batch) held {
	h := held{id: b.ID}
	_ = b.Transactions(func(t sawtooth.Transaction) error {
		h.payloads, h.txns = append(h.payloads, t.Payload), append(h.txns, t.ID)
		return nil
	})
	return h
}

// Commit decides everything that is pending.
func (s *Sawtooth) Commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit()
}

func (s *Sawtooth) commit() {
	if s.blocks == nil {
		s.blocks, s.invalid = map[string]bool{}, map[string]verdict{}
	}
	for _, h := range s.pending {
		if s.Invalid != nil {
			if why := s.Invalid(h.payloads); why != "" {
				s.invalid[h.id] = verdict{h.txns[0], why, s.now()}
				continue
			}
		}
		s.blocks[h.id] = true
		s.effects = append(s.effects, h.id)
	}
	s.pending = nil
}

// Restart forgets what is pending and what was invalid.
func (s *Sawtooth) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.invalid = nil, map[string]verdict{}
}

// Effects are the ids of the batches that were carried out, in their order.
func (s *Sawtooth) Effects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects)
}

// Posts are the ids of all batches that were submitted, in their order.
func (s *Sawtooth) Posts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts)
}

func (s *Sawtooth) batch(w http.ResponseWriter, id string) {
	s.mu.Lock()
	there := s.blocks[id]
	s.mu.Unlock()
	switch {
	case !sawtooth.ValidID(id):
		sawtoothError(w, 400, 60, "Invalid Resource Id")
	case !there:
		sawtoothError(w, 404, 71, "Batch Not Found")
	default:
		writePretty(w, 200, map[string]any{"data": map[string]any{"header_signature": id}, "link": "/batches/" + id})
	}
}

func (s *Sawtooth) statuses(w http.ResponseWriter, r *http.Request, f Fault) {
	var ids []string
	if r.Method == http.MethodPost {
		if r.Header.Get("Content-Type") != "application/json" {
			sawtoothError(w, 400, 43, "Wrong Content Type")
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&ids); err != nil || len(ids) == 0 {
			sawtoothError(w, 400, 46, "Bad Status Request")
			return
		}
	} else {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil || !query.Has("id") {
			sawtoothError(w, 400, 66, "Id Query Invalid or Missing")
			return
		}
		if ids = strings.Split(query.Get("id"), ","); len(ids) > 15 {
			sawtoothError(w, 400, 60, "more than 15 ids should be sent by POST")
			return
		}
	}
	if !slices.ContainsFunc(ids, func(id string) bool { return !sawtooth.ValidID(id) }) {
		data := s.status(ids)
		if f.strike(w, r, http.StatusOK) {
			return
		}
		out := map[string]any{"data": data}
		if r.Method == http.MethodGet {
			out["link"] = "http://" + r.Host + "/batch_statuses?id=" + strings.Join(ids, ",")
		}
		writePretty(w, 200, out)
		return
	}
	sawtoothError(w, 400, 60, "Invalid Resource Id")
}

func (s *Sawtooth) status(ids []string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []map[string]any
	for _, id := range ids {
		entry := map[string]any{"id": id, "status": "UNKNOWN", "invalid_transactions": []any{}}
		v, invalid := s.invalid[id]
		switch {
		case s.blocks[id]:
			entry["status"] = "COMMITTED"
		case invalid && s.now().Sub(v.at) < sawtoothForgets:
			entry["status"] = "INVALID"
			entry["invalid_transactions"] = []any{map[string]any{
				"id": v.txn, "message": v.message,
				"extended_data": base64.StdEncoding.EncodeToString([]byte("extended")),
			}}
		case slices.ContainsFunc(s.pending, func(h held) bool { return h.id == id }):
			entry["status"] = "PENDING"
		}
		data = append(data, entry)
	}
	return data
}

func sawtoothError(w http.ResponseWriter, status, code int, title string) {
	writePretty(w, status, map[string]any{"error": map[string]any{"code": code, "title": title, "message": title + "."}})
}

func writePretty(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
