package zmtp

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
)

func TestRouterDealer(t *testing.T) {
	gone := make(chan error, 1)
	l := listen(t, Config{Kind: ROUTER, Handler: Handler{
		Message:      func(c *Conn, m Message) { c.Send(append(Message{[]byte("re")}, m...)) },
		Disconnected: func(_ *Conn, err error) { gone <- err },
	}})
	got, up, lost := make(chan Message, 1), make(chan *Conn, 1), make(chan error, 1)
	d := dial(t, l.Addr(), Config{Kind: DEALER, Handler: Handler{
		Connected:    func(c *Conn) { up <- c },
		Message:      func(_ *Conn, m Message) { got <- clone(m) },
		Disconnected: func(_ *Conn, err error) { lost <- err },
	}})
	recv(t, "connection", up)
	for _, m := range []Message{text("one"), text("a", "", "c"), {nil, make([]byte, 100_000)}, text("")} {
		if !d.Send(m) {
			t.Fatal("Send refused")
		}
		want := append(text("re"), clone(m)...)
		same(t, want, recv(t, "answer", got))
	}
	if d.Send(nil) {
		t.Error("a message without frames was taken")
	}
	d.Close()
	if err := recv(t, "end", gone); !errors.Is(err, io.EOF) {
		t.Errorf("the listener's side ended with %v, want io.EOF", err)
	}
	if err := recv(t, "end", lost); !errors.Is(err, ErrClosed) {
		t.Errorf("the dialer's side ended with %v, want ErrClosed", err)
	}
	if d.Send(text("late")) {
		t.Error("Send after Close")
	}
}

func TestPubSub(t *testing.T) {
	type sub struct {
		prefix string
		on     bool
	}
	subs := make(chan sub, 10)
	l := listen(t, Config{Kind: PUB, Handler: Handler{
		Subscribed: func(_ *Conn, p []byte, on bool) { subs <- sub{string(p), on} },
	}})
	got := make(chan Message, 100)
	dial(t, l.Addr(), Config{Kind: SUB, Subscribe: [][]byte{[]byte("*"), []byte("tcp://a")}, Handler: Handler{
		Message: func(_ *Conn, m Message) { got <- clone(m) },
	}})
	for range 2 {
		recv(t, "subscription", subs)
	}
	sent := 0
	for i, topic := range []string{"*", "tcp://a", "tcp://b", "tcp://", "tcp://ab", "", "*x"} {
		sent += l.Publish(text(topic, fmt.Sprint(i)))
	}
	if sent != 4 {
		t.Errorf("published to %d, want 4", sent)
	}
	for _, want := range []Message{text("*", "0"), text("tcp://a", "1"), text("tcp://ab", "4"), text("*x", "6")} {
		same(t, want, recv(t, "publication", got))
	}
}

func TestReconnect(t *testing.T) {
	l := listen(t, Config{Kind: ROUTER})
	addr := l.Addr()
	up, failed := make(chan *Conn, 10), make(chan error, 1000)
	d := dial(t, addr, Config{Kind: DEALER, ReconnectMin: 1e6, ReconnectMax: 5e6, Handler: Handler{
		Connected: func(c *Conn) { up <- c },
		Failed:    func(_ string, err error) { failed <- err },
	}})
	recv(t, "connection", up)
	l.Close()
	if err := recv(t, "failure", failed); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("attempt failed with %v, want refused", err)
	}
	if d.Send(text("x")) {
		t.Error("Send without a connection")
	}
	var again *Listener
	eventually(t, "the port is free again", func() bool {
		var err error
		again, err = Listen(addr, Config{Kind: ROUTER})
		return err == nil
	})
	defer again.Close()
	recv(t, "connection", up)
}

func TestAddressFamilies(t *testing.T) {
	for _, addr := range []string{"tcp://[::1]:0", "tcp://*:*", "tcp://localhost:0"} {
		l, err := Listen(addr, Config{Kind: ROUTER})
		if err != nil {
			t.Logf("%s is not to be had here: %v", addr, err)
			continue
		}
		t.Cleanup(func() { l.Close() })
		up := make(chan *Conn, 1)
		dial(t, l.Addr(), Config{Kind: DEALER, Handler: Handler{Connected: func(c *Conn) { up <- c }}})
		if c := recv(t, "connection", up); c.addr != l.Addr() || c.peer.key != nil {
			t.Errorf("connected to %s, want %s", c.addr, l.Addr())
		}
	}
}
