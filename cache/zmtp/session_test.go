package zmtp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// raw is a peer that is scripted byte by byte.
type raw struct {
	t testing.TB
	net.Conn
}

func rawDial(t testing.TB, addr string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, nc)
}

func newRaw(t testing.TB, nc net.Conn) *raw {
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return &raw{t, nc}
}

func (r *raw) send(s string) {
	r.t.Helper()
	if _, err := r.Write(unhex(r.t, s)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) expect(what, s string) {
	r.t.Helper()
	want := unhex(r.t, s)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		r.t.Fatalf("%s: %v\n got % x\nwant % x", what, err, got[:n], want)
	}
}

func (r *raw) expectEnd() {
	r.t.Helper()
	n, err := r.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("%d bytes came, %v; the end was due", n, err)
	}
}

// rawServer accepts what a Dialer under test connects to.
type rawServer struct{ net.Listener }

func newRawServer(t testing.TB) rawServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return rawServer{ln}
}

func (s rawServer) addr() string { return "tcp://" + s.Addr().String() }

func (s rawServer) accept(t testing.TB) *raw {
	t.Helper()
	nc, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, nc)
}

// watched is a Handler that reports on channels.
type watched struct {
	up       chan *Conn
	down     chan error
	failed   chan error
	messages chan Message
	subs     chan string
}

func observe() (*watched, Handler) {
	w := &watched{make(chan *Conn, 100), make(chan error, 100), make(chan error, 10_000), make(chan Message, 100), make(chan string, 100)}
	return w, Handler{
		Connected:    func(c *Conn) { w.up <- c },
		Disconnected: func(_ *Conn, err error) { w.down <- err },
		Failed:       func(_ string, err error) { w.failed <- err },
		Message:      func(_ *Conn, m Message) { w.messages <- clone(m) },
		Subscribed: func(_ *Conn, p []byte, on bool) {
			w.subs <- map[bool]string{true: "+", false: "-"}[on] + string(p)
		},
	}
}

func TestRouterBytes(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h})
	for _, version := range []string{greeting31, greeting30} {
		r := rawDial(t, l.Addr())
		r.send(version)
		r.expect("greeting", greeting31)
		r.send(readyDEALER)
		r.expect("READY", readyROUTER)
		c := recv(t, "connection", w.up)
		r.send(`0101 31 0101 3f 0106 cdbeb6fba101 0004 77697265`)
		same(t, Message{[]byte("1"), []byte("?"), unhex(t, "cdbeb6fba101"), []byte("wire")}, recv(t, "request", w.messages))
		c.Send(text("1"))
		r.expect("keep-alive", `0001 31`)
		c.Send(Message{[]byte("1"), []byte("="), make([]byte, 300)})
		r.expect("value", `0101 31 0101 3d 02 000000000000012c`)
		r.Close()
		recv(t, "end", w.down)
	}
}

func TestDealerBytes(t *testing.T) {
	w, h := observe()
	s := newRawServer(t)
	dial(t, s.addr(), Config{Kind: DEALER, Handler: h, ReconnectMin: 1e6})
	r := s.accept(t)
	r.expect("greeting", greeting31)
	r.send(greeting31)
	r.expect("READY", readyDEALER)
	r.send(readyROUTER)
	recv(t, "connection", w.up).Send(text("hi"))
	r.expect("message", `00 02 "hi"`)
	r.Close()
	if err := recv(t, "end", w.down); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v, want io.EOF", err)
	}
}

func TestSubBytes(t *testing.T) {
	_, h := observe()
	for _, c := range []struct{ greeting, subscriptions string }{
		{greeting31, `04 0b 09 "SUBSCRIBE*" 04 0f 09 "SUBSCRIBE" "tcp:/"`},
		{greeting30, `00 02 01 2a 00 06 01 "tcp:/"`},
	} {
		s := newRawServer(t)
		d := dial(t, s.addr(), Config{Kind: SUB, Handler: h, Subscribe: [][]byte{[]byte("*"), []byte("tcp:/")}})
		r := s.accept(t)
		r.send(c.greeting)
		r.expect("greeting", greeting31)
		r.expect("READY", readySUB)
		r.send(readyPUB)
		r.expect("subscriptions", c.subscriptions)
		if d.Send(text("x")) {
			t.Error("a SUB sends")
		}
	}
}

func TestPubBytes(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: PUB, Handler: h})
	r := rawDial(t, l.Addr())
	r.send(greeting31 + readySUB)
	r.expect("greeting, READY", greeting31+readyPUB)
	for _, c := range []struct{ send, want string }{
		{`04 0b 09 "SUBSCRIBE*"`, "+*"},
		{`00 02 01 2b`, "++"},
		{`04 08 06 "CANCEL*"`, "-*"},
		{`00 02 00 2b`, "-+"},
		{`00 01 01`, "+"},
	} {
		r.send(c.send)
		if got := recv(t, "subscription", w.subs); got != c.want {
			t.Errorf("%s was told as %q, want %q", c.send, got, c.want)
		}
	}
	// What is neither is ignored, and so are commands that nobody knows.
	r.send(`00 00  00 02 02 2a  01 02 01 2a 00 00  04 09 08 "EXTENDED"  04 02 01 "x"`)
	r.send(`04 0b 09 "SUBSCRIBE!"`)
	if got := recv(t, "subscription", w.subs); got != "+!" {
		t.Errorf("%q", got)
	}
	if n := l.Publish(text("y", "")); n != 1 {
		t.Errorf("published to %d", n)
	}
	r.expect("publication", `0101 "y" 0000`)
}

func TestPing(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h})
	r := rawDial(t, l.Addr())
	r.send(greeting31 + readyDEALER)
	r.expect("greeting, READY", greeting31+readyROUTER)
	r.send(`04 07 04 "PING" 0000`)
	r.expect("PONG", `04 05 04 "PONG"`)
	r.send(`04 09 04 "PING" 0000 "ab"`)
	r.expect("PONG", `04 07 04 "PONGab"`)
	r.send(`04 1b 04 "PING" 0000 "0123456789abcdefXXXX"`)
	r.expect("PONG", `04 15 04 "PONG0123456789abcdef"`)
	r.send(`0101 "a"  04 07 04 "PING" 0000  0001 "b"`)
	r.expect("PONG", `04 05 04 "PONG"`)
	same(t, text("a", "b"), recv(t, "message around a PING", w.messages))
	// A time to live of 0.1 s, and then nothing.
	r.send(`04 07 04 "PING" 0001`)
	r.expect("PONG", `04 05 04 "PONG"`)
	if err := recv(t, "end", w.down); !errors.Is(err, ErrSilent) {
		t.Errorf("ended with %v, want ErrSilent", err)
	}
	r.expectEnd()
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h, Heartbeat: 20e6, HeartbeatTimeout: 100e6})
	silent := rawDial(t, l.Addr())
	silent.send(greeting31 + readyDEALER)
	silent.expect("greeting, READY", greeting31+readyROUTER)
	silent.expect("PING", `04 07 04 "PING" 0000`)
	if err := recv(t, "end", w.down); !errors.Is(err, ErrSilent) {
		t.Errorf("a silent peer: %v, want ErrSilent", err)
	}

	// Version 3.0 knows no PING: it may be silent as long as it likes.
	old := rawDial(t, l.Addr())
	old.send(greeting30 + readyDEALER)
	old.expect("greeting, READY", greeting31+readyROUTER)

	// Anything that comes is a sign of life.
	lively := listen(t, Config{Kind: ROUTER, Handler: h, Heartbeat: 50e6, HeartbeatTimeout: 2500e6})
	r := rawDial(t, lively.Addr())
	r.send(greeting31 + readyDEALER)
	r.expect("greeting, READY", greeting31+readyROUTER)
	for range 60 { // in all longer than the time-out
		r.expect("PING", `04 07 04 "PING" 0000`)
		r.send(`04 05 04 "PONG"`)
	}
	if len(w.down) > 0 {
		t.Error(<-w.down)
	}
}

// A peer that breaks a rule loses its connection, is told apart by the error, and
// disturbs nobody else.
func TestWrongBytes(t *testing.T) {
	w, h := observe()
	h.Message = func(c *Conn, m Message) { c.Send(m) }
	l := listen(t, Config{Kind: ROUTER, Handler: h, MaxMessage: 1000, MaxFrames: 3})
	good := rawDial(t, l.Addr())
	good.send(greeting31 + readyDEALER)
	good.expect("greeting, READY", greeting31+readyROUTER)
	recv(t, "connection", w.up)
	broken := int64(0)
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"reserved flags":      {`f8 00`, ErrProtocol},
		"too large":           {`02 00000000000003e9`, ErrTooLarge},
		"too many frames":     {`0100 0100 0100 0000`, ErrTooLarge},
		"command of no bytes": {`04 00`, ErrProtocol},
		"command of no name":  {`04 02 00 00`, ErrProtocol},
		"name cut off":        {`04 02 05 41`, ErrProtocol},
		"short PING":          {`04 05 04 "PING"`, ErrProtocol},
		"ERROR":               {`04 09 05 "ERROR" 02 "no"`, ErrRefused},
	} {
		r := rawDial(t, l.Addr())
		r.send(greeting31 + readyDEALER)
		r.expect("greeting, READY", greeting31+readyROUTER)
		recv(t, "connection", w.up)
		r.send(c.bytes)
		if err := recv(t, "end", w.down); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		r.expectEnd()
		if c.want != ErrRefused {
			broken++
		}
	}
	eventually(t, "all counted", func() bool { return l.Failed() == broken })
	good.send(`0001 "x"`)
	good.expect("echo", `0001 "x"`)
}

// A client's handshake that is wrong is refused, without Connected.
func TestWrongHandshakes(t *testing.T) {
	w, h := observe()
	l := listen(t, Config{Kind: ROUTER, Handler: h, HandshakeTimeout: time.Hour})
	n := int64(0)
	for name, c := range map[string]struct{ bytes, answer string }{
		"HTTP":                 {`"GET / HTTP/1.1" 0d0a`, ""},
		"ZMTP 1":               {`01 00`, ""},
		"ZMTP 2":               {`ff 0000000000000001 7f 01 05`, ""},
		"mechanism":            {strings.Replace(greeting31, `"NULL" 00`, `"PLAIN"`, 1), ""},
		"kind":                 {greeting31 + readySUB, `04 1a 05 "ERROR" 13 "Invalid socket type"`},
		"no kind":              {greeting31 + `04 06 05 "READY"`, `04 1a 05 "ERROR" 13 "Invalid socket type"`},
		"message":              {greeting31 + `00 01 "x"`, ""},
		"READY as a message":   {greeting31 + "00" + readyDEALER[2:], ""},
		"other command":        {greeting31 + `04 06 05 "HELLO"`, ""},
		"ERROR":                {greeting31 + `04 07 05 "ERROR" 00`, ""},
		"metadata cut off":     {greeting31 + `04 0a 05 "READY" 0b "Soc"`, ""},
		"huge READY":           {greeting31 + `06 0000000000002001`, ""},
		"identity of 256":      {greeting31 + `06 0000000000000113 05 "READY" 08 "Identity" 00000100 "` + strings.Repeat("x", 256) + `"`, ""},
		"command in two parts": {greeting31 + `05 01 00`, ""},
	} {
		r := rawDial(t, l.Addr())
		r.send(c.bytes)
		r.expect("greeting", greeting31)
		r.expect("ERROR", c.answer)
		r.expectEnd()
		n++
		eventually(t, name+" is counted", func() bool { return l.Failed() == n })
	}
	if len(w.up) > 0 || len(w.down) > 0 {
		t.Error("a handler was called")
	}
	forgotten(t, l)
}

// The same for a server's.
func TestWrongServers(t *testing.T) {
	w, h := observe()
	s := newRawServer(t)
	dial(t, s.addr(), Config{Kind: DEALER, Handler: h, ReconnectMin: 1e6, ReconnectMax: 1e6})
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"ZMTP 2":    {`ff 0000000000000001 7f 01 05`, ErrVersion},
		"mechanism": {strings.Replace(greeting31, `"NULL" 00`, `"CURVE"`, 1), ErrMechanism},
		"kind":      {greeting31 + readyPUB, ErrKind},
		"refused":   {greeting31 + `04 09 05 "ERROR" 02 "no"`, ErrRefused},
		"protocol":  {greeting31 + `04 06 05 "HELLO"`, ErrProtocol},
		"too large": {greeting31 + `06 0000000000002001`, ErrTooLarge},
		"silence":   {greeting31, io.EOF},
	} {
		r := s.accept(t)
		r.expect("greeting", greeting31)
		r.send(c.bytes)
		if name == "silence" {
			_ = r.Conn.(*net.TCPConn).CloseWrite()
		}
		if err := recv(t, "failure", w.failed); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		r.Close()
	}
	if len(w.up) > 0 {
		t.Error("Connected was called")
	}
}
