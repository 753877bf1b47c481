package targettest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Request is one submission as the sink saw it.
type Request struct {
	N       int // from 1, in the order of arrival
	At      time.Time
	ID      string
	Queue   string
	Key     string
	Type    string
	Term    int64
	Attempt int
	Seq     int64
	Digest  [sha256.Size]byte // of the body
	// Effect: it was carried out. Otherwise it was Known already, or Stale (of an
	// older term than seen for the key), or a fault struck first.
	Effect bool
	Known  bool
	Stale  bool
}

// Sink takes webhooks and remembers them all. Set its fields before its first request.
type Sink struct {
	// Deduplicates: a batch id that was carried out is not carried out again.
	Deduplicates bool
	// Compares: what comes under an older term than seen for its key is refused.
	Compares bool
	// Fault for a request; nil for none. It is called with Effect not set.
	Fault func(Request) Fault
	// Later answers 202 with a Location, and commits when that has been asked so
	// often. 0: 200 at once.
	Later int
	// Check looks at a request before all else; an error is a 400. For signatures.
	Check func(r *http.Request, body []byte) error

	mu       sync.Mutex
	requests []Request
	done     map[string]int // id: effects
	newest   map[string]int64
	asked    map[string]int
}

func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.status(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it never arrived whole
	}
	if s.Check != nil {
		if err := s.Check(r, body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	req, err := readRequest(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var f Fault
	if s.Fault != nil {
		f = s.Fault(req)
	}
	if !f.wait(r) {
		return
	}
	struck := f.set() && !f.After
	req = s.take(req, struck)
	if struck {
		f.strike(w, r, http.StatusOK)
		return
	}
	if req.Stale {
		w.Header().Set("Understudy-Term", strconv.FormatInt(s.newestOf(req.Key), 10))
		http.Error(w, "an older term", http.StatusConflict)
		return
	}
	if f.strike(w, r, http.StatusOK) {
		return
	}
	if s.Later > 0 {
		w.Header().Set("Location", "/status?id="+url.QueryEscape(req.ID))
		w.WriteHeader(http.StatusAccepted)
	}
}

func readRequest(r *http.Request, body []byte) (Request, error) {
	h := r.Header
	req := Request{
		At: time.Now(), Queue: h.Get("Understudy-Queue"), Type: h.Get("Content-Type"),
		Digest: sha256.Sum256(body),
	}
	var errs [5]error
	req.ID, errs[0] = url.PathUnescape(h.Get("Idempotency-Key"))
	req.Key, errs[1] = url.PathUnescape(h.Get("Understudy-Key"))
	req.Term, errs[2] = strconv.ParseInt(h.Get("Understudy-Term"), 10, 64)
	req.Seq, errs[3] = strconv.ParseInt(h.Get("Understudy-Sequence"), 10, 64)
	req.Attempt, errs[4] = strconv.Atoi(h.Get("Understudy-Attempt"))
	if err := cmp.Or(errs[:]...); err != nil {
		return Request{}, err
	}
	if req.ID == "" || req.Key == "" || req.Queue == "" {
		return Request{}, fmt.Errorf("a header is missing: id %q, key %q, queue %q", req.ID, req.Key, req.Queue)
	}
	return req, nil
}

// take records the request, and carries it out unless a fault struck.
func (s *Sink) take(req Request, struck bool) Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done, s.newest, s.asked = map[string]int{}, map[string]int64{}, map[string]int{}
	}
	req.N = len(s.requests) + 1
	if !struck {
		req.Stale = s.Compares && req.Term < s.newest[req.Key]
		req.Known = s.Deduplicates && s.done[req.ID] > 0
		req.Effect = !req.Stale && !req.Known
		s.newest[req.Key] = max(s.newest[req.Key], req.Term)
	}
	if req.Effect {
		s.done[req.ID]++
	}
	s.requests = append(s.requests, req)
	return req
}

func (s *Sink) newestOf(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest[key]
}

// status answers to the Location of a 202, and to a status URL that ends in ?id=.
func (s *Sink) status(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	s.mu.Lock()
	effects := s.done[id]
	if effects > 0 {
		s.asked[id]++
	}
	asked := s.asked[id]
	s.mu.Unlock()
	switch {
	case effects == 0:
		http.Error(w, "no such batch", http.StatusNotFound)
	case asked < s.Later:
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status": "committed"}`)
	}
}

// Requests are all that the sink has seen, in the order in which it acted on them.
func (s *Sink) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Judge reports what is wrong with the effects: batches carried out twice, and
// batches of a key carried out in another order than that of their sequence.
func (s *Sink) Judge() []string { return JudgeEffects(s.Requests()) }

// JudgeEffects is [Sink.Judge] over requests, of one sink or put together from those of
// several processes.
func JudgeEffects(requests []Request) []string {
	var wrong []string
	times := map[string]int{}
	last := map[string]Request{}
	for _, r := range requests {
		if !r.Effect {
			continue
		}
		place := r.Queue + "\x00" + r.Key
		if times[r.ID]++; times[r.ID] > 1 {
			wrong = append(wrong, fmt.Sprintf("batch %s was carried out %d times", r.ID, times[r.ID]))
			continue
		}
		if before, ok := last[place]; ok && r.Seq <= before.Seq {
			wrong = append(wrong, fmt.Sprintf("key %s: %d (%s, term %d) was carried out after %d (%s, term %d)",
				r.Key, r.Seq, r.ID, r.Term, before.Seq, before.ID, before.Term))
		}
		last[place] = r
	}
	return wrong
}

// Missing are those of the ids that were never carried out.
func (s *Sink) Missing(ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, id := range ids {
		if s.done[strings.TrimSpace(id)] == 0 {
			out = append(out, id)
		}
	}
	return out
}
