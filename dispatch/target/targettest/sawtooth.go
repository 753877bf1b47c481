package targettest

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// Facts of the Sawtooth REST API, measured on 1.2.6.
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

	mu       sync.Mutex
	pending  []held
	stuck    map[string]bool // undecided for ever
	blocks   map[string]bool // committed: durable
	order    []held          // … in their order
	txns     map[string]bool // committed transactions
	bad      map[string]bool // transactions that were invalid
	invalid  map[string]verdict
	verdicts map[string]verdict // of batches that came before: an invalid one is not judged again
	effects  []string
	posts    []string
}

type held struct {
	id       string
	raw      []byte
	payloads [][]byte
	txns     []string
	after    []string // transactions on which it depends
	family   string
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
	switch r.URL.Path {
	case "/batches":
		switch r.Method {
		case http.MethodPost:
			s.submit(w, r, f)
		case http.MethodGet:
			s.list(w, r)
		default:
			sawtoothMethod(w, "GET,HEAD,POST")
		}
	case "/batch_statuses":
		switch r.Method {
		case http.MethodPost, http.MethodGet:
			s.statuses(w, r, f)
		default:
			sawtoothMethod(w, "GET,HEAD,POST")
		}
	default:
		s.read(w, r)
	}
}

func (s *Sawtooth) submit(w http.ResponseWriter, r *http.Request, f Fault) {
	switch r.Header.Get("Content-Type") {
	case "":
		sawtoothCrash(w)
		return
	case "application/octet-stream":
	default:
		sawtoothError(w, 400, 42, "Wrong Content Type")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		http.Error(w, "413: Request Entity Too Large", http.StatusRequestEntityTooLarge)
		return
	}
	if len(body) == 0 {
		sawtoothError(w, 400, 34, "No Batches Submitted")
		return
	}
	list, err := sawtooth.ParseList(body)
	if err != nil {
		list = nil // garbage is a list without batches
	}
	for _, b := range list {
		if !isEmpty(b) && b.Verify() != nil { // the list as a whole
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
	var ids []string
	for _, b := range list {
		ids = append(ids, b.ID)
	}
	// The link keeps the query as it came; a name without a value stands alone.
	query := []string{strings.TrimSuffix("id="+strings.Join(ids, ","), "=")}
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if part != "" {
			query = append(query, strings.TrimSuffix(part, "="))
		}
	}
	slices.Sort(query)
	writePretty(w, http.StatusAccepted, map[string]any{"link": "http://" + r.Host + "/batch_statuses?" + strings.Join(query, "&")})
}

// accept takes batches in. One that is scheduled or committed is dropped without
// a word; one that was invalid is invalid at once.
func (s *Sawtooth) accept(list []sawtooth.Batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Room > 0 && len(s.pending) >= s.Room {
		return false
	}
	s.init()
	for _, b := range list {
		s.posts = append(s.posts, b.ID)
		scheduled := slices.ContainsFunc(s.pending, func(h held) bool { return h.id == b.ID })
		if s.blocks[b.ID] || s.stuck[b.ID] || scheduled {
			continue
		}
		if v, was := s.verdicts[b.ID]; was {
			v.at = s.now()
			s.invalid[b.ID] = v
			continue
		}
		s.pending = append(s.pending, hold(b))
	}
	if !s.Manual {
		s.commit()
	}
	return true
}

func (s *Sawtooth) init() {
	if s.blocks == nil {
		s.blocks, s.txns, s.bad, s.stuck = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
		s.invalid, s.verdicts = map[string]verdict{}, map[string]verdict{}
	}
}

func hold(b sawtooth.Batch) held {
	h := held{id: b.ID, raw: b.Raw}
	_ = b.Transactions(func(t sawtooth.Transaction) error {
		h.payloads, h.txns = append(h.payloads, t.Payload), append(h.txns, t.ID)
		if header, err := t.ParseHeader(); err == nil {
			h.after, h.family = append(h.after, header.Dependencies...), header.Family
		}
		return nil
	})
	return h
}

// Commit decides everything that is pending and can be decided.
func (s *Sawtooth) Commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	s.commit()
}

func (s *Sawtooth) commit() {
	for _, h := range s.pending {
		why := ""
		if s.Invalid != nil {
			why = s.Invalid(h.payloads)
		}
		dependsOn := func(known map[string]bool) bool {
			return slices.ContainsFunc(h.after, func(id string) bool { return known[id] })
		}
		unseen := slices.ContainsFunc(h.after, func(id string) bool { return !s.txns[id] && !s.bad[id] })
		switch {
		case len(h.txns) == 0, dependsOn(s.bad), slices.ContainsFunc(h.txns, func(id string) bool { return s.txns[id] }):
			s.stuck[h.id] = true
		case unseen:
			// Nothing is known of it: UNKNOWN, and in no block.
		case why != "":
			v := verdict{h.txns[0], why, s.now()}
			s.invalid[h.id], s.verdicts[h.id] = v, v
			for _, id := range h.txns {
				s.bad[id] = true
			}
		default:
			s.blocks[h.id] = true
			s.order = append(s.order, h)
			for _, id := range h.txns {
				s.txns[id] = true
			}
			s.effects = append(s.effects, h.id)
		}
	}
	s.pending = nil
}

// Restart forgets what is pending and what was invalid.
func (s *Sawtooth) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	s.pending, s.invalid, s.verdicts, s.stuck, s.bad = nil, map[string]verdict{}, map[string]verdict{}, map[string]bool{}, map[string]bool{}
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

// hasBatch reports whether a block has it.
func (s *Sawtooth) hasBatch(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks[id]
}

// read answers what a block explorer asks. The front passes it through.
func (s *Sawtooth) read(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		sawtoothMethod(w, "GET,HEAD")
		return
	}
	id, one := strings.CutPrefix(r.URL.Path, "/batches/")
	link := "http://" + r.Host + r.URL.RequestURI()
	switch {
	case one && !sawtooth.ValidID(id):
		sawtoothError(w, 400, 60, "Invalid Resource Id")
	case one && !s.hasBatch(id):
		sawtoothError(w, 404, 71, "Batch Not Found")
	case one:
		writePretty(w, 200, map[string]any{"data": map[string]any{"header_signature": id}, "link": link})
	case slices.Contains([]string{"/blocks", "/transactions", "/state", "/receipts", "/peers", "/status"}, r.URL.Path):
		writePretty(w, 200, map[string]any{"data": []any{}, "head": strings.Repeat("0", 128), "link": link, "asked": r.URL.Path + "?" + r.URL.RawQuery})
	default:
		http.Error(w, "404: Not Found", http.StatusNotFound)
	}
}

// list shows all batches, the latest first.
func (s *Sawtooth) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	data := []any{}
	for _, h := range slices.Backward(s.order) {
		data = append(data, map[string]any{"header_signature": h.id})
	}
	s.mu.Unlock()
	writePretty(w, 200, map[string]any{"data": data, "link": "http://" + r.Host + r.URL.RequestURI()})
}
