package zmtp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Conn is one connection, from the end of its handshake on. Its methods may be called
// from any goroutine, at any time.
type Conn struct {
	// Value is the user's. Set it in Handler.Connected, before anybody else can have the Conn.
	Value any

	cfg   *Config
	nc    net.Conn
	addr  string // of the other side: where it comes from, or what was dialed
	minor int    // 0 or 1: ZMTP 3.0 or 3.1
	peer  result
	in    assembler
	subs  subscriptions
	watch watch

	closing atomic.Bool // the reader ends when it has written what it sent
	bytesIn atomic.Int64
	outbox
}

func newConn(cfg *Config, nc net.Conn, addr string) *Conn {
	c := &Conn{cfg: cfg, nc: nc, addr: addr}
	c.in.maxBytes, c.in.maxFrames = cfg.MaxMessage, cfg.MaxFrames
	c.outbox.start(cfg, nc)
	return c
}

// Addr is where the other side comes from, or what was dialed.
func (c *Conn) Addr() string { return c.addr }

// Dropped counts the messages that Send refused because the queue or the budget was full.
func (c *Conn) Dropped() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// Send copies a message of at least one frame into the connection's queue. It returns
// false, and does nothing, if the queue is full, the connection is closed, or this
// is a SUB. It never waits. A PUB's Send does not ask for subscriptions.
func (c *Conn) Send(m Message) bool {
	if c.cfg.Kind == SUB || len(m) == 0 {
		return false
	}
	return c.push(m)
}

// Close ends the connection without writing what waits. It does not wait for
// Handler.Disconnected.
func (c *Conn) Close() { c.fail(ErrClosed) }

// shutdown has the reader write what waits, and end.
func (c *Conn) shutdown() {
	c.closing.Store(true)
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// handshake does the handshake and what goes before the first message.
func (c *Conn) handshake(server bool) error {
	if err := c.nc.SetDeadline(time.Now().Add(c.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	if err := c.exchangeHandshake(server); err != nil {
		return err
	}
	if err := c.nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if c.closing.Load() {
		return ErrClosed
	}
	c.in.opener, c.sealer = c.peer.sealer, c.peer.sealer
	for _, prefix := range c.cfg.Subscribe {
		c.subscribe(prefix, c.minor)
	}
	return nil
}

// serve is the life of a connection after the handshake. It returns why it has ended, when
// nothing of it runs any more.
func (c *Conn) serve() error {
	c.watch.start(c)
	if f := c.cfg.Handler.Connected; f != nil {
		f(c)
	}
	err := c.read()
	c.watch.stop()
	if c.closing.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		c.drain()
		c.awaitPeerEnd()
		err = ErrClosed
	}
	err = c.fail(err)
	c.wait()
	if f := c.cfg.Handler.Disconnected; f != nil {
		f(c, err)
	}
	return err
}

// awaitPeerEnd says that nothing more comes, and reads until the peer has taken everything and ends too. A socket that is
// closed while it holds something unread, such as the peer's PING, resets the connection, and what the peer has not taken is lost.
func (c *Conn) awaitPeerEnd() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || c.dead.Load() || half.CloseWrite() != nil || c.nc.SetReadDeadline(time.Now().Add(linger)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.nc)
}

func (c *Conn) read() error {
	for {
		if err := c.deliverAll(); err != nil {
			return err
		}
		c.resumeWrites()
		n, err := c.in.fill(c.nc)
		c.holdWrites()
		if err != nil {
			if errors.Is(err, io.EOF) && c.in.partial() {
				return fmt.Errorf("zmtp: the connection was cut within a message: %w", io.ErrUnexpectedEOF)
			}
			return err
		}
		c.bytesIn.Add(int64(n))
	}
}

// deliverAll hands out everything that is whole in the buffer.
func (c *Conn) deliverAll() error {
	for !c.dead.Load() {
		it, ok, err := c.in.next()
		if err != nil || !ok {
			return err
		}
		if it.command != nil {
			err = c.command(it.command)
		} else {
			err = c.message(it.message)
		}
		if err != nil {
			return err
		}
		c.flushIfFull()
	}
	return ErrClosed
}

func (c *Conn) message(m Message) error {
	if c.cfg.Kind == PUB {
		if prefix, on, ok := subscription(m); ok {
			return c.subscribed(prefix, on)
		}
		return nil
	}
	if f := c.cfg.Handler.Message; f != nil {
		f(c, m)
	}
	return nil
}

func (c *Conn) command(body []byte) error {
	name, data, err := parseCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case "PING":
		return c.ping(data)
	case "SUBSCRIBE", "CANCEL":
		if c.cfg.Kind == PUB {
			return c.subscribed(data, name == "SUBSCRIBE")
		}
	case "ERROR":
		return refusal(data)
	}
	return nil // PONG, like any other byte, shows that the peer lives
}

func (c *Conn) subscribed(prefix []byte, on bool) error {
	changed := false
	if on {
		var err error
		if changed, err = c.subs.add(prefix); err != nil {
			return err
		}
	} else {
		changed = c.subs.remove(prefix)
	}
	if f := c.cfg.Handler.Subscribed; f != nil && changed {
		f(c, prefix, on)
	}
	return nil
}
