package zmtp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A subscriber that does not read costs its queue, misses what does not fit, and is
// disconnected in the end; another one gets everything.
func TestSlowReader(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: PUB, Handler: h, Queue: 1 << 20, WriteTimeout: 500 * time.Millisecond})
	slow := rawDial(t, l.Addr())
	slow.send(greeting31 + readySUB + `00 01 01`)
	c := recv(t, "connection", w.up)
	recv(t, "subscription", w.subs)
	m := Message{make([]byte, 64<<10)}
	var err error
	refused := int64(0)
	eventually(t, "the end", func() bool {
		if l.Publish(m) == 0 && !c.dead.Load() {
			refused++
		}
		c.mu.Lock()
		waiting := len(c.queue) + c.writing
		c.mu.Unlock()
		if waiting > 1<<20 {
			t.Fatalf("%d bytes wait", waiting)
		}
		select {
		case err = <-w.down:
			return true
		default:
			return false
		}
	})
	if !errors.Is(err, ErrSlow) {
		t.Errorf("ended with %v, want ErrSlow", err)
	}
	if got := c.Dropped(); got == 0 || got > refused+1 {
		t.Errorf("%d counted as dropped, %d were refused", got, refused)
	}
	forgotten(t, l)
	if n := l.Dropped(); n != c.Dropped() {
		t.Errorf("%d are counted when it has ended", n)
	}
	if c.Send(m) {
		t.Error("Send on a closed connection")
	}
}

// forgotten waits until nothing of a listener's connections is left.
func forgotten(t *testing.T, l *Listener) {
	t.Helper()
	eventually(t, "no connection is left", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.all) == 0
	})
}

// A reader that is slow but reads is not disconnected, however long it takes.
func TestSlowButAlive(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h, WriteTimeout: patience})
	r := rawDial(t, l.Addr())
	_ = r.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	r.send(greeting31 + readyDEALER)
	r.expect("greeting, READY", greeting31+readyROUTER)
	const size = 24 << 20
	c := recv(t, "connection", w.up)
	if !c.Send(Message{make([]byte, size)}) {
		t.Fatal("an empty queue takes any one message")
	}
	p := make([]byte, size/50)
	tick := time.NewTicker(patience / 40)
	defer tick.Stop()
	for got := 0; got < size+9; {
		<-tick.C
		n, err := io.ReadAtLeast(r, p, min(len(p), size+9-got))
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		got += n
	}
	// Nor does the time-out of a write that is over mean anything to a later one.
	for begin := time.Now(); time.Since(begin) < patience*11/10; <-tick.C {
		c.Send(text("x"))
		r.expect("message", `0001 "x"`)
	}
	if len(w.down) > 0 {
		t.Error(<-w.down)
	}
}

// Answers that the socket does not take at once are written when it does.
func TestPipelined(t *testing.T) {
	const size = 100_000
	w, h := observe()
	var answered atomic.Int64
	h.Message = func(c *Conn, m Message) {
		c.Send(Message{make([]byte, size)})
		answered.Add(1)
	}
	l := listen(t, Config{Kind: ROUTER, Queue: 64 << 20, Handler: h})
	r := rawDial(t, l.Addr())
	r.send(greeting31 + readyDEALER)
	r.expect("greeting, READY", greeting31+readyROUTER)
	c := recv(t, "connection", w.up)
	requests := int64(0)
	for full := false; !full; requests++ {
		r.send(`0001 "x"`)
		eventually(t, "it is answered", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			full = len(c.queue)+c.writing > 0
			return answered.Load() > requests && !c.reading
		})
	}
	if n, err := io.CopyN(io.Discard, r, requests*(size+9)); err != nil {
		t.Errorf("%d bytes of %d answers arrived, %v", n, requests, err)
	}
}

// A client that sends and never reads is bounded, and disturbs nobody.
func TestFlood(t *testing.T) {
	w, h := observe()
	h.Message = func(c *Conn, m Message) { c.Send(m) }
	l := listen(t, Config{Kind: ROUTER, Handler: h, Queue: 1 << 20, WriteTimeout: time.Second})
	flood := rawDial(t, l.Addr())
	flood.send(greeting31 + readyDEALER)
	var sender sync.WaitGroup
	sender.Go(func() {
		for m := appendMessage(nil, Message{make([]byte, 10_000)}, nil); ; {
			if _, err := flood.Write(m); err != nil {
				return
			}
		}
	})
	c := recv(t, "connection", w.up)
	good := rawDial(t, l.Addr())
	good.send(greeting31 + readyDEALER)
	good.expect("greeting, READY", greeting31+readyROUTER)
	for range 100 {
		good.send(`0001 "x"`)
		good.expect("echo", `0001 "x"`)
	}
	if err := recv(t, "end", w.down); !errors.Is(err, ErrSlow) {
		t.Errorf("ended with %v, want ErrSlow", err)
	}
	sender.Wait()
	if c.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
}

func TestHalfWritten(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h})
	for _, c := range []struct {
		bytes string
		want  error
	}{
		{`0001`, io.ErrUnexpectedEOF},
		{`0102 "ab"`, io.ErrUnexpectedEOF},
		{`00`, io.ErrUnexpectedEOF},
		{``, io.EOF},
		{`0001 "x"`, io.EOF},
	} {
		r := rawDial(t, l.Addr())
		r.send(greeting31 + readyDEALER)
		r.expect("greeting, READY", greeting31+readyROUTER)
		r.send(c.bytes)
		r.Close()
		if err := recv(t, "end", w.down); !errors.Is(err, c.want) {
			t.Errorf("%q, then closed: %v, want %v", c.bytes, err, c.want)
		}
	}
	// One byte at a time is as good as any.
	r := rawDial(t, l.Addr())
	for _, b := range unhex(t, greeting31+readyDEALER+`0101 "a" 0003 "bcd"`) {
		if _, err := r.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	recv(t, "small message", w.messages)
	same(t, text("a", "bcd"), recv(t, "message", w.messages))
}

// cutter forwards a connection and closes both sides after so many bytes of one direction.
func cutter(t *testing.T, to string, up bool, after int64) string {
	s := newRawServer(t)
	go func() {
		client, err := s.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", strings.TrimPrefix(to, "tcp://"))
		if err != nil {
			return
		}
		defer server.Close()
		if !up {
			client, server = server, client
		}
		both := func() { client.Close(); server.Close() }
		var back sync.WaitGroup
		back.Go(func() { _, _ = io.Copy(client, server); both() })
		_, _ = io.CopyN(server, client, after)
		both()
		back.Wait()
	}()
	return s.addr()
}

// A connection that is cut at any byte of the handshake, in either direction, leaves
// nothing behind on either side, and is told as a failure or as a disconnect.
func TestCutAnywhere(t *testing.T) {
	server, client := pair()
	for name, m := range map[string]struct{ server, client Security }{"NULL": {}, "CURVE": {server, client}} {
		for _, up := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "/client", false: "/server"}[up], func(t *testing.T) {
				var connects atomic.Int64
				w, h := observe()
				h.Connected = func(c *Conn) { connects.Add(1); c.Send(text("a message")) }
				l := listen(t, Config{Kind: ROUTER, Security: m.server, Handler: Handler{Message: func(c *Conn, m Message) { c.Send(m) }}})
				step := 1
				if name == "CURVE" {
					step = 3
				}
				after := 0
				for ; ; after += step {
					d := dial(t, cutter(t, l.Addr(), up, int64(after)), Config{
						Kind: DEALER, Security: m.client, Handler: h, ReconnectMin: time.Minute, ReconnectMax: time.Minute,
					})
					echoed := false
					select {
					case <-w.failed:
					case <-w.down:
					case <-w.messages:
						echoed = true
					case <-time.After(time.Minute):
						t.Fatalf("cut after %d bytes: nothing was told", after)
					}
					d.Close()
					for len(w.failed)+len(w.down)+len(w.messages) > 0 {
						select {
						case <-w.failed:
						case <-w.down:
						case <-w.messages:
						}
					}
					if echoed {
						break
					}
				}
				if after < 64+43 {
					t.Errorf("an echo although the connection was cut after %d bytes", after)
				}
				forgotten(t, l)
			})
		}
	}
}

func TestHandshakeTimeout(t *testing.T) {
	w, h := observe()
	cfg := Config{Kind: ROUTER, Handler: h, HandshakeTimeout: 50 * time.Millisecond}
	l := listen(t, cfg)
	rawDial(t, l.Addr()).send(greeting31)
	rawDial(t, l.Addr())
	eventually(t, "both are given up", func() bool { return l.Failed() == 2 })

	s := newRawServer(t)
	cfg.Kind = DEALER
	dial(t, s.addr(), cfg)
	var timeout net.Error
	if err := recv(t, "failure", w.failed); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("failed with %v, want a time-out", err)
	}
}

// Loopback may have all of the connections. Those that have not shown who they are make room for one that does; those that
// have stay.
func TestMaxConns(t *testing.T) {
	var log bytes.Buffer
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h, MaxConns: 4, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	connect := func() *raw {
		r := rawDial(t, l.Addr())
		r.send(greeting31 + readyDEALER)
		r.expect("greeting, READY", greeting31+readyROUTER)
		recv(t, "connection", w.up)
		return r
	}
	one := connect()
	var silent []*raw
	for range 3 {
		r := rawDial(t, l.Addr())
		r.expect("greeting", greeting31)
		silent = append(silent, r)
	}
	for _, r := range silent {
		connect()
		r.expectEnd()
	}
	rawDial(t, l.Addr()).expectEnd()
	if n := l.Refused(); n != 4 {
		t.Errorf("%d refused, want 4", n)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connections refused") || !strings.Contains(text, l.Addr()) {
		t.Errorf("the log says %q", text)
	}
	one.Close()
	eventually(t, "there is room again", func() bool {
		r := rawDial(t, l.Addr())
		_, err := io.ReadFull(r, make([]byte, greetingSize))
		return err == nil
	})
}

// What a ROUTER has answered before Close still arrives; a DEALER's queue does not
// delay its end.
func TestLinger(t *testing.T) {
	answered := make(chan bool, 1)
	l := listen(t, Config{Kind: ROUTER, Queue: 64 << 20, Handler: Handler{Message: func(c *Conn, m Message) {
		answered <- c.Send(Message{make([]byte, 16<<20)})
	}}})
	r := rawDial(t, l.Addr())
	r.send(greeting31 + readyDEALER + `0001 "x"`)
	r.expect("greeting, READY", greeting31+readyROUTER)
	recv(t, "answer", answered)
	var closing sync.WaitGroup
	closing.Go(func() { l.Close() })
	if n, err := io.Copy(io.Discard, r); n != 9+16<<20 || err != nil {
		t.Errorf("%d bytes arrived, %v", n, err)
	}
	closing.Wait()

	// Nobody reads: Close gives up after a while.
	l2 := listen(t, Config{Kind: ROUTER, Queue: 64 << 20, Handler: Handler{Message: func(c *Conn, m Message) {
		answered <- c.Send(Message{make([]byte, 32<<20)})
	}}})
	r2 := rawDial(t, l2.Addr())
	r2.send(greeting31 + readyDEALER + `0001 "x"`)
	recv(t, "answer", answered)
	l2.Close()
}

// Close with everything in flight: it returns, everything has ended (goleak), and each
// connection was told to be over exactly once.
func TestCloseInFlight(t *testing.T) {
	server, client := pair()
	for name, m := range map[string]struct{ server, client Security }{"NULL": {}, "CURVE": {server, client}} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				closeInFlight(t, m.server, m.client)
			}
		})
	}
}

func closeInFlight(t *testing.T, server, client Security) {
	var ups, downs, busy atomic.Int64
	h := Handler{
		Connected: func(c *Conn) {
			ups.Add(1)
			for range 20 {
				c.Send(Message{make([]byte, 5000)})
			}
		},
		Message:      func(c *Conn, m Message) { busy.Add(1); c.Send(m) },
		Disconnected: func(*Conn, error) { downs.Add(1) },
	}
	l := listen(t, Config{Kind: ROUTER, Security: server, Handler: h})
	var all []*Dialer
	for range 8 {
		all = append(all, dial(t, l.Addr(), Config{Kind: DEALER, Security: client, Handler: h, ReconnectMin: 1e6}))
	}
	stop := make(chan bool)
	var senders sync.WaitGroup
	for _, d := range all {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					d.Send(text("from", "elsewhere"))
				}
			}
		})
	}
	eventually(t, "everything is busy", func() bool { return busy.Load() > 500 })
	var closers sync.WaitGroup
	closers.Go(func() { l.Close() })
	for _, d := range all[:4] {
		closers.Go(func() { d.Close() })
	}
	closers.Wait()
	close(stop)
	senders.Wait()
	for _, d := range all {
		d.Close()
	}
	if ups.Load() != downs.Load() {
		t.Errorf("%d connected, %d disconnected", ups.Load(), downs.Load())
	}
}

// Conn.Close from a handler ends the connection, without another message.
func TestCloseInHandler(t *testing.T) {
	w, h := observe()
	var n atomic.Int64
	h.Message = func(c *Conn, _ Message) { n.Add(1); c.Close() }
	l := listen(t, Config{Kind: ROUTER, Handler: h})
	r := rawDial(t, l.Addr())
	r.send(greeting31 + readyDEALER + `0001 "x" 0001 "y"`)
	if err := recv(t, "end", w.down); !errors.Is(err, ErrClosed) {
		t.Errorf("ended with %v", err)
	}
	if n.Load() != 1 {
		t.Errorf("%d messages", n.Load())
	}
}

// The first attempt after a loss is made at once, and a Kick ends a back-off.
func TestAtOnceAndKick(t *testing.T) {
	w, h := observe()
	s := newRawServer(t)
	d := dial(t, s.addr(), Config{Kind: DEALER, Handler: h, ReconnectMin: time.Millisecond, ReconnectMax: time.Hour})
	serve := func() *raw {
		r := s.accept(t)
		r.send(greeting31 + readyROUTER)
		r.expect("greeting, READY", greeting31+readyDEALER)
		return r
	}
	serve().Close()
	recv(t, "connection", w.up)
	recv(t, "end", w.down)
	r := serve()
	recv(t, "connection", w.up)
	s.Close()
	r.Close()
	recv(t, "failure", w.failed)
	d.Close()

	d = dial(t, s.addr(), Config{Kind: DEALER, Handler: h, ReconnectMin: time.Hour, ReconnectMax: time.Hour})
	for range 3 {
		recv(t, "failure", w.failed)
		d.Kick()
	}
	if d.Conn() != nil {
		t.Error("connected")
	}
}
