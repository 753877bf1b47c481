package startlistener

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/ratelimit"
)

const (
	// maxConns bounds the connections of a port, below its share of the files that this process may open.
	maxConns = 4096
	// serverShare is that of the server's own port, one in so many. What all ports leave is for the store, hooks and programs.
	serverShare = 2
	// furtherShare is that of each further port.
	furtherShare = 8
	// perAddressShare is the part of them that one address may have: a proxy needs many.
	perAddressShare = 4
	refusalsEvery   = time.Minute
)

// connLimit is a listener that bounds its connections, per address and in all. Idle ones are closed to make room, the
// oldest first; where there is none, a new one is refused.
type connLimit struct {
	net.Listener
	log             *slog.Logger
	max, perAddress int

	mu       sync.Mutex
	conns    map[net.Conn]*limitedConn
	count    map[string]int // by address, as networkOf has it
	refused  int            // since the last line
	loggedAt time.Time
}

type limitedConn struct {
	address string
	idle    time.Time // since when; zero: a request is being answered, or the first is awaited
}

// Serve answers requests on a further port of a server, with a bound of its own on its connections.
func Serve(s *http.Server, l net.Listener, log *slog.Logger) error {
	limited := limitConns(l, connBound(furtherShare), log)
	s.ConnState = limited.note
	return s.Serve(limited)
}

func limitConns(l net.Listener, most int, log *slog.Logger) *connLimit {
	return &connLimit{
		Listener: l, log: log, max: most, perAddress: max(1, most/perAddressShare),
		conns: map[net.Conn]*limitedConn{}, count: map[string]int{},
	}
}

// Accept implements [net.Listener].
func (l *connLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admit(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

func (l *connLimit) admit(c net.Conn) bool {
	address := networkOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count[address] >= l.perAddress && !l.closeIdle(address) || len(l.conns) >= l.max && !l.closeIdle("") {
		l.refused++
		if now := time.Now(); now.Sub(l.loggedAt) >= refusalsEvery {
			l.log.Warn("connections refused: there are too many", "address", address, "of_it", l.count[address], "in_all", len(l.conns), "refused", l.refused)
			l.loggedAt, l.refused = now, 0
		}
		return false
	}
	l.conns[c] = &limitedConn{address: address}
	l.count[address]++
	return true
}

// networkOf is the address that counts for a connection: one host can choose among all of an IPv6 /64.
func networkOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	return ratelimit.Network(addr).String()
}

// closeIdle closes the connection that has been idle the longest, of an address or ("") of all. l.mu is held.
func (l *connLimit) closeIdle(address string) bool {
	var oldest net.Conn
	for c, at := range l.conns {
		if at.idle.IsZero() || address != "" && at.address != address {
			continue
		}
		if oldest == nil || at.idle.Before(l.conns[oldest].idle) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	l.forget(oldest)
	// A TLS connection's own Close first writes that it ends, for up to 5 s where the client does not read. l.mu is held: nobody
	// could connect meanwhile, and no request begin or end.
	if over, ok := oldest.(interface{ NetConn() net.Conn }); ok {
		oldest = over.NetConn()
	}
	_ = oldest.Close()
	return true
}

func (l *connLimit) forget(c net.Conn) {
	at := l.conns[c]
	if at == nil {
		return
	}
	delete(l.conns, c)
	if l.count[at.address]--; l.count[at.address] == 0 {
		delete(l.count, at.address)
	}
}

// note is the server's ConnState.
func (l *connLimit) note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch at := l.conns[c]; {
	case at == nil:
	case state == http.StateIdle:
		at.idle = time.Now()
	case state == http.StateActive:
		at.idle = time.Time{}
	case state == http.StateClosed || state == http.StateHijacked:
		l.forget(c)
	}
}
