package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/idleconn"
)

// callTimeout bounds a call whose caller set no deadline.
const callTimeout = 10 * time.Second

// attempts that a call makes within its deadline while its failures are transient.
// More than a few are needed only at isolation levels above read committed.
const attempts = 12

// lane is which connections a call may use. Ordinary calls use all but one of them at a time: an instance that they keep busy
// still renews in time.
type lane bool

const (
	sessions lane = true  // for the start and the renewal of sessions
	ordinary lane = false // for all else, also the end of a session
)

// pool is the store's few connections. A slot of it is free again as soon as a
// call returns, whatever happened to the connection: one that did not answer in
// time is abandoned at once and closed in the background, so that the next call can open
// another. Calls open connections, within their deadlines.
type pool struct {
	config        *pgx.ConnConfig
	slots         chan struct{} // holds one for each connection in use
	ordinarySlots chan struct{} // … for each that is in use for an ordinary call

	// rehearsal makes a connection ready for a hand-over.
	rehearsal string

	// restore migrates again when a call did not find its function: it brings back functions, and the tables that
	// came with them, which a standby that took over may not have had yet. It does not fill a schema that is gone or empty: an operator
	// dropped it, or the URL leads to another database now, and its leases would be free while their holders trust them. A start
	// does. nil: restoring is not allowed.
	restore func(context.Context) bool

	withoutSettings   atomic.Bool // connections are made without asking for settings
	withoutTCP        atomic.Bool // … without those of tcpSettings
	explicitIsolation atomic.Bool // and transactions must say their isolation level

	accepted atomic.Pointer[host] // the last connection; nil: not known, or it became a replica

	closing context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	idle    []*pgx.Conn // the one used last at the end
}

func newPool(config *pgx.ConnConfig, size int) *pool {
	p := &pool{config: config, slots: make(chan struct{}, size), ordinarySlots: make(chan struct{}, size-1)}
	p.closing, p.cancel = context.WithCancel(context.Background())
	return p
}

// notSent marks an error that came before anything was sent.
type notSent struct{ error }

func (u notSent) Unwrap() error { return u.error }

var errClosed = errors.New("the store was closed")

// withConnection lets f use a connection. f may be called again when it failed in a way that
// left nothing behind and may pass.
func (p *pool) withConnection(ctx context.Context, l lane, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	if _, bounded := ctx.Deadline(); !bounded {
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	retry := backoff.Backoff{First: 5 * time.Millisecond, Most: 50 * time.Millisecond} // calls that met should not meet again
	for attempt := 1; ; attempt++ {
		err := p.tryOnce(ctx, l, f)
		if pgCode(err) == codeNoFunction && p.restore != nil && p.restore(ctx) {
			err = p.tryOnce(ctx, l, f)
		}
		if err == nil || attempt == attempts || !isTransient(err) || !retry.Wait(ctx) {
			return classify(err)
		}
	}
}

func (p *pool) tryOnce(ctx context.Context, l lane, f func(context.Context, *pgx.Conn) error) error {
	release, err := p.reserveSlot(ctx, l)
	if err != nil {
		return err
	}
	defer release()
	conn, err := p.connection(ctx)
	if err != nil {
		return err
	}
	defer func() { p.putBack(conn) }()
	err = f(ctx, conn)
	if isReplica(err) {
		_ = conn.Close(ctx) // the primary is elsewhere now
		p.accepted.Store(nil)
	}
	if l == sessions && err == nil {
		p.rehearse(ctx, conn)
	}
	return err
}

// rehearse makes a connection that serves a session ready for a hand-over: one renewal is later by some milliseconds, and
// not the first hand-over. If it fails, the first hand-over is slower instead.
func (p *pool) rehearse(ctx context.Context, conn *pgx.Conn) {
	const done = "rehearsed"
	if state := conn.PgConn().CustomData(); state[done] == nil {
		state[done] = true
		_, _ = conn.Exec(ctx, p.rehearsal)
	}
}

// reserveSlot waits for a slot.
func (p *pool) reserveSlot(ctx context.Context, l lane) (release func(), err error) {
	needed := []chan struct{}{p.slots}
	if l == ordinary {
		needed = []chan struct{}{p.ordinarySlots, p.slots}
	}
	for i, slot := range needed {
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			for _, entered := range needed[:i] {
				<-entered
			}
			if p.closing.Err() != nil {
				return nil, notSent{errClosed}
			}
			return nil, notSent{fmt.Errorf("all connections for such calls are in use (%d): %w", cap(slot), ctx.Err())}
		}
	}
	return func() {
		for _, entered := range needed {
			<-entered
		}
	}, nil
}

// connection returns an open connection, an idle one if there is a good one.
func (p *pool) connection(ctx context.Context) (*pgx.Conn, error) {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if last < 0 {
			p.mu.Unlock()
			break
		}
		conn := p.idle[last]
		p.idle = slices.Delete(p.idle, last, last+1)
		p.mu.Unlock()
		if isUsable(conn) {
			return conn, nil
		}
		_ = conn.Close(ctx)
	}
	if p.closing.Err() != nil {
		return nil, notSent{errClosed}
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, notSent{err}
	}
	return conn, nil
}

// tcpSettings are when the server ends the connection of a client that is gone. Until then it keeps the locks of a statement whose answer
// it cannot send, in the worst case one that is as good as committed: of keys, and of the tails that applications wait for in COMMIT.
// No timeout of statements or transactions counts meanwhile. tcp_user_timeout does on Linux, also if the client's machine lives and only the
// process has stopped; it is longer than most calls, so that a slow reader is not cut off. The others end what is idle, such as a
// listener's place. Without effect: on a Unix socket, behind a pooler (it is the server's client, and reads), and on servers that do not know
// them, or whose system does not.
var tcpSettings = map[string]string{
	"tcp_user_timeout":    "10000",                                                           // ms
	"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "3", // the first two in seconds
}

// connect asks for the settings that suit short statements, whatever the role's defaults are: compiling an overview of the queues
// took the server a second, and running it milliseconds. PgBouncer refuses to pass them on; then the defaults have to do.
func (p *pool) connect(ctx context.Context) (*pgx.Conn, error) {
	config, plain := p.config.Copy(), p.withoutSettings.Load()
	if !plain {
		config.RuntimeParams["default_transaction_isolation"] = "read committed"
		config.RuntimeParams["jit"] = "off"
	}
	withTCP := !plain && !p.withoutTCP.Load()
	if withTCP {
		for name, value := range tcpSettings {
			config.RuntimeParams[name] = cmp.Or(config.RuntimeParams[name], value) // the URL may say otherwise
		}
	}
	conn, err := p.connectAny(ctx, config)
	switch {
	case withTCP && isUnknownTCPSetting(err):
		p.withoutTCP.Store(true)
		return p.connect(ctx)
	case !plain && isRefusedParameter(err):
		p.withoutSettings.Store(true)
		return p.connect(ctx)
	}
	if err != nil {
		err = connectError{err}
	}
	return conn, err
}

// connectAny opens a connection to one of the hosts of the URL. Each host has its share of the time, so that one that vanished, and does
// not even refuse, leaves enough for the next; and the host that accepted the last connection comes first, so that not every
// connection waits for the one that vanished.
func (p *pool) connectAny(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	hosts := slices.Insert(config.Fallbacks, 0, &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig})
	names := map[host]bool{}
	for _, h := range hosts { // a host may be there twice: with TLS and without
		names[host{h.Host, h.Port}] = true
	}
	if deadline, bounded := ctx.Deadline(); bounded && len(names) > 1 {
		config.ConnectTimeout = min(config.ConnectTimeout, time.Until(deadline)/time.Duration(len(names)))
	}
	if last := p.accepted.Load(); last != nil {
		slices.SortStableFunc(hosts, func(a, b *pgconn.FallbackConfig) int {
			return cmp.Compare(last.rank(a), last.rank(b))
		})
	}
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = hosts[0].Host, hosts[0].Port, hosts[0].TLSConfig, hosts[1:]

	nameOf, lookup := map[string]string{}, config.LookupFunc
	config.LookupFunc = func(ctx context.Context, name string) ([]string, error) {
		addresses, err := lookup(ctx, name)
		for _, address := range addresses {
			nameOf[address] = name
		}
		return addresses, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		if remote, ok := conn.PgConn().Conn().RemoteAddr().(*net.TCPAddr); ok {
			p.accepted.Store(&host{nameOf[remote.AddrPort().Addr().Unmap().String()], remote.AddrPort().Port()})
		}
	}
	return conn, err
}

// host is one of those in the URL.
type host struct {
	name string
	port uint16
}

// rank is 0 for h itself, and 1 for any other.
func (h host) rank(of *pgconn.FallbackConfig) int {
	if h == (host{of.Host, of.Port}) {
		return 0
	}
	return 1
}

func (p *pool) putBack(conn *pgx.Conn) {
	if conn.IsClosed() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, conn)
}

// isUsable reports whether an idle connection is worth being tried. A server that
// stopped has said so, or has closed its end, and a statement that is sent there
// would be one of unknown outcome.
func isUsable(conn *pgx.Conn) bool {
	if idleconn.IsSilent(conn.PgConn().Conn()) {
		return true
	}
	// A ping would cost a round trip before each statement, and tell no more.
	//lint:ignore SA1019 what it cannot detect is found out by the statement
	return conn.PgConn().CheckConn() == nil && !conn.IsClosed()
}

// close cancels calls under way, waits for them, and closes all connections.
func (p *pool) close() {
	p.cancel()
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	defer func() {
		for range cap(p.slots) {
			<-p.slots
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, conn := range p.idle {
		_ = conn.Close(ctx)
	}
	p.idle = nil
}
