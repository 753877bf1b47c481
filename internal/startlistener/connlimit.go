package startlistener

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// limitedListener bounds the connections of a listener.
type limitedListener struct {
	net.Listener
	limit *connlimit.Limit
}

// Serve answers requests on a further port of a server, with a bound of its own on its connections.
func Serve(s *http.Server, l net.Listener, log *slog.Logger) error {
	limited := limitConns(l, connlimit.Bound(connlimit.FurtherShare), log)
	s.ConnState = limited.note
	return s.Serve(limited)
}

func limitConns(l net.Listener, most int, log *slog.Logger) limitedListener {
	return limitedListener{l, connlimit.New(most, false, log)}
}

// Accept implements [net.Listener].
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.limit.Admit(c, false) {
			return c, nil
		}
		_ = c.Close()
	}
}

// note is the server's ConnState.
func (l limitedListener) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateIdle:
		l.limit.SetIdle(c)
	case http.StateActive:
		l.limit.SetBusy(c)
	case http.StateClosed, http.StateHijacked:
		l.limit.Forget(c)
	}
}
