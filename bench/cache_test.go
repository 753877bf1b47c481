package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

func TestOriginCountsWhoAsks(t *testing.T) {
	b := &bed{}
	defer b.clear()
	o := startOrigin(b)
	o.set(0, 10)
	for _, path := range []string{"/0/a-1", "/2/a-1", "/1/a-2", "/1/b-1"} {
		resp, err := http.Get(o.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := path[3:] + "       "; err != nil || resp.StatusCode != 200 || string(body) != want {
			t.Errorf("%s: %d %q, %v, want %q", path, resp.StatusCode, body, err, want)
		}
	}
	if keys, again := o.asks("a-"); keys != 2 || again != 1 {
		t.Errorf("%d keys and %d requests more, want 2 and 1", keys, again)
	}
	first, second := o.await(b, "a-1", 1, time.Second), o.await(b, "a-1", 2, time.Second)
	if first.peer != 0 || second.peer != 2 || second.at < first.at {
		t.Errorf("asked by %+v and %+v", first, second)
	}
	o.forget()
	if keys, _ := o.asks(""); keys != 0 {
		t.Errorf("%d keys are left", keys)
	}
}

func TestReadResponse(t *testing.T) {
	value := strings.Repeat("v", hotValue)
	for text, good := range map[string]bool{
		"HTTP/1.1 200 OK\r\nAge: 1\r\nContent-Length: 100\r\n\r\n" + value:    true,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n" + value:       false,
		"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + value[:99]:          false,
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + value[:99]:         false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + value: false,
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n" + value:             false,
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n":                          false,
	} {
		if err := readResponse(bufio.NewReader(strings.NewReader(text))); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBareEcho(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go serveEach(listener, func(conn net.Conn) { _ = echo(conn) })
	clients := newEchoes(loadOptions{Servers: []string{listener.Addr().String()}, Conns: 3, Flight: 4})
	got, err := clients.hammer(20 * time.Millisecond)
	if err != nil || got.Count < 12 || got.P50 <= 0 || got.P99 < got.P50 || got.rate() <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSockets has the clients ask a server that keeps them waiting, answers, and in the
// end refuses.
func TestSockets(t *testing.T) {
	var refuse atomic.Bool
	l, err := zmtp.Listen("tcp://127.0.0.1:0", zmtp.Config{Kind: zmtp.ROUTER, Handler: zmtp.Handler{
		Message: func(c *zmtp.Conn, m zmtp.Message) {
			var q wire.Request
			if err := q.Decode(m); err != nil {
				t.Error(err)
				return
			}
			var e wire.Encoder
			c.Send(e.Reply(&wire.Reply{ID: q.ID, Kind: wire.ReplyKeepAlive}, true))
			r := wire.Reply{ID: q.ID, Kind: wire.ReplyValue, Value: []byte("v"), Expire: 1}
			if refuse.Load() {
				r = wire.Reply{ID: q.ID, Kind: wire.ReplyError, Code: wire.CodeFailed}
			}
			c.Send(e.Reply(&r, true))
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for kind, a := range map[string]func(loadOptions) (any, error){
		"socket": func(o loadOptions) (any, error) { return newSockets(o) },
		"client": func(o loadOptions) (any, error) { return newClients(o) },
	} {
		refuse.Store(false)
		clients, err := a(loadOptions{Kind: kind, Servers: []string{l.Addr()}, Key: "k", Conns: 2, Flight: 5})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := obey(clients, []string{"hammer", "20ms"}); err != nil || got.Count < 10 {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		if got, err := obey(clients, []string{"each", "k", "3", "8"}); err != nil || got.Count < 5 {
			t.Errorf("%s, each of 5 keys: %+v, %v", kind, got, err)
		}
		refuse.Store(true)
		if _, err := obey(clients, []string{"each", "k", "0", "5"}); err == nil {
			t.Errorf("%s: an error was taken for a value", kind)
		}
		for _, words := range [][]string{{}, {"hammer"}, {"hammer", "x"}, {"each", "k", "1"}, {"each", "k", "1", "x"}} {
			if _, err := obey(clients, words); err == nil {
				t.Errorf("%s: %q was obeyed", kind, words)
			}
		}
	}
}

func TestAskersAreKnown(t *testing.T) {
	for _, kind := range []string{"echo", "http", "origin"} {
		if _, err := newAsker(loadOptions{Kind: kind, Servers: []string{"127.0.0.1:1"}}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := newAsker(loadOptions{Kind: "pigeon", Servers: []string{"127.0.0.1:1"}}); err == nil {
		t.Error("an unknown kind is taken")
	}
}
