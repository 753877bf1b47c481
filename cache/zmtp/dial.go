package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// Dialer keeps one connection to one address: it connects, and connects again when the
// connection is lost, until Close. Its methods may be called from any goroutine.
type Dialer struct {
	cfg     *Config
	addr    string // tcp://host:port
	at      string // host:port
	ctx     context.Context
	cancel  context.CancelFunc
	kicked  chan struct{}
	running sync.WaitGroup
	now     atomic.Pointer[Conn] // nil: not connected
}

// HandshakeError is that somebody listens at an address, and no connection came of it.
type HandshakeError struct {
	Addr string
	Err  error // ErrProtocol, ErrMechanism, ErrAccess, ErrRefused or what ended the connection
}

// Error implements error.
func (e *HandshakeError) Error() string {
	return fmt.Sprintf("zmtp: handshake with %s: %v", e.Addr, e.Err)
}

// Unwrap gives the reason.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Dial returns at once and connects in the background. The error is one of the address or
// the configuration, and wraps [ErrConfig].
func Dial(addr string, cfg Config) (*Dialer, error) {
	at, err := ParseAddr(addr, false)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	resolved, err := cfg.resolve(false)
	if err != nil {
		return nil, err
	}
	d := &Dialer{cfg: resolved, addr: addr, at: at, kicked: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.running.Go(d.run)
	return d, nil
}

// Conn is the connection at the moment, nil if there is none.
func (d *Dialer) Conn() *Conn { return d.now.Load() }

// Send is [Conn.Send] on the connection at the moment; false without one. Nothing is
// queued while disconnected: the caller decides.
func (d *Dialer) Send(m Message) bool {
	c := d.now.Load()
	return c != nil && c.Send(m)
}

// Kick ends the back-off: the next attempt is made now. It does nothing while
// connected.
func (d *Dialer) Kick() {
	select {
	case d.kicked <- struct{}{}:
	default:
	}
}

// Close ends the connection without writing what waits. It returns when everything has
// ended, handlers included.
func (d *Dialer) Close() error {
	d.cancel()
	d.running.Wait()
	return nil
}

func (d *Dialer) run() {
	for failures := 0; d.ctx.Err() == nil; {
		lasted, err := d.connectOnce()
		var wait time.Duration
		wait, failures = pause(d.cfg, lasted, failures)
		if err != nil && d.ctx.Err() == nil {
			d.cfg.Log.Debug("zmtp: cannot connect", "addr", d.addr, "err", err)
			if f := d.cfg.Handler.Failed; f != nil {
				f(d.addr, err)
			}
		}
		sleep(d.ctx, d.kicked, wait)
	}
}

// pause is how long to wait before the next attempt, after one that made a connection
// for so long, or none, and so many failures. Whoever accepts connections only to close
// them is not asked without a pause.
func pause(cfg *Config, lasted time.Duration, failures int) (time.Duration, int) {
	if lasted >= cfg.ReconnectMin {
		return 0, 0
	}
	return backoff.Pause(failures+1, cfg.ReconnectMin, cfg.ReconnectMax), failures + 1
}

// connect dials an address. Its error is ECONNREFUSED, which readers take for the death of a process, only if every address
// of the name refused: net.Dialer gives the error of the first one, while another, where the process listens, may be cut off.
func connect(ctx context.Context, at string, lookup func(ctx context.Context, host string) ([]string, error),
	dial func(ctx context.Context, network, at string) (net.Conn, error),
) (net.Conn, error) {
	nc, err := dial(ctx, "tcp", at)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nc, err
	}
	host, port, split := net.SplitHostPort(at)
	if split != nil {
		return nil, split
	}
	all, unknown := lookup(ctx, host)
	if unknown != nil {
		return nil, unknown
	}
	if len(all) < 2 {
		return nil, err
	}
	for _, one := range all {
		nc, err = dial(ctx, "tcp", net.JoinHostPort(one, port))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nc, err
		}
	}
	return nil, err
}

// connectOnce connects, and returns when the connection has ended and how long it lasted, or why
// there was none.
func (d *Dialer) connectOnce() (lasted time.Duration, err error) {
	dialer := net.Dialer{Timeout: d.cfg.HandshakeTimeout}
	nc, err := connect(d.ctx, d.at, net.DefaultResolver.LookupHost, dialer.DialContext)
	if err != nil {
		return 0, fmt.Errorf("zmtp: connect to %s: %w", d.addr, err)
	}
	c := newConn(d.cfg, nc, d.addr)
	defer context.AfterFunc(d.ctx, func() { c.fail(ErrClosed) })()
	if err := c.handshake(false); err != nil {
		c.fail(err)
		return 0, &HandshakeError{Addr: d.addr, Err: err}
	}
	select {
	case <-d.kicked: // it has what it wanted
	default:
	}
	d.now.Store(c)
	d.cfg.Log.Debug("zmtp: connected", "addr", d.addr)
	begin := time.Now()
	err = c.serve()
	d.now.Store(nil)
	d.cfg.Log.Debug("zmtp: disconnected", "addr", d.addr, "err", err)
	return max(time.Since(begin), 1), nil
}
