package sentinel

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/glob"
	"github.com/understudy-ha/understudy/internal/resp"
)

// Limits of a connection.
const (
	maxSubscriptions = 128
	maxChannel       = 256              // bytes of the name or pattern of one: it is kept, and matched with each message; those that are sent are far shorter
	enough           = 64 << 10         // bytes that wait to be written before another request is read
	greeting         = 30 * time.Second // for the first request, and to authenticate
	writing          = 10 * time.Second // for what is being written
	keptRoom         = 64 << 10         // of a buffer, between answers
)

// conn is one client. One goroutine reads and answers, another writes.
type conn struct {
	srv *Server
	net net.Conn
	id  int64

	// Of the reading goroutine alone.
	in    *resp.Reader
	name  string
	auth  bool
	asked time.Time // when it was last told where primaries are; zero: never

	mu       sync.Mutex
	moved    *sync.Cond // something was written, was added, or the end has come
	out      resp.Writer
	channels []string
	patterns []string
	last     bool // nothing is added any more; what waits is written
	closed   bool
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{srv: s, net: nc, id: id, in: resp.NewReader(nc, resp.Limits{}), auth: s.cfg.Password == ""}
	c.out.Version = 2
	c.moved = sync.NewCond(&c.mu)
	return c
}

// serve returns when the connection is closed.
func (c *conn) serve(ctx context.Context) {
	var writer sync.WaitGroup
	writer.Go(c.write)
	defer writer.Wait()
	for first := true; ; first = false {
		if err := c.deadline(first); err != nil {
			c.close()
			return
		}
		args, err := c.in.Request()
		if err != nil {
			var wrong resp.ProtocolError
			if errors.As(err, &wrong) {
				c.answer(func(w *resp.Writer) { w.Error("ERR " + wrong.Error()) })
			}
			c.finish()
			return
		}
		c.srv.requests.Add(1)
		if !c.handle(ctx, args) {
			c.finish()
			return
		}
		if !c.room() {
			return
		}
	}
}

// deadline sets that of the next request.
func (c *conn) deadline(first bool) error {
	switch {
	case first || !c.auth:
		return c.net.SetReadDeadline(time.Now().Add(min(greeting, c.srv.cfg.Idle)))
	case c.subscribed():
		return c.net.SetReadDeadline(time.Time{}) // keep-alive finds those that are gone
	}
	return c.net.SetReadDeadline(time.Now().Add(c.srv.cfg.Idle))
}

// answer adds to what is to be written.
func (c *conn) answer(f func(*resp.Writer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last {
		f(&c.out)
		c.moved.Broadcast()
	}
}

// room waits until a client that asks and asks has read enough. It is false when the connection is
// closed.
func (c *conn) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out.Len() > enough && !c.closed {
		c.moved.Wait()
	}
	return !c.closed
}

// queueMessage passes a message on, if the client has subscribed to it. It is false when the client was
// disconnected because too much waits for it.
func (c *conn) queueMessage(m message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last || len(c.channels)+len(c.patterns) == 0 {
		return true
	}
	if slices.Contains(c.channels, m.channel) {
		c.out.Push(3)
		c.out.Bulk("message")
		c.out.Bulk(m.channel)
		c.out.Bulk(m.text)
	}
	for _, p := range c.patterns {
		if glob.MatchRedis(p, m.channel) {
			c.out.Push(4)
			c.out.Bulk("pmessage")
			c.out.Bulk(p)
			c.out.Bulk(m.channel)
			c.out.Bulk(m.text)
		}
	}
	c.moved.Broadcast()
	if c.out.Len() > c.srv.cfg.MaxOutput {
		c.shut()
		return false
	}
	return true
}

func (c *conn) subscribed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.channels)+len(c.patterns) > 0
}

// finish lets what waits be written, then closes.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = true
	c.moved.Broadcast()
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut()
}

// shut closes at once, with the lock held.
func (c *conn) shut() {
	c.last, c.closed = true, true
	_ = c.net.Close()
	c.moved.Broadcast()
}

// write writes what waits until the connection is closed, and closes it at the end.
func (c *conn) write() {
	defer c.close()
	for spare := []byte(nil); ; {
		c.mu.Lock()
		for c.out.Len() == 0 && !c.last {
			c.moved.Wait()
		}
		bytes := c.out.Take(spare)
		c.moved.Broadcast()
		closed := c.closed
		c.mu.Unlock()
		if len(bytes) == 0 || closed {
			return
		}
		if c.net.SetWriteDeadline(time.Now().Add(writing)) != nil {
			return
		}
		if _, err := c.net.Write(bytes); err != nil {
			return
		}
		if spare = bytes; cap(spare) > keptRoom {
			spare = nil
		}
	}
}
