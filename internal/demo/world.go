package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api"
)

// byHeader is the header by which the world knows which instance delivers.
const byHeader = "X-Demo-Instance"

// slowness is how long the origin of the cache's values takes.
const slowness = 2 * time.Second

// world is what the instances work for: it takes messages and alarms, and gives slow
// values. It is not what is demonstrated, and does not die.
type world struct {
	run      string
	url      string
	listener net.Listener
	server   *http.Server

	// What is called for all that comes. Set before start, as workTime.
	onAlarm   func(status, source string)
	onMessage func(key, by string, at time.Time)
	onFetch   func(key, by string) (answered func())
	workTime  time.Duration // how long it takes to do what a message says

	mu    sync.Mutex
	keys  map[string]*keyState
	ids   map[string]bool // of messages that have arrived
	tally tally
	asked map[string][]string // by whom the origin was asked for a key
	held  map[string]bool     // keys whose first fetch gets nothing
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

// payload is that of a message.
type payload struct {
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
		run: d.run, listener: l, url: "http://" + l.Addr().String(),
		keys: map[string]*keyState{}, ids: map[string]bool{}, asked: map[string][]string{}, held: map[string]bool{},
		onAlarm: func(string, string) {}, onMessage: func(string, string, time.Time) {}, onFetch: func(string, string) func() { return func() {} },
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

// deliver takes a message, and checks that it is the next of its key.
func (w *world) deliver(out http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var m payload
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&m); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if m.Run != w.run {
		return // of another demonstration on the same store
	}
	// Once started it is done, whether who sent it lives or not.
	time.Sleep(w.workTime)
	id, by := r.Header.Get("Idempotency-Key"), r.Header.Get(byHeader)
	w.mu.Lock()
	if w.ids[id] {
		w.tally.twice++
	} else {
		k := w.keys[m.Key]
		if k == nil {
			k = &keyState{}
			w.keys[m.Key] = k
		}
		if m.Number != k.last+1 {
			w.tally.disordered++
		}
		w.ids[id], k.last, k.by = true, m.Number, by
		w.tally.delivered++
	}
	w.mu.Unlock()
	w.onMessage(m.Key, by, at)
}

// status answers what became of a message.
func (w *world) status(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ids[r.PathValue("id")] {
		http.NotFound(out, r)
		return
	}
	fmt.Fprintln(out, `{"status":"committed"}`)
}

// alarm takes an alarm of the monitor.
func (w *world) alarm(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		Status string `json:"status"`
		Event  string `json:"event"`
		Source string `json:"source"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&m) != nil || m.Event != CheckName {
		return
	}
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
	defer w.onFetch(key, by)()
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

// delayFirst lets the first fetch of a key wait until its instance ends.
func (w *world) delayFirst(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[key] = true
}

// callersOf are who asked the origin for a key.
func (w *world) callersOf(key string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.asked[key]...)
}

// keysOf are the keys of which an instance delivered the latest message.
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

// numberOf is the number of a key's latest message.
func (w *world) numberOf(key string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[key]; k != nil {
		return k.last
	}
	return 0
}

func (w *world) count() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
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
