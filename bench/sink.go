package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// sinkRole is a sink: an HTTP server that takes what is delivered
// and judges it.
//
//	POST /in/WHO      a delivery by WHO, answered with 200
//	POST /gate/WHO    the same, answered once the gate is open
//	GET  /status/ID   404: what was not answered has not come
//	POST /open        opens the gate
//	POST /clear       forgets everything, and closes the gate
//	GET  /seen        what came so far (seen)
//	GET  /first       when each key's first delivery came (map of key to boot-time nanoseconds)
const sinkRole = "sink"

// message is the payload of everything that is delivered here: the N-th of its
// key, from 1, enqueued at a moment of the boot-time clock (0: that is not asked).
// It is written as PostgreSQL prints a jsonb value, so that a queue that stores
// jobs as such sends the same bytes as one that stores bytes.
func message(key string, n int, at time.Duration) []byte {
	return fmt.Appendf(nil, `{"n": %d, "at": %d, "key": "%s", "text": "%s"}`, n, at, key, padding)
}

var padding = strings.Repeat("The understudy knows every line. ", 5)

// readMessage is made for the one form of message; it costs next to nothing.
func readMessage(body []byte) (key string, n int, at time.Duration, err error) {
	number := func(name string) (v int64) {
		_, rest, found := bytes.Cut(body, []byte(name))
		digits, _, ended := bytes.Cut(rest, []byte(","))
		v, e := strconv.ParseInt(string(digits), 10, 64)
		if err == nil && (!found || !ended || e != nil) {
			err = fmt.Errorf("no %s in %q", name, body)
		}
		return v
	}
	n, at = int(number(`"n": `)), time.Duration(number(`"at": `))
	_, rest, _ := bytes.Cut(body, []byte(`"key": "`))
	name, _, found := bytes.Cut(rest, []byte(`"`))
	if err == nil && !found {
		err = fmt.Errorf("no key in %q", body)
	}
	return string(name), n, at, err
}

// seen is what a sink saw.
type seen struct {
	// Distinct messages, those that came again, those that came before one that
	// precedes them in their key, and bodies that were none.
	Distinct, Again, Misordered, Broken int64
	// First and Last are when the first and the last distinct one came.
	First, Last time.Duration
	// Late is how long messages took since they were enqueued, in order.
	Late sample
}

// rate of distinct messages between the first and the last one.
func (s seen) rate() float64 {
	if s.Last <= s.First {
		return 0
	}
	return float64(s.Distinct-1) / (s.Last - s.First).Seconds()
}

// keyLog is what came of one key.
type keyLog struct {
	bits  []uint64 // of the messages that came, by number
	last  int      // the number of the latest new one
	first time.Duration
}

// add tells whether message n is new, and in order.
func (k *keyLog) add(n int) (fresh, ordered bool) {
	for n/64 >= len(k.bits) {
		k.bits = append(k.bits, 0)
	}
	bit := uint64(1) << (n % 64)
	if k.bits[n/64]&bit != 0 {
		return false, true
	}
	k.bits[n/64] |= bit
	ordered = n == k.last+1
	k.last = n
	return true, ordered
}

// sinkParts is how many parts the keys are divided into, so that handlers
// seldom wait for each other.
const sinkParts = 64

type sinkPart struct {
	sync.Mutex
	keys map[string]*keyLog
	seen
}

type sinkServer struct {
	clock lease.Clock
	seed  maphash.Seed
	parts [sinkParts]sinkPart

	gate atomic.Pointer[chan struct{}]
}

func runSink(c *child, _ struct{}) error {
	s := &sinkServer{clock: c.clock, seed: maphash.MakeSeed()}
	s.clear()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /in/{who}", func(w http.ResponseWriter, r *http.Request) { s.take(w, r) })
	mux.HandleFunc("POST /gate/{who}", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-*s.gate.Load():
		case <-r.Context().Done():
			return
		}
		s.take(w, r)
	})
	mux.HandleFunc("GET /status/{id}", http.NotFound)
	mux.HandleFunc("POST /open", func(http.ResponseWriter, *http.Request) { close(*s.gate.Load()) })
	mux.HandleFunc("POST /clear", func(http.ResponseWriter, *http.Request) { s.clear() })
	mux.HandleFunc("GET /seen", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.sum()) })
	mux.HandleFunc("GET /first", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.firsts()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- (&http.Server{Handler: mux}).Serve(l) }()
	c.say(saidReady, "http://"+l.Addr().String())
	c.untilClosed()
	_ = l.Close()
	<-ended
	return nil
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (s *sinkServer) take(w http.ResponseWriter, r *http.Request) {
	now := s.clock.Now()
	b := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(b)
	b.Reset()
	_, err := b.ReadFrom(r.Body)
	var key string
	var n int
	var at time.Duration
	if err == nil {
		key, n, at, err = readMessage(b.Bytes())
	}
	part := &s.parts[maphash.String(s.seed, key)%sinkParts]
	part.Lock()
	defer part.Unlock()
	if err != nil {
		part.Broken++
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	log := part.keys[key]
	if log == nil {
		log = &keyLog{first: now}
		part.keys[key] = log
	}
	fresh, ordered := log.add(n)
	if !ordered {
		part.Misordered++
	}
	if !fresh {
		part.Again++
		return
	}
	part.Distinct++
	if part.First == 0 {
		part.First = now
	}
	part.Last = max(part.Last, now)
	if at > 0 {
		part.Late = append(part.Late, now-at)
	}
}

func (s *sinkServer) sum() (all seen) {
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		all.Distinct += p.Distinct
		all.Again += p.Again
		all.Misordered += p.Misordered
		all.Broken += p.Broken
		if p.First > 0 && (all.First == 0 || p.First < all.First) {
			all.First = p.First
		}
		all.Last = max(all.Last, p.Last)
		all.Late = append(all.Late, p.Late...)
		p.Unlock()
	}
	return all
}

func (s *sinkServer) firsts() map[string]time.Duration {
	out := map[string]time.Duration{}
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		for key, log := range p.keys {
			out[key] = log.first
		}
		p.Unlock()
	}
	return out
}

func (s *sinkServer) clear() {
	gate := make(chan struct{})
	s.gate.Store(&gate)
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		p.keys, p.seen = map[string]*keyLog{}, seen{}
		p.Unlock()
	}
}

// sink is a sink process as seen from here.
type sink struct {
	b    *bed
	m    *member
	url  string
	http http.Client
}

func startSink(b *bed) *sink {
	m := launch(b, sinkRole, struct{}{})
	return &sink{b: b, m: m, url: m.await(saidReady, time.Minute).more, http: http.Client{Timeout: 30 * time.Second}}
}

// post and get talk to the sink's own side; that they fail ends the run.
func (s *sink) post(path string) { s.call(http.MethodPost, path, nil) }

func (s *sink) seen() (out seen) {
	s.call(http.MethodGet, "/seen", &out)
	return out
}

func (s *sink) firsts() (out map[string]time.Duration) {
	s.call(http.MethodGet, "/first", &out)
	return out
}

func (s *sink) call(method, path string, out any) {
	req, err := http.NewRequest(method, s.url+path, nil)
	s.b.check(err, "asking the sink")
	resp, err := s.http.Do(req)
	s.b.check(err, "asking the sink")
	defer resp.Body.Close()
	if out != nil {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		s.b.Fatalf("bench: the sink's answer to %s: %s, %v", path, resp.Status, err)
	}
}

// await waits until so many distinct messages came.
func (s *sink) await(ctx context.Context, want int64, within time.Duration) seen {
	deadline := time.Now().Add(within)
	for {
		got := s.seen()
		if got.Distinct >= want {
			return got
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			s.b.Fatalf("bench: %d of %d messages came within %v", got.Distinct, want, within)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
