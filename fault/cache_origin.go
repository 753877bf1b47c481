//go:build linux

package fault

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/origin"
	"github.com/understudy-ha/understudy/lease"
)

// Origin is a slow source over HTTP, of which it remembers every call: it is where
// one sees whether two peers fetch at once. A peer asks below a URL of its own, by
// which it is known.
type Origin struct {
	// URL without the peer's name.
	URL string

	over   context.Context
	mu     sync.Mutex
	calls  []*originCall
	plan   func(Call) Plan
	begun  chan struct{} // closed and replaced with each call
	paused map[string]pause
	killed map[string]time.Duration
	woke   time.Duration // when the machine went on last, after it had stood still
	stands int           // how often it did
	gates  chan Gate
}

// Plan is how a call is answered: after Delay, or, with Hold, not before the caller
// has gone.
type Plan struct {
	Delay  time.Duration
	Hold   bool
	Status int // 0: 200
	Header http.Header
	Size   int // of the value, at least; 0: as short as may be
}

type originCall struct {
	Call
	conn net.Conn
}

// pause is when a peer was stopped last, and when it went on; 0 when it has not.
type pause struct{ since, until time.Duration }

// Gate is a place at which a peer of the cacheworker waits until it is told to continue.
type Gate struct {
	Peer, Key, At string
	GoOn          func()
}

// awake is how long a peer that was stopped may take to see what it missed; buried is
// how long the kernel may take, after it has closed a killed peer's connections to the
// others, to close those to the origin, and to end the peer's program.
const (
	awake  = time.Second
	buried = time.Second
)

type connKey struct{}

// since is the time of calls and answers: the host's boot clock.
func since() time.Duration { return lease.BootClock().Now() }

// NewOrigin starts an origin on an address of this host. It answers at once, until
// it is told otherwise, and ends with the test.
func NewOrigin(tb testing.TB, listen string) *Origin {
	tb.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		tb.Fatal(err)
	}
	over, end := context.WithCancel(context.Background())
	o := &Origin{URL: "http://" + l.Addr().String(), over: over, begun: make(chan struct{}), paused: map[string]pause{}, killed: map[string]time.Duration{},
		plan: func(Call) Plan { return Plan{} }, gates: make(chan Gate, 64)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /of/{peer}/{key}", o.serve)
	mux.HandleFunc("POST /gate/{peer}/{at}", o.gate)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }}
	go func() { _ = server.Serve(l) }()
	go o.watch()
	tb.Cleanup(func() { end(); server.Close() })
	return o
}

// Of is the source of a peer, as a URL with {key}.
func (o *Origin) Of(peer string) string { return o.URL + "/of/" + peer + "/{key}" }

// Answer sets how calls are answered from now on.
func (o *Origin) Answer(plan func(Call) Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.plan = plan
}

// Takes has every call take a time.
func (o *Origin) Takes(d time.Duration) { o.Answer(func(Call) Plan { return Plan{Delay: d} }) }

func (o *Origin) serve(w http.ResponseWriter, r *http.Request) {
	term, _ := strconv.ParseInt(r.Header.Get(origin.HeaderTerm), 10, 64)
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	c, plan := o.begin(&originCall{Call: Call{Peer: r.PathValue("peer"), Key: r.PathValue("key"), Term: term}, conn: conn})
	if c == nil {
		return
	}
	var delay <-chan time.Time
	if !plan.Hold {
		delay = time.After(plan.Delay)
	}
	select {
	case <-delay:
	case <-r.Context().Done():
		o.end(c, "")
		return
	case <-o.over.Done():
		o.end(c, "")
		return
	}
	maps.Copy(w.Header(), plan.Header)
	if plan.Status != 0 && plan.Status != http.StatusOK {
		o.end(c, "")
		http.Error(w, "not now", plan.Status)
		return
	}
	value := fmt.Sprintf("%s %d %d ", c.Key, c.Term, c.N)
	if plan.Size > len(value) {
		value += strings.Repeat("x", plan.Size-len(value))
	}
	// Before it is sent: who has it may have the next one started.
	o.end(c, value)
	_, _ = w.Write([]byte(value))
}

func (o *Origin) begin(c *originCall) (*originCall, Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gone(c.conn) {
		return nil, Plan{} // it was given up before anybody looked at it
	}
	c.N, c.Begun = len(o.calls), since()
	if p, ok := o.paused[c.Peer]; ok && (p.until == 0 || c.Begun < p.until+awake) || o.stands > 0 && c.Begun < o.woke+awake {
		c.Apart = true
	}
	for _, other := range o.calls {
		if other.Key != c.Key || other.Ended != 0 {
			continue
		}
		if gone(other.conn) {
			other.Ended = c.Begun // its handler will see it in a moment
			continue
		}
		if at, ok := o.killed[other.Peer]; ok && other.Begun < at && c.Begun < at+buried {
			continue
		}
		c.Beside = append(c.Beside, other.N)
	}
	o.calls = append(o.calls, c)
	close(o.begun)
	o.begun = make(chan struct{})
	return c, o.plan(c.Call)
}

// gone reports whether the other end has closed, which the kernel knows before a
// goroutine of this process does.
func gone(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	over := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		over = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return over || err != nil
}

func (o *Origin) end(c *originCall, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.Ended == 0 {
		c.Ended = since()
	}
	c.Value = value
}

// Pausing tells that a peer was stopped, or continues.
func (o *Origin) Pausing(peer string, stopped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := since()
	if !stopped {
		p := o.paused[peer]
		p.until = now
		o.paused[peer] = p
		return
	}
	o.paused[peer] = pause{since: now}
	for _, c := range o.calls {
		if c.Peer == peer && c.Ended == 0 {
			c.Apart = true
		}
	}
}

// watch sees when the whole machine stands still, which pauses every peer.
func (o *Origin) watch() {
	const tick, still = 50 * time.Millisecond, 500 * time.Millisecond
	for last := since(); o.over.Err() == nil; {
		<-time.After(tick)
		now := since()
		if now-last > still {
			o.still(last, now)
		}
		last = now
	}
}

// still sets the calls apart that a standstill of the machine met, or that have started
// at its end, before it was seen.
func (o *Origin) still(from, until time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.woke = until
	o.stands++
	for _, c := range o.calls {
		if c.Ended == 0 || c.Ended > from {
			c.Apart = true
		}
	}
}

// Standstills is how often the machine stood still.
func (o *Origin) Standstills() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stands
}

// Killing tells that a peer is about to be killed.
func (o *Origin) Killing(peer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killed[peer] = since()
}

// Calls are all calls so far, in the order of their begin.
func (o *Origin) Calls() []Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]Call, len(o.calls))
	for i, c := range o.calls {
		out[i] = c.Call
		out[i].Beside = slices.Clone(c.Beside)
	}
	return out
}

// Await waits for the first call for a key after the first n of all.
func (o *Origin) Await(tb testing.TB, key string, n int, within time.Duration) Call {
	tb.Helper()
	for deadline := time.After(within); ; {
		o.mu.Lock()
		begun := o.begun
		at := slices.IndexFunc(o.calls[min(n, len(o.calls)):], func(c *originCall) bool { return c.Key == key })
		if at >= 0 {
			defer o.mu.Unlock()
			return o.calls[n+at].Call
		}
		o.mu.Unlock()
		select {
		case <-begun:
		case <-deadline:
			tb.Fatalf("nobody fetched %s within %v", key, within)
		}
	}
}

// Running are the calls for a key that have not ended.
func (o *Origin) Running(key string) []Call {
	return slices.DeleteFunc(o.Calls(), func(c Call) bool { return c.Key != key || c.Ended != 0 })
}

// GateOf is where a peer of the cacheworker says that it has come to a gate.
func (o *Origin) GateOf(peer string) string { return o.URL + "/gate/" + peer }

func (o *Origin) gate(_ http.ResponseWriter, r *http.Request) {
	ctx, goOn := context.WithCancel(r.Context())
	defer goOn()
	select {
	case o.gates <- Gate{Peer: r.PathValue("peer"), Key: r.FormValue("key"), At: r.PathValue("at"), GoOn: goOn}:
	case <-ctx.Done():
		return
	case <-o.over.Done():
		return
	}
	select {
	case <-ctx.Done():
	case <-o.over.Done():
	}
}

// AwaitGate waits until a peer has come to a gate.
func (o *Origin) AwaitGate(tb testing.TB, at string, within time.Duration) Gate {
	tb.Helper()
	for deadline := time.After(within); ; {
		select {
		case g := <-o.gates:
			if g.At == at {
				return g
			}
			g.GoOn()
		case <-deadline:
			tb.Fatalf("nobody came to the gate %q within %v", at, within)
		}
	}
}
