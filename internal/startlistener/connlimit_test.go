package startlistener

import (
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// standInConn is a connection, which only remembers that it was closed.
type standInConn struct {
	net.Conn
	closed bool
}

func (c *standInConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }
func (c *standInConn) Close() error         { c.closed = true; return nil }

// What the server says of its connections decides which is closed for a new one, on a port with room for one.
func TestNote(t *testing.T) {
	l := limitConns(nil, 1, slog.New(slog.DiscardHandler))
	for _, one := range []struct {
		last http.ConnState
		room bool
	}{{http.StateNew, false}, {http.StateActive, false}, {http.StateIdle, true}, {http.StateClosed, true}, {http.StateHijacked, true}} {
		first, second := &standInConn{}, &standInConn{}
		l.limit.Admit(first, false)
		for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle} {
			l.note(first, state)
		}
		if one.last == http.StateNew { // the first request is awaited
			l.note(first, http.StateClosed)
			l.limit.Admit(first, false)
		}
		l.note(first, one.last)
		if got := l.limit.Admit(second, false); got != one.room {
			t.Errorf("after %v there is room for another: %t", one.last, got)
		}
		if want := one.last == http.StateIdle; first.closed != want {
			t.Errorf("%v: closed %t", one.last, first.closed)
		}
		l.note(first, http.StateClosed)
		l.note(second, http.StateClosed)
	}
}
