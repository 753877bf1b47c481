package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of an answer, so that something that is no such server cannot use the
// memory up.
const (
	maxBulk     = 64 << 20
	maxElements = 1 << 20
	maxLine     = 64 << 10
	maxDepth    = 4
)

// errAnswer: what came is no answer in this protocol.
var errAnswer = errors.New("the answer is not one of a Redis server")

// refusal is an error that the server answered with.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it one of the driver's errors to [failure].
func (refusal) RedisError() {}

// command is a request, and its answer once it came.
type command struct {
	args  []string
	reply any // nil, string, int64, refusal, or []any of these
}

func ask(args ...string) *command { return &command{args: args} }

// nothing tells that the answer was that there is nothing.
func (c *command) nothing() bool { return c.reply == nil }

func (c *command) text() string {
	s, _ := c.reply.(string)
	return s
}

func (c *command) number() int64 {
	switch v := c.reply.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// texts is an answer of several; what is not there is "".
func (c *command) texts() []string {
	all, _ := c.reply.([]any)
	out := make([]string, len(all))
	for i, v := range all {
		out[i], _ = v.(string)
	}
	return out
}

// fields is a hash.
func (c *command) fields() map[string]string {
	all := c.texts()
	out := make(map[string]string, len(all)/2)
	for pair := range slices.Chunk(all, 2) {
		if len(pair) == 2 {
			out[pair[0]] = pair[1]
		}
	}
	return out
}

// wire is one connection. It says nothing by itself: no greeting, no name, no
// retries. Whoever has it has it alone.
type wire struct {
	conn   net.Conn
	in     *bufio.Reader
	broken error // why it can be used no more
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}
}

// exchange sends requests in one go and reads their answers.
func (w *wire) exchange(all ...*command) error {
	if w.broken != nil {
		return w.broken
	}
	var out []byte
	for _, c := range all {
		out = append(out, '*')
		out = append(strconv.AppendInt(out, int64(len(c.args)), 10), "\r\n"...)
		for _, a := range c.args {
			out = append(out, '$')
			out = append(strconv.AppendInt(out, int64(len(a)), 10), "\r\n"...)
			out = append(append(out, a...), "\r\n"...)
		}
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
		reply, err := w.read(0)
		if err != nil {
			w.broken = err
			_ = w.conn.Close()
			<-sent
			return err
		}
		c.reply = reply
	}
	if err := <-sent; err != nil {
		w.broken = err
	}
	return w.broken
}

func (w *wire) read(depth int) (any, error) {
	line, err := w.line()
	if err != nil {
		return nil, err
	}
	if line == "" || depth > maxDepth {
		return nil, errAnswer
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return refusal(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, errAnswer
	}
	switch {
	case kind == ':':
		return n, nil
	case kind == '$' && n == -1, kind == '*' && n == -1:
		return nil, nil
	case kind == '$' && n >= 0 && n <= maxBulk:
		text := make([]byte, n+2)
		if _, err := io.ReadFull(w.in, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case kind == '*' && n >= 0 && n <= maxElements:
		all := make([]any, 0, min(n, 1024))
		for range n {
			v, err := w.read(depth + 1)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return nil, errAnswer
}

func (w *wire) line() (string, error) {
	var line []byte
	for {
		part, err := w.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return strings.TrimRight(string(line), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		case len(line) > maxLine:
			return "", errAnswer
		}
	}
}

// wires lends a bounded number of connections, the one that came back last
// first.
type wires struct {
	dial   func(context.Context) (*wire, error)
	broke  func() // told when a connection broke by itself
	places chan struct{}

	mu     sync.Mutex
	idle   []*wire
	used   map[*wire]struct{}
	closed bool
}

func newWires(n int, dial func(context.Context) (*wire, error), broke func()) *wires {
	return &wires{dial: dial, broke: broke, places: make(chan struct{}, n), used: map[*wire]struct{}{}}
}

// use lends a connection to f, and cuts it when ctx ends before f returns.
func (p *wires) use(ctx context.Context, f func(*wire) error) error {
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

func (p *wires) take(ctx context.Context) (*wire, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 && !p.closed {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.used[w] = struct{}{}
		p.mu.Unlock()
		return w, nil
	}
	p.mu.Unlock()
	w, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = w.conn.Close()
		return nil, errors.New("the store is closed")
	}
	p.used[w] = struct{}{}
	return w, nil
}

// put takes a connection back. One that broke by itself says that the others may
// be dead too.
func (p *wires) put(w *wire, cancelled bool) {
	p.mu.Lock()
	delete(p.used, w)
	closed := p.closed
	if w.broken == nil && !closed {
		p.idle = append(p.idle, w)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	_ = w.conn.Close()
	if !cancelled && !closed {
		p.broke()
	}
}

// drop closes what is not in use.
func (p *wires) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle {
		_ = w.conn.Close()
	}
	p.idle = nil
}

// close makes calls under way fail, and all that come.
func (p *wires) close() {
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
