//go:build linux

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
)

// QueueTarget is where the batches of a [Fleet] go: a receiver in the test's own
// process, which remembers every request and answers badly while it is told to.
type QueueTarget struct {
	// Kind is "webhook", "sawtooth" or "scabbard".
	Kind      string
	Semantics dispatch.Semantics

	url      string
	sink     *targettest.Sink
	sawtooth *targettest.Sawtooth
	scabbard *targettest.Scabbard
	signer   *targettest.Signer

	mu      sync.Mutex
	random  *rand.Rand
	bad     bool
	slow    time.Duration
	refused map[string]bool
	passed  time.Duration // the target's clock, by so much
	arrival map[string]func()
}

// NewQueueTarget starts a target. A webhook has the given semantics; slow is how
// long a slow answer takes at most.
func NewQueueTarget(tb testing.TB, kind string, s dispatch.Semantics, seed uint64, slow time.Duration) *QueueTarget {
	tb.Helper()
	t := &QueueTarget{Kind: kind, Semantics: s, random: rand.New(rand.NewPCG(seed, 7)), slow: slow,
		refused: map[string]bool{}, arrival: map[string]func(){}, signer: targettest.NewSigner("fault")}
	var handler http.Handler
	switch kind {
	case "sawtooth":
		t.Semantics = dispatch.Semantics{Resend: true, Deduplicates: true, HasStatus: true, Forgets: true}
		t.sawtooth = &targettest.Sawtooth{Fault: t.ledgerFault, Invalid: refusal, Now: t.now}
		handler = t.sawtooth
	case "scabbard":
		t.Semantics = dispatch.Semantics{HasStatus: true, Forgets: true}
		t.scabbard = &targettest.Scabbard{Fault: t.ledgerFault, Invalid: refusal}
		for key := range 100 {
			t.scabbard.Services = append(t.scabbard.Services, t.key(key))
		}
		handler = t.scabbard
	default:
		t.sink = &targettest.Sink{Deduplicates: s.Deduplicates, Fault: t.sinkFault, Check: t.arrives}
		handler = http.HandlerFunc(t.serve)
	}
	over, end := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// One that never answers does so until the test has ended: that its sender left
		// is not seen before it has read the request.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(over, cancel)()
		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
	tb.Cleanup(func() { end(); server.Close() })
	t.url = server.URL
	return t
}

// CompareTerms makes a webhook refuse requests under an older term than it has seen for their key.
func (t *QueueTarget) CompareTerms() *QueueTarget {
	t.sink.Compares = true
	return t
}

// refusal tells why a ledger finds a batch invalid.
func refusal(payloads [][]byte) string {
	if len(payloads) > 0 && strings.HasSuffix(string(payloads[0]), "!") {
		return "not to my taste"
	}
	return ""
}

// options are what a worker is told about it.
func (t *QueueTarget) options() []string {
	if t.Kind != "webhook" {
		return []string{"-target", t.Kind, "-url", t.url}
	}
	// In the words of the worker of the version before, which TestFaultUpgrade runs.
	out := []string{"-url", t.url, fmt.Sprintf("-recognises=%t", t.Semantics.Deduplicates), fmt.Sprintf("-resend=%t", t.Semantics.Resend)}
	if t.Semantics.HasStatus {
		out = append(out, "-status", t.url+"/status?id={id}", fmt.Sprintf("-remembers=%t", !t.Semantics.Forgets))
	}
	return out
}

// key names the n-th key.
func (t *QueueTarget) key(n int) string {
	if t.Kind == "scabbard" {
		return fmt.Sprintf("abcde-%05d::a%03d", n, n)
	}
	return fmt.Sprintf("k%d", n)
}

// batch is one that the target can take.
func (t *QueueTarget) batch(key int, name string) dispatch.Message {
	b := dispatch.Message{Queue: queueName, Key: t.key(key), ID: name, Payload: []byte(name)}
	if t.Kind != "webhook" {
		b.ID, b.Payload = t.signer.One(name, name)
	}
	return b
}

// Misbehave starts, or ends, bad answers.
func (t *QueueTarget) Misbehave(bad bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bad = bad
}

// steps are where a worker may end or stop. "arrived" is where a webhook sees it; a ledger is not told whose request it is.
func (t *QueueTarget) steps() []string {
	out := []string{"claimed", "begin", "begun", "send", "answered", "record", "recorded"}
	if t.sink != nil {
		out = append(out, "arrived")
	}
	return out
}

// OnArrival has f called once, when the next request of the worker has arrived
// and before it is carried out.
func (t *QueueTarget) OnArrival(worker string, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrival[worker] = f
}

// serve answers badly also to questions what became of a batch.
func (t *QueueTarget) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		t.mu.Lock()
		f := t.draw()
		t.mu.Unlock()
		switch {
		case f.Status != 0:
			http.Error(w, "not now", f.Status)
			return
		case f.Cut, f.Half:
			panic(http.ErrAbortHandler)
		}
	}
	t.sink.ServeHTTP(w, r)
}

func (t *QueueTarget) arrives(r *http.Request, _ []byte) error {
	worker := r.Header.Get("Worker")
	t.mu.Lock()
	f := t.arrival[worker]
	delete(t.arrival, worker)
	t.mu.Unlock()
	if f != nil {
		f()
	}
	return nil
}

// draw is a fault for one request in three.
func (t *QueueTarget) draw() (f targettest.Fault) {
	if !t.bad || t.random.IntN(3) > 0 {
		return f
	}
	f.After = t.random.IntN(2) == 0
	switch t.random.IntN(8) {
	case 0:
		f.Cut = true
	case 1:
		f.Half = true
	case 2:
		f.Garbage = true
		f.After = f.After || t.Kind == "webhook" // to which 200 says that it is done
	case 3:
		f.Never = true
	case 4, 5:
		f.Delay = time.Duration(t.random.Int64N(int64(t.slow)))
	default:
		statuses := []int{408, 429, 500, 502, 503, 504}
		if f.Status = statuses[t.random.IntN(len(statuses))]; f.Status == 429 {
			f.After, f.Header = false, http.Header{"Retry-After": {"1"}}
		}
		if f.Status == 503 && t.random.IntN(2) == 0 {
			f.After, f.Header = false, http.Header{"Retry-After": {"1"}}
		}
	}
	return f
}

func (t *QueueTarget) sinkFault(r targettest.Request) targettest.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.draw()
	if f.Header != nil {
		t.refused[mark(r)] = true
	}
	return f
}

// mark tells a request from all others.
func mark(r targettest.Request) string { return fmt.Sprint(r.ID, r.At.UnixNano()) }

func (t *QueueTarget) ledgerFault(*http.Request) targettest.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draw()
}

func (t *QueueTarget) now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Add(t.passed)
}

// Forget makes a ledger forget what it may: by a restart, or because time passed.
func (t *QueueTarget) Forget() string {
	switch {
	case t.scabbard != nil:
		t.scabbard.Restart()
		return "scabbard restarted"
	case t.sawtooth == nil:
		return ""
	}
	t.mu.Lock()
	long := t.random.IntN(2) == 0
	if long {
		t.passed += 600 * time.Second
	}
	t.mu.Unlock()
	if long {
		return "sawtooth's 600 s passed"
	}
	t.sawtooth.Restart()
	return "sawtooth restarted"
}

// Arrivals are the requests so far.
func (t *QueueTarget) Arrivals() (out []Arrival) {
	var effects []string
	switch {
	case t.sawtooth != nil:
		effects = t.sawtooth.Effects()
	case t.scabbard != nil:
		effects = t.scabbard.Effects()
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, r := range t.sink.Requests() {
			out = append(out, Arrival{ID: r.ID, Term: r.Term, At: r.At, Effect: r.Effect, Refused: r.Stale || t.refused[mark(r)]})
		}
	}
	for _, id := range effects {
		out = append(out, Arrival{ID: id, Effect: true})
	}
	return out
}

// Has reports whether a batch took effect.
func (t *QueueTarget) Has(id string) bool {
	for _, a := range t.Arrivals() {
		if a.ID == id && a.Effect {
			return true
		}
	}
	return false
}
