package zmtp

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

const (
	maxContext = 16       // bytes of a PING that are given back
	maxPongs   = 64 << 10 // bytes that wait, above which no PONG is added: they show as well that this side is there
)

// watch ends a connection from which nothing comes although something should: after a
// PING of this side, or within the time that the other side's PING has set. It counts
// bytes, so that reading costs nothing.
type watch struct {
	mu      sync.Mutex
	c       *Conn
	timer   *time.Timer
	stopped bool
	seen    int64         // bytes that had come when this was last looked at
	since   time.Time     // when something was last seen to have come
	asked   time.Time     // when the first PING after that was sent; zero: none was
	next    time.Time     // when the next PING is due; zero: never
	ttl     time.Duration // set by the other side; zero: none
}

func (w *watch) start(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c, w.since = c, time.Now()
	if c.cfg.Heartbeat > 0 && c.minor > 0 {
		w.next = w.since.Add(c.cfg.Heartbeat)
		w.arm(c.cfg.Heartbeat)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watch) arm(d time.Duration) {
	switch {
	case w.stopped:
	case w.timer == nil:
		w.timer = time.AfterFunc(d, w.checkIdle)
	default:
		w.timer.Reset(d)
	}
}

// setTTL sets the time to live that the other side asked for.
func (w *watch) setTTL(ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.ttl, w.seen, w.since, w.asked = ttl, w.c.bytesIn.Load(), now, time.Time{}
	w.arm(earlier(w.next, w.deadline()).Sub(now))
}

// checkIdle is the timer's.
func (w *watch) checkIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	now, handling := time.Now(), w.c.handling()
	// While a handler runs, this side neither reads what comes nor writes a PING: the other side is not silent. This one is, and
	// the other may end the connection.
	if n := w.c.bytesIn.Load(); n != w.seen || handling {
		w.seen, w.since, w.asked = n, now, time.Time{}
	}
	if !w.next.IsZero() && !now.Before(w.next) {
		if !handling && w.c.heartbeat(w.c.limit, "PING", []byte{0, 0}) && w.asked.IsZero() {
			w.asked = now
		}
		w.next = now.Add(w.c.cfg.Heartbeat)
	}
	end := w.deadline()
	if !end.IsZero() && !now.Before(end) {
		w.c.fail(fmt.Errorf("%w: nothing came for %v", ErrSilent, now.Sub(w.since).Round(time.Millisecond)))
		return
	}
	w.arm(earlier(w.next, end).Sub(now))
}

// deadline is when the connection is given up if nothing comes; zero: never.
func (w *watch) deadline() time.Time {
	var asked, lived time.Time
	if !w.asked.IsZero() {
		asked = w.asked.Add(w.c.cfg.HeartbeatTimeout)
	}
	if w.ttl > 0 {
		lived = w.since.Add(w.ttl)
	}
	return earlier(asked, lived)
}

// earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ping answers a PING of the other side.
func (c *Conn) ping(data []byte) error {
	if len(data) < 2 {
		return fmt.Errorf("%w: a PING of %d bytes", ErrProtocol, len(data))
	}
	if ttl := time.Duration(binary.BigEndian.Uint16(data)) * 100 * time.Millisecond; ttl > 0 {
		c.watch.setTTL(ttl)
	}
	c.heartbeat(maxPongs, "PONG", data[2:min(len(data), 2+maxContext)])
	return nil
}
