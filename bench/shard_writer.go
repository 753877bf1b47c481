package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// writeWithin, dialWithin and askWithin are a writer's deadlines.
	writeWithin = 200 * time.Millisecond
	dialWithin  = 100 * time.Millisecond
	askWithin   = 100 * time.Millisecond
	// askAgain is the pause after which a writer without a primary asks again.
	askAgain = 5 * time.Millisecond
	// switchoverWithin is how long a write may wait while the primary is changed on purpose.
	switchoverWithin = 5 * time.Second
)

// finder finds a shard's primary.
type finder interface {
	// find returns its address, or an error.
	find() (string, error)
	close()
}

// guideFinder asks Sentinels, or those who speak as they do: the one that answered last, or else the next.
type guideFinder struct {
	guides []string
	name   string
	at     int
	conn   *respConn
}

func (g *guideFinder) find() (string, error) {
	if g.conn == nil {
		c, err := dialResp(g.guides[g.at], dialWithin)
		if err != nil {
			g.next()
			return "", err
		}
		g.conn = c
	}
	r, err := g.conn.do(askWithin, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.name)
	switch {
	case errors.Is(err, errNoValue) || errors.Is(err, errRefusedByServer):
		g.next()
		return "", err
	case err != nil || len(r.list) != 2:
		g.next()
		return "", errors.Join(err, errNoValue)
	}
	return net.JoinHostPort(r.list[0].text, r.list[1].text), nil
}

func (g *guideFinder) next() {
	g.close()
	g.at = (g.at + 1) % len(g.guides)
}

func (g *guideFinder) close() {
	if g.conn != nil {
		g.conn.Close()
		g.conn = nil
	}
}

// roleFinder asks the nodes themselves, as a client must that has nobody to ask.
type roleFinder struct {
	nodes []string
	at    int
}

func (f *roleFinder) find() (string, error) {
	address := f.nodes[f.at]
	f.at = (f.at + 1) % len(f.nodes)
	c, err := dialResp(address, dialWithin)
	if err != nil {
		return "", err
	}
	defer c.Close()
	r, err := c.do(askWithin, "ROLE")
	if err != nil || len(r.list) == 0 || r.list[0].text != "master" {
		return "", errors.Join(err, errNoValue)
	}
	return address, nil
}

func (f *roleFinder) close() {}

// fixed knows one address, and no other.
type fixed string

func (f fixed) find() (string, error) { return string(f), nil }
func (f fixed) close()                {}

// ack is a write that was acknowledged: the last of its batch.
type ack struct {
	seq     int
	address string
	at      time.Time
}

// writer appends numbers to a list of its own, always at the primary, and remembers which
// were acknowledged, by whom and when. A number whose answer did not come is never
// written again.
type writer struct {
	key   string
	batch int           // numbers sent at once
	pause time.Duration // between batches; 0 writes as fast as it goes
	// patience is how long a batch may take on a connection that has worked.
	patience time.Duration
	again    time.Duration // pause between attempts to reach a primary; default askAgain
	newFind  func() finder
	herald   *herald // closes connections to a primary of the past; nil if nobody tells

	mu   sync.Mutex
	acks []ack

	cancel context.CancelFunc
	done   sync.WaitGroup
	seq    int
}

func (w *writer) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.done.Go(func() { w.run(ctx) })
}

func (w *writer) stop() {
	w.cancel()
	w.done.Wait()
}

func (w *writer) run(ctx context.Context) {
	find := w.newFind()
	defer find.close()
	var conn *respConn
	for ctx.Err() == nil {
		var err error
		if conn == nil {
			conn = w.reach(ctx, find)
		} else if err = w.write(conn, w.patience); err != nil {
			conn.Close()
			conn = nil
		}
		if conn != nil && w.pause > 0 {
			time.Sleep(w.pause)
		}
	}
	if conn != nil {
		conn.Close()
	}
}

// write sends the next batch.
func (w *writer) write(c *respConn, within time.Duration) error {
	for range w.batch {
		c.queue("RPUSH", w.key, strconv.Itoa(w.seq))
		w.seq++
	}
	first := w.seq - w.batch
	if err := c.flush(within); err != nil {
		return err
	}
	var failed error
	for i := range w.batch {
		_, err := c.answer()
		switch {
		case err == nil:
			w.acked(ack{seq: first + i, address: c.address, at: time.Now()})
		case errors.Is(err, errRefusedByServer):
			failed = err
		default:
			return err
		}
	}
	return failed
}

func (w *writer) acked(a ack) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, a)
}

// reach returns a connection on which a batch was accepted, or nil when ctx ended. While
// it tries an address that does not answer, it goes on asking where the primary is.
func (w *writer) reach(ctx context.Context, find finder) *respConn {
	for ; ctx.Err() == nil; time.Sleep(cmp.Or(w.again, askAgain)) {
		address, err := find.find()
		if err != nil {
			continue
		}
		tried := make(chan *respConn, 1)
		trying, giveUp := context.WithCancel(ctx)
		go func() { tried <- w.try(trying, address) }()
		conn, waiting := (*respConn)(nil), true
		for waiting {
			select {
			case conn = <-tried:
				waiting = false
			case <-time.After(askAgain):
				if now, err := find.find(); err == nil && now != address {
					giveUp()
				}
			}
		}
		giveUp()
		if conn != nil {
			return conn
		}
	}
	return nil
}

// try writes a batch at an address, until ctx ends.
func (w *writer) try(ctx context.Context, address string) *respConn {
	d := net.Dialer{Timeout: dialWithin}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	c := newResp(raw, address)
	w.herald.follow(c)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	if err := w.write(c, writeWithin); err != nil || !stop() {
		c.Close()
		return nil
	}
	return c
}

// herald listens to what Sentinels announce, and closes the connections of writers to a primary
// that has been replaced, as the better clients do.
type herald struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	conns map[string][]*respConn // by address
}

// listen subscribes to all of them.
func listen(ctx context.Context, guides []string, name string) *herald {
	h := &herald{conns: map[string][]*respConn{}}
	ctx, h.stop = context.WithCancel(ctx)
	for _, g := range guides {
		h.done.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(dialWithin) {
				h.hear(ctx, g, name)
			}
		})
	}
	return h
}

func (h *herald) end() {
	h.stop()
	h.done.Wait()
}

// hear what one of them says, until that ends.
func (h *herald) hear(ctx context.Context, guide, name string) {
	c, err := dialResp(guide, dialWithin)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	c.queue("SUBSCRIBE", "+switch-master")
	if c.flush(outageWithin) != nil {
		return
	}
	for {
		_ = c.SetDeadline(time.Now().Add(outageWithin))
		r, err := c.answer()
		if err != nil {
			return
		}
		if len(r.list) != 3 || r.list[0].text != "message" {
			continue
		}
		if words := strings.Fields(r.list[2].text); len(words) == 5 && words[0] == name {
			h.leave(net.JoinHostPort(words[1], words[2]))
		}
	}
}

// follow has a connection closed when its server is replaced.
func (h *herald) follow(c *respConn) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c.address] = append(h.conns[c.address], c)
}

func (h *herald) leave(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns[address] {
		c.Close()
	}
	delete(h.conns, address)
}

// firstAfter is the first write that another server than was acknowledged after a moment.
func (w *writer) firstAfter(moment time.Time, was string) (ack, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.acks, func(a ack) bool { return a.address != was && a.at.After(moment) })
	if i < 0 {
		return ack{}, false
	}
	return w.acks[i], true
}

// lastBy is the last write that a server acknowledged before a moment.
func (w *writer) lastBy(address string, before time.Time) (ack, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range slices.Backward(w.acks) {
		if a.address == address && a.at.Before(before) {
			return a, true
		}
	}
	return ack{}, false
}

// count of what a server acknowledged after a moment.
func (w *writer) countBy(address string, after time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acks {
		if a.address == address && a.at.After(after) {
			n++
		}
	}
	return n
}

// lost are the acknowledged numbers that a server does not have.
func (w *writer) lost(address string) (lost, acked int, err error) {
	c, err := dialResp(address, time.Second)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	has := map[string]bool{}
	const page = 10_000
	for from := 0; ; from += page {
		r, err := c.do(10*time.Second, "LRANGE", w.key, strconv.Itoa(from), strconv.Itoa(from+page-1))
		if err != nil {
			return 0, 0, err
		}
		for _, one := range r.list {
			has[one.text] = true
		}
		if len(r.list) < page {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acks {
		if !has[strconv.Itoa(a.seq)] {
			lost++
		}
	}
	return lost, len(w.acks), nil
}
