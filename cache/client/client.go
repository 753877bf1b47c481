package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/internal/backoff"
)

// Client asks servers. Its methods may be called from many goroutines.
type Client struct {
	cfg     Config
	epoch   time.Time
	servers []*server
	calls   sync.Pool
	turn    atomic.Uint32
	up      signal // a server has connected
	stop    context.CancelFunc
	ctx     context.Context // ends with Close
	counts  counts
}

// New checks the configuration and starts to connect. It does not wait for a
// connection.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg.withDefaults(), epoch: time.Now().Add(-time.Hour)}
	c.calls.New = newCall
	c.ctx, c.stop = context.WithCancel(context.Background())
	for _, addr := range c.cfg.Servers {
		s, err := c.newServer(addr)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

// Close ends every Get with [ErrClosed], and all connections. It returns when nothing of
// the client runs any more.
func (c *Client) Close() error {
	c.stop()
	for _, s := range c.servers {
		s.close()
	}
	return nil
}

// now is the time since the client's epoch, which is never 0.
func (c *Client) now() time.Duration { return time.Since(c.epoch) }

// Options say which copy will do.
type Options struct {
	// After asks for a copy that expires after this; zero: any copy, however stale.
	After time.Time
	// Refresh asks for a fetch even where a fresh copy is held. The original's servers
	// ignore it; with them, After: time.Now() is the nearest.
	Refresh bool
}

// Item is a value and where it comes from.
type Item struct {
	Value  []byte    // the caller's own
	Expire time.Time // until then it is fresh, by the servers' clocks
	Made   time.Time // when its fetch began; zero: the server did not say
	Term   int64     // in which it was fetched: a newer value has a higher one; 0: not said
}

// Get asks for the value of a key. It waits until the context ends, at most for
// Config.Timeout. The errors are those of the package; with [ErrTimeout] and at the
// end of the context its error is wrapped too.
func (c *Client) Get(ctx context.Context, key string, o Options) (Item, error) {
	c.counts.gets.Add(1)
	if key == "" {
		return Item{}, fmt.Errorf("%w: the key is empty", ErrBadRequest)
	}
	if len(key) > maxKey {
		return Item{}, fmt.Errorf("%w: it has %d bytes; at most %d can be sent", ErrTooLarge, len(key), maxKey)
	}
	call := c.calls.Get().(*call)
	defer c.recycle(call)
	call.key = append(call.key[:0], key...)
	call.request = wire.Request{Op: wire.OpGet, Key: call.key, Extended: true, Refresh: o.Refresh}
	if !o.After.IsZero() {
		call.request.After = max(o.After.UnixMilli(), 0)
	}
	r, err := c.send(ctx, call)
	if err != nil {
		c.counts.errors.Add(1)
		return Item{}, err
	}
	item := Item{Value: r.Value, Expire: time.UnixMilli(r.Expire), Term: r.Term}
	if r.Made > 0 {
		item.Made = time.UnixMilli(r.Made)
	}
	return item, nil
}

// recycle must not be called while a server may still finish the call.
func (c *Client) recycle(call *call) {
	call.reply, call.request = reply{}, wire.Request{}
	c.calls.Put(call)
}

// send tries a request at one server after the other.
func (c *Client) send(ctx context.Context, call *call) (wire.Reply, error) {
	a := request{client: c, call: call, deadline: c.now() + c.cfg.Timeout, turn: c.turn.Add(1)}
	if at, ok := ctx.Deadline(); ok && at.Sub(c.epoch) < a.deadline {
		a.deadline, a.byContext = at.Sub(c.epoch), true
	}
	for {
		r, done, err := a.tryOnce(ctx)
		if err != nil {
			return wire.Reply{}, err
		}
		if done {
			return r, nil
		}
		c.counts.retries.Add(1)
	}
}

// validity is how far ahead the wall clock is set after which a server ignores a
// request: it is the original's, and covers clocks that are a little off.
const validity = 5 * time.Second

// request is the state of one request over its tries.
type request struct {
	client   *Client
	call     *call
	deadline time.Duration // since the client's epoch

	byContext bool   // the deadline is the context's
	turn      uint32 // the next server
	refused   int    // times a server refused for a reason of its own
	again     int    // times "ask another" was said
	notes     notes
}

// tryOnce gives the request to one server and waits. done is false when another is to be
// asked.
func (a *request) tryOnce(ctx context.Context) (r wire.Reply, done bool, err error) {
	c, call := a.client, a.call
	s, err := a.waitForServer(ctx)
	if err != nil {
		return r, false, err
	}
	switch call.wait(ctx, c, a.deadline) {
	case stopped:
		s.forget(call)
		return r, false, a.timeoutError(ctx)
	case expired:
		s.forget(call)
		a.notes.add(s.addr, a.explain("had not answered"))
		return r, false, a.timeoutError(ctx)
	case silent:
		s.forget(call)
		s.avoidForNow()
		c.counts.silent.Add(1)
		a.notes.add(s.addr, a.explain("did not answer in time"))
		return r, false, nil
	}
	if lost := call.reply.lost; lost != nil {
		if errors.Is(lost, ErrClosed) {
			return r, false, ErrClosed
		}
		a.notes.add(s.addr, "broke off: "+lost.Error())
		return r, false, nil
	}
	switch r = call.reply.Reply; r.Kind {
	case wire.ReplySeeOther:
		a.notes.add(s.addr, "said to ask another")
		c.counts.referred.Add(1)
		return r, false, a.backOff(ctx)
	case wire.ReplyError:
		refusal := &Refusal{Server: s.addr, Code: r.Code, Text: r.Text, RetryAfter: r.Retry}
		a.refused++
		if !refusal.allowsOtherServer() || a.refused >= c.connected() {
			return r, false, refusal
		}
		a.notes.add(s.addr, "said "+string(r.Code))
		return r, false, nil
	}
	return r, true, nil
}

// explain adds to what a server did whether it said that it was waiting.
func (a *request) explain(what string) string {
	if a.call.alive.Load() > 0 {
		return what + ", but said that it was waiting"
	}
	return what
}

// waitForServer gives the request to the next server that can take it, and waits for one while
// none is connected.
func (a *request) waitForServer(ctx context.Context) (*server, error) {
	c := a.client
	for {
		left := a.deadline - c.now()
		if left <= 0 || ctx.Err() != nil {
			return nil, a.timeoutError(ctx)
		}
		// Whole milliseconds, rounded up: 0 would mean that nothing was said.
		a.call.request.Patience = int64((left + time.Millisecond - 1) / time.Millisecond)
		a.call.request.Expire = time.Now().Add(validity).UnixMilli()
		s, state := a.nextServer()
		switch state {
		case taken:
			return s, nil
		case full:
			return nil, fmt.Errorf("%w: as many requests wait for every server that is connected as may (%d)", ErrOverloaded, c.cfg.InFlight)
		}
		if err := a.pause(ctx, c.up.wait(), lookAgain); err != nil {
			return nil, err
		}
	}
}

// lookAgain is how long a request without a server waits at most before it looks again:
// one may have connected just before it began to wait.
const lookAgain = 50 * time.Millisecond

// pause waits for a time, or until wake, but not beyond the deadline.
func (a *request) pause(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(min(d, a.deadline-a.client.now()))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return a.timeoutError(ctx)
	case <-a.client.ctx.Done():
		return ErrClosed
	}
	return nil
}

// nextServer goes round, from the server whose turn it is, and asks those that are passed
// over only when no other can take the request.
func (a *request) nextServer() (*server, room) {
	list := a.client.servers
	n := uint32(len(list))
	first, best := a.turn%n, down
	var passedOver [maxServers]bool
	for _, again := range []bool{false, true} {
		for i := range n {
			at := (first + i) % n
			s := list[at]
			if !again {
				passedOver[at] = s.isPassedOver()
			}
			if passedOver[at] != again {
				continue
			}
			state := s.offer(a.call)
			if state == taken {
				a.turn = at + 1
				return s, taken
			}
			best = max(best, state)
		}
	}
	return nil, best
}

// backOff waits before another server is asked, because this one said so.
func (a *request) backOff(ctx context.Context) error {
	a.again++
	return a.pause(ctx, nil, backoff.Pause(a.again, 10*time.Millisecond, a.client.cfg.rules.backOff))
}

// timeoutError is the error when the time has ended or the context has ended.
func (a *request) timeoutError(ctx context.Context) error {
	said := a.notes.String()
	if said == "" {
		said = "no server was connected: " + a.client.connectionErrors()
	}
	cause := ctx.Err()
	if cause == nil && a.byContext {
		cause = context.DeadlineExceeded // its timer is about to go off
	}
	switch {
	case cause == nil:
		return fmt.Errorf("%w: %s", ErrTimeout, said)
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w: %s", ErrTimeout, cause, said)
	}
	return fmt.Errorf("client: given up: %w: %s", cause, said)
}
