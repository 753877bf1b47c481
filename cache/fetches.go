package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// fetches calls the origin: at most limit calls at a time, and one for a key, even
// when an older call has not returned although it was told to. Each call has a
// timer of its own that ends it when the authority for it does, whatever the rest
// of the peer is doing.
type fetches struct {
	origin   Origin
	limit    int
	maxValue int
	clock    lease.Clock
	report   func(protocol.Fetched) // may block; not called for a fetch that was aborted
	stats    *counters
	log      *slog.Logger

	mu         sync.Mutex
	stopped    bool
	calls      map[string][]*call // by key: those that run or wait, in order of terms
	waiting    fairQueue          // for a free place
	running    int
	goroutines sync.WaitGroup // calls that run
	reports    sync.WaitGroup // of calls that ran; it grows only while one of goroutines runs
}

// call is one call of the origin, or one that waits for its turn.
type call struct {
	protocol.StartFetch
	client  any // whose request it serves; nil: a caller in this process, or none
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	running bool
	ended   bool // nobody wants its result
}

func newFetches(cfg Config, stats *counters, report func(protocol.Fetched)) *fetches {
	return &fetches{origin: cfg.Origin, limit: cfg.Fetches, maxValue: cfg.MaxValue,
		clock: cfg.Clock, report: report, stats: stats, log: cfg.Logger, calls: map[string][]*call{}, waiting: newFairQueue()}
}

// start starts a fetch for a client's request, or makes it wait for the client's turn.
func (f *fetches) start(e protocol.StartFetch, client any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	c := &call{StartFetch: e, client: client}
	if f.stopped {
		f.reportEnd(c, errStopping) // decided before the machine heard that the peer stops
		return
	}
	if e.Until <= now {
		f.reportEnd(c, c.expiry(now))
		return
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.timer = time.AfterFunc(e.Until-now, func() { f.expire(c) })
	f.calls[e.Key] = append(f.calls[e.Key], c)
	f.waiting.add(c)
	f.stats.fetches.Add(1)
	f.startWaiting()
}

// startWaiting starts waiting calls while there are free places; f.mu is held.
func (f *fetches) startWaiting() {
	// One call per key at a time, also when an older one still runs although it was told to stop.
	first := func(c *call) bool { return f.calls[c.Key][0] == c }
	for !f.stopped && f.running < f.limit {
		c := f.waiting.next(first)
		if c == nil {
			return
		}
		f.running++
		c.running = true
		f.goroutines.Go(func() { f.run(c) })
	}
}

// trust moves the time at which a fetch must have stopped.
func (f *fetches) trust(e protocol.Trust) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.find(e.Key, e.Term); c != nil {
		c.Until = e.Until
		f.checkDeadline(c)
	}
}

// abort ends a fetch whose result nobody wants.
func (f *fetches) abort(e protocol.Abort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.find(e.Key, e.Term); c != nil {
		f.stats.fetchAborted.Add(1)
		f.endCall(c, fmt.Errorf("cache: the fetch must stop: %s", e.Why))
	}
}

func (f *fetches) find(key string, term int64) *call {
	for _, c := range f.calls[key] {
		if c.Term == term && !c.ended {
			return c
		}
	}
	return nil
}

// expire is called by a call's timer, which may be early: Until may have moved.
func (f *fetches) expire(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !c.ended {
		f.checkDeadline(c)
	}
}

// checkDeadline ends a call whose time has come, and sets the timer of another; f.mu is held.
func (f *fetches) checkDeadline(c *call) {
	now := f.clock.Now()
	if left := c.Until - now; left > 0 {
		c.timer.Reset(left)
		return
	}
	f.stats.fetchAborted.Add(1)
	why := c.expiry(now)
	f.endCall(c, why)
	f.reportEnd(c, why)
}

// expiry is why a call has to end now: the origin took too long, or a majority is promised no longer.
func (c *call) expiry(now time.Duration) error {
	if now >= c.Deadline {
		return errDeadline
	}
	return errTrustEnded
}

// reportEnd reports a call that ended with its time. The machine counts the same time and mostly knows, always at the
// deadline; but a promise that it heard of a moment before, and whose Trust is not here yet, has it wait for a fetch that
// has ended.
func (f *fetches) reportEnd(c *call, why error) {
	go f.report(f.outcome(c, Value{}, why)) // not one of goroutines: it waits for the loop, and stop for the origin
}

// endCall ends a call: nobody wants its result any more. One that runs keeps its place until it has
// returned; f.mu is held.
func (f *fetches) endCall(c *call, why error) {
	c.ended = true
	c.timer.Stop()
	c.cancel(why)
	if !c.running {
		f.removeCall(c)
		f.waiting.remove(c)
		f.startWaiting()
	}
}

// removeCall takes a call that has ended out of its key's list; f.mu is held.
func (f *fetches) removeCall(c *call) {
	list := f.calls[c.Key]
	list = slices.DeleteFunc(list, func(one *call) bool { return one == c })
	if len(list) == 0 {
		delete(f.calls, c.Key)
		return
	}
	f.calls[c.Key] = list
}

// run calls the origin, and reports what it returned if that still counts.
func (f *fetches) run(c *call) {
	f.stats.fetching.Add(1)
	began := f.clock.Now()
	var value Value
	err := context.Cause(c.ctx)
	if err == nil {
		value, err = f.callOrigin(c)
	}
	now := f.clock.Now()
	f.stats.fetching.Add(-1)
	f.stats.fetchTime.Add(int64(now - began))

	f.mu.Lock()
	wanted := false
	switch {
	case errors.Is(context.Cause(c.ctx), errStopping):
		// The machine counts on the call until now. A value may have taken all of its time, and no peer should repeat the
		// call: it is kept, unless the machine finds that the trust has ended. An error tells of the stop alone.
		if wanted = true; err != nil {
			err = errStopping
		}
	case c.ended:
	case now >= c.Until: // its timer is late, as after a suspend; the clock is not
		f.checkDeadline(c)
	default:
		wanted = true
		f.endCall(c, nil)
	}
	f.running--
	f.removeCall(c)
	f.startWaiting()
	f.mu.Unlock()
	if !wanted {
		return
	}
	if err != nil && !errors.Is(err, errStopping) {
		f.stats.fetchFailures.Add(1)
	}
	f.reports.Go(func() { f.report(f.outcome(c, value, err)) }) // not here: see reportEnd
}

func (f *fetches) outcome(c *call, value Value, err error) protocol.Fetched {
	out := protocol.Fetched{Key: c.Key, Term: c.Term}
	if err == nil {
		out.Value, out.TTL, out.NoStore = value.Data, value.TTL, value.NoStore
		return out
	}
	out.Err, out.Stopped, out.TrustEnded = failureText(err), errors.Is(err, errStopping), errors.Is(err, errTrustEnded)
	if retry, ok := errors.AsType[*RetryAfter](err); ok {
		out.Wait = retry.After
	}
	return out
}

// callOrigin calls the origin and turns whatever it does into a value or an error.
func (f *fetches) callOrigin(c *call) (value Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			f.log.Error("the origin panicked", "key", c.Key, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("the origin panicked: %v", r)
		}
	}()
	if f.origin == nil {
		return Value{}, errors.New("this peer is passive")
	}
	value, err = f.origin(c.ctx, Fetch{Key: c.Key, Term: c.Term, Stale: c.Stale.Value})
	if err == nil && len(value.Data) > f.maxValue {
		return Value{}, fmt.Errorf("%w: the origin returned %d bytes; at most %d may be", ErrTooLarge, len(value.Data), f.maxValue)
	}
	return value, err
}

// stop ends every call, starts none any more, and returns whether all have returned within a time. Each that ends is reported,
// so that other peers may make it or get its value: one that runs when it has returned.
func (f *fetches) stop(within time.Duration) bool {
	f.mu.Lock()
	f.stopped = true
	for _, list := range f.calls {
		for _, c := range slices.Clone(list) {
			if !c.ended {
				f.endCall(c, errStopping)
				if !c.running {
					f.reportEnd(c, errStopping)
				}
			}
		}
	}
	f.mu.Unlock()
	allEnded := make(chan struct{})
	go func() {
		f.goroutines.Wait()
		close(allEnded)
	}()
	timer, stop := f.clock.Timer(within)
	defer stop()
	select {
	case <-allEnded:
		return true
	case <-timer:
		return false
	}
}

// waitReported waits until what all calls returned has been reported, or ctx ends: the loop may wait for the disk. Call it when
// stop has returned true.
func (f *fetches) waitReported(ctx context.Context) {
	reported := make(chan struct{})
	go func() {
		f.reports.Wait()
		close(reported)
	}()
	select {
	case <-reported:
	case <-ctx.Done():
	}
}
