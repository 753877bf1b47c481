package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api"
)

// byHeader is the header by which the world knows which instance delivers.
const byHeader = "X-Demo-Instance"

// slowness is how long the source of the cache's values takes.
const slowness = 2 * time.Second

// world is what the instances work for: it takes batches and alarms, and gives slow
// values. It is not what is demonstrated, and does not die.
type world struct {
	run      string
	url      string
	listener net.Listener
	server   *http.Server

	// Who is told of what comes. Set before start.
	onAlarm func(status, source string)
	onBatch func(key, by string)
	onAsk   func(key, by string) (answered func())

	effort atomic.Int64 // how long it takes to do what a batch says

	mu     sync.Mutex
	keys   map[string]*keyState
	ids    map[string]bool // batches that have arrived
	tally  tally
	alarms map[string]int // "ONSET sensor-4" and the like, with how often each was told
	told   map[string]time.Time
	asked  map[string][]string // by whom the source was asked for a key
	held   map[string]bool     // keys whose first asker gets nothing
}

// keyState is what has arrived of a key.
type keyState struct {
	last int64 // number of the latest
	by   string
}

// tally is what has arrived.
type tally struct{ delivered, disordered, twice int64 }

func (t tally) String() string {
	return fmt.Sprintf("%d delivered, %d out of order, %d twice", t.delivered, t.disordered, t.twice)
}

// batch is the payload of a batch.
type batch struct {
	Run    string `json:"run"`
	Key    string `json:"key"`
	Number int64  `json:"number"` // 1, 2, 3 … of each key
}

func newWorld(d *demo) (*world, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &world{
		run: d.run, listener: l, url: "http://" + l.Addr().String(), keys: map[string]*keyState{}, ids: map[string]bool{},
		alarms: map[string]int{}, told: map[string]time.Time{}, asked: map[string][]string{}, held: map[string]bool{},
		onAlarm: func(string, string) {}, onBatch: func(string, string) {}, onAsk: func(string, string) func() { return func() {} },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /deliver", w.deliver)
	mux.HandleFunc("GET /status/{id}", w.status)
	mux.HandleFunc("POST /alarm", w.alarm)
	mux.HandleFunc("GET /slow/{by}/{key}", w.serveSlowValue)
	w.server = api.NewHTTPServer(mux, quietLog())
	return w, nil
}

// start answers, from now on.
func (w *world) start() { go func() { _ = w.server.Serve(w.listener) }() }

func (w *world) close() {
	_ = w.server.Close()
	_ = w.listener.Close()
}

// deliver takes a batch, and checks that it is the next of its key.
func (w *world) deliver(out http.ResponseWriter, r *http.Request) {
	var b batch
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&b); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if b.Run != w.run {
		return // of another demonstration on the same store
	}
	// Once started it is done, whether who sent it lives or not.
	time.Sleep(time.Duration(w.effort.Load()))
	id, by := r.Header.Get("Idempotency-Key"), r.Header.Get(byHeader)
	w.mu.Lock()
	if w.ids[id] {
		w.tally.twice++
	} else {
		k := w.keys[b.Key]
		if k == nil {
			k = &keyState{}
			w.keys[b.Key] = k
		}
		if b.Number != k.last+1 {
			w.tally.disordered++
		}
		w.ids[id], k.last, k.by = true, b.Number, by
		w.tally.delivered++
	}
	w.mu.Unlock()
	w.onBatch(b.Key, by)
}

// status tells what became of a batch.
func (w *world) status(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ids[r.PathValue("id")] {
		http.NotFound(out, r)
		return
	}
	fmt.Fprintln(out, `{"status":"committed"}`)
}

// alarm takes a message of the monitor.
func (w *world) alarm(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		Status string `json:"status"`
		Event  string `json:"event"`
		Source string `json:"source"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&m) != nil || m.Event != EventName {
		return
	}
	w.mu.Lock()
	w.alarms[m.Status+" "+m.Source]++
	w.told[m.Status+" "+m.Source] = time.Now()
	w.mu.Unlock()
	w.onAlarm(m.Status, m.Source)
}

// serveSlowValue gives a value, after a while.
func (w *world) serveSlowValue(out http.ResponseWriter, r *http.Request) {
	key, by := r.PathValue("key"), r.PathValue("by")
	w.mu.Lock()
	w.asked[key] = append(w.asked[key], by)
	n := len(w.asked[key])
	held := n == 1 && w.held[key]
	w.mu.Unlock()
	defer w.onAsk(key, by)()
	var done <-chan time.Time
	if !held {
		done = time.After(slowness)
	}
	select {
	case <-r.Context().Done():
	case <-done:
		fmt.Fprintf(out, "%s, fetch %d, by %s\n", key, n, by)
	}
}

// delayFirst lets the first who asks for a key wait until it goes.
func (w *world) delayFirst(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[key] = true
}

// callersOf are who asked the source for a key.
func (w *world) callersOf(key string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.asked[key]...)
}

// keysOf are the keys of which an instance delivered the latest batch.
func (w *world) keysOf(by string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, k := range w.keys {
		if k.by == by {
			out = append(out, key)
		}
	}
	return out
}

func (w *world) count() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
}

// otherAlarms is how many messages told of other sources.
func (w *world) otherAlarms(source string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, times := range w.alarms {
		if !strings.HasSuffix(what, " "+source) {
			n += times
		}
	}
	return n
}

// alarmsOf is how often a message of a source was told, and when the last time.
func (w *world) alarmsOf(status, source string) (n int, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alarms[status+" "+source], w.told[status+" "+source]
}

// answers reports whether a URL answers with success.
func answers(ctx context.Context, url string) bool {
	_, err := get(ctx, url, time.Second)
	return err == nil
}

// get is the body that a URL answers with.
func get(ctx context.Context, url string, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if answer.StatusCode != http.StatusOK {
		return "", cmp.Or(err, fmt.Errorf("%s: %s", url, answer.Status))
	}
	return string(text), err
}
