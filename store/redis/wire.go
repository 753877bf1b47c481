package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/idleconn"
	"github.com/understudy-ha/understudy/internal/resp"
)

// limits of an answer, so that something that is no such server cannot use the
// memory up.
var limits = resp.ReplyLimits{Line: 64 << 10, Bulk: 64 << 20, Items: 1 << 20, Depth: 5}

// errAnswer: what came is no answer in this protocol.
var errAnswer = errors.New("the answer is not one of a Redis server")

// refusal is an error that the server answered with.
type refusal string

func (r refusal) Error() string { return string(r) }

// has reports whether it is of this code. Before version 7 an error inside a script is quoted with a dash.
func (r refusal) has(code string) bool {
	return strings.HasPrefix(string(r), code) || strings.Contains(string(r), "-"+code+" ")
}

// command is a request, and its answer once it came.
type command struct {
	args  []string
	reply any // nil, string, int64, refusal, or []any of these
}

func ask(args ...string) *command { return &command{args: args} }

// texts is an answer of several; what is not there is "".
func (c *command) texts() []string {
	all, _ := c.reply.([]any)
	out := make([]string, len(all))
	for i, v := range all {
		out[i], _ = v.(string)
	}
	return out
}

// connection is one connection. It says nothing by itself: no greeting, no name, no
// retries. Whoever has it has it alone.
type connection struct {
	conn   net.Conn
	in     *bufio.Reader
	broken error // why it can be used no more
	// readOnly: the server is a replica. Its name may lead to another server by now, and if it becomes the master again it
	// may lack what that one acknowledged: the next call dials.
	readOnly bool
	era      int // of the pool when it was dialled
}

func newConnection(conn net.Conn) *connection {
	return &connection{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}
}

// exchange sends requests in one go and reads their answers.
func (w *connection) exchange(all ...*command) error {
	if w.broken != nil {
		return w.broken
	}
	var out []byte
	for _, c := range all {
		out = resp.AppendCommand(out, c.args)
	}
	// A large request and a large answer may each wait for the other to be read.
	sent := make(chan error, 1)
	if len(out) > 16<<10 {
		go func() { _, err := w.conn.Write(out); sent <- err }()
	} else {
		_, err := w.conn.Write(out)
		sent <- err
	}
	for _, c := range all {
		reply, err := w.read()
		if err != nil {
			w.broken = err
			_ = w.conn.Close()
			<-sent
			return err
		}
		c.reply = reply
		if r, ok := reply.(refusal); ok && (r.has("READONLY") || r.has("MASTERDOWN")) {
			w.readOnly = true
		}
	}
	if err := <-sent; err != nil {
		w.broken = err
	}
	return w.broken
}

// do sends one request. The error is a [refusal] when the server answered with one.
func (w *connection) do(words ...string) (any, error) {
	c := ask(words...)
	if err := w.exchange(c); err != nil {
		return nil, err
	}
	if r, ok := c.reply.(refusal); ok {
		return nil, r
	}
	return c.reply, nil
}

// read returns an answer as [command] has it.
func (w *connection) read() (any, error) {
	r, err := resp.NewReplyReader(w.in, limits).Reply()
	if errors.Is(err, resp.ErrReply) {
		err = errAnswer
	}
	return plainReply(r), err
}

func plainReply(r resp.Reply) any {
	switch {
	case r.Nil:
		return nil
	case r.Kind == '-':
		return refusal(r.Text)
	case r.Kind == ':':
		return r.Int
	case r.Kind == '*':
		all := make([]any, 0, len(r.Items))
		for _, item := range r.Items {
			all = append(all, plainReply(item))
		}
		return all
	}
	return r.Text
}

// pool lends a bounded number of connections, the one that came back last
// first.
type pool struct {
	dial  func(context.Context) (*connection, error)
	broke func() // told when a connection broke by itself
	// demoted is told when a connection turned out to be one to a replica.
	demoted func()
	places  chan struct{}

	mu     sync.Mutex
	idle   []*connection
	used   map[*connection]struct{}
	era    int // counts the calls of retire
	closed bool
}

func (s *Store) newPool(n int) *pool {
	return &pool{dial: s.connect, broke: s.broke, demoted: s.demoted, places: make(chan struct{}, n), used: map[*connection]struct{}{}}
}

// use lends a connection to f, and cuts it when ctx ends before f returns.
func (p *pool) use(ctx context.Context, f func(*connection) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w, err := p.take(ctx)
	if err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(cut); _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	err = f(w)
	if !stop() {
		<-cut
		if err != nil && w.broken != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		w.broken = context.Cause(ctx)
	}
	p.put(w, errors.Is(ctx.Err(), context.Canceled))
	return err
}

func (p *pool) take(ctx context.Context) (*connection, error) {
	if w := p.takeIdle(); w != nil {
		if idleconn.IsSilent(w.conn) {
			return w, nil
		}
		// The server closed it while nothing was asked: after a restart, say. The others may be dead too.
		w.broken = net.ErrClosed
		p.put(w, false)
	}
	p.mu.Lock()
	era := p.era // before it is dialled: what the name led to may be demoted meanwhile
	p.mu.Unlock()
	w, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.era = era
	if p.closed {
		_ = w.conn.Close()
		return nil, errors.New("the store is closed")
	}
	p.used[w] = struct{}{}
	return w, nil
}

func (p *pool) takeIdle() *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 || p.closed {
		return nil
	}
	w := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.used[w] = struct{}{}
	return w
}

// put takes a connection back. One that broke by itself says that the others may
// be dead too, and one to a replica that they may be to the same.
func (p *pool) put(w *connection, cancelled bool) {
	p.mu.Lock()
	delete(p.used, w)
	closed := p.closed
	if w.broken == nil && !w.readOnly && w.era == p.era && !closed {
		p.idle = append(p.idle, w)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	_ = w.conn.Close()
	switch {
	case closed:
	case w.readOnly:
		p.demoted()
	case w.broken != nil && !cancelled:
		p.broke()
	}
}

// retire is drop, and closes what is in use as soon as it comes back.
func (p *pool) retire() {
	p.mu.Lock()
	p.era++
	p.mu.Unlock()
	p.drop()
}

// drop closes what is not in use.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle {
		_ = w.conn.Close()
	}
	p.idle = nil
}

// close makes calls under way fail, and all that come.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		_ = w.conn.Close()
	}
	for w := range p.used {
		_ = w.conn.Close()
	}
}
