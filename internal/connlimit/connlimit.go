// Package connlimit bounds the connections of a port, per address and in all, below its share of the files
// that this process may open. To make room it closes connections that are idle or have not shown who they are, the oldest first;
// where there is none, a new one is refused. Refusals are counted, and logged once a minute. While the process has no file left for
// a new one, a [Patient] listener pauses.
package connlimit

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/ratelimit"
)

const (
	// ServerShare is that of the server's own port, one in so many. What all ports leave is for the store, hooks and programs.
	ServerShare = 2
	// FurtherShare is that of each further port.
	FurtherShare = 8

	// maxConns bounds the connections of a port whatever its share is.
	maxConns = 4096
	// perAddressShare is the part of them that one address may have: a proxy needs many.
	perAddressShare = 4
	refusalsEvery   = time.Minute
)

// Limit knows the connections of a port. Its methods may be called from any goroutine.
type Limit struct {
	log             *slog.Logger
	max, perAddress int
	loopbackAll     bool

	mu       sync.Mutex
	conns    map[net.Conn]*conn
	count    map[string]int // by address, as networkOf has it
	refused  int64
	logged   int64 // of the refused
	loggedAt time.Time
}

type conn struct {
	address   string
	idle      time.Time // since when it may be closed; zero: it must not be
	handshake bool      // it has not shown who it is
}

// New is for a port of so many connections. With loopbackAll the share of an address does not bind those of this host, where a
// cache peer has most of its clients.
func New(most int, loopbackAll bool, log *slog.Logger) *Limit {
	return &Limit{log: log, max: most, loopbackAll: loopbackAll, perAddress: max(1, most/perAddressShare), conns: map[net.Conn]*conn{}, count: map[string]int{}}
}

// Admit reports whether there is room for a connection, which counts until Forget. With a handshake before its first
// request it may be closed until SetBusy, and counts as refused then.
func (l *Limit) Admit(c net.Conn, handshake bool) bool {
	address, loopback := networkOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if !(loopback && l.loopbackAll) && l.count[address] >= l.perAddress && !l.closeIdle(address) || len(l.conns) >= l.max && !l.closeIdle("") {
		l.countRefused(address)
		return false
	}
	at := &conn{address: address, handshake: handshake}
	if handshake {
		at.idle = time.Now()
	}
	l.conns[c] = at
	l.count[address]++
	return true
}

// countRefused counts a connection that was refused, and logs one a minute. l.mu is held.
func (l *Limit) countRefused(address string) {
	l.refused++
	if now := time.Now(); now.Sub(l.loggedAt) >= refusalsEvery {
		l.log.Warn("connections refused: there are too many", "address", address, "connections", l.count[address], "total", len(l.conns), "refused", l.refused-l.logged)
		l.loggedAt, l.logged = now, l.refused
	}
}

// Refused is how many connections were refused so far.
func (l *Limit) Refused() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// networkOf is the address that counts for a connection: one host can choose among all of an IPv6 /64.
func networkOf(a net.Addr) (address string, loopback bool) {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String(), false
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), addr.IsLoopback()
	}
	return ratelimit.Network(addr).String(), addr.IsLoopback()
}

// closeIdle closes the connection that has been idle the longest, of an address or ("") of all. l.mu is held.
func (l *Limit) closeIdle(address string) bool {
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
	if at := l.conns[oldest]; at.handshake {
		l.countRefused(at.address)
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

// SetIdle says that a connection may be closed from now on.
func (l *Limit) SetIdle(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.conns[c]; at != nil {
		at.idle = time.Now()
	}
}

// SetBusy says that a connection must not be closed.
func (l *Limit) SetBusy(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.conns[c]; at != nil {
		at.idle, at.handshake = time.Time{}, false
	}
}

// Forget says that a connection has ended.
func (l *Limit) Forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(c)
}

// forget is Forget; l.mu is held.
func (l *Limit) forget(c net.Conn) {
	at := l.conns[c]
	if at == nil {
		return
	}
	delete(l.conns, c)
	if l.count[at.address]--; l.count[at.address] == 0 {
		delete(l.count, at.address)
	}
}
