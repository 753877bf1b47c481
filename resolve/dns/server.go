//go:build !embedded

package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// queries of one TCP connection, and how long a message may take on its way.
const (
	maxQueries = 128
	messageIO  = 2 * time.Second
)

// Server answers. It is safe to use from many goroutines.
type Server struct {
	cfg    Config
	serial uint32
	// By UDP someone may ask in another's name: what is spent so must not keep him from TCP.
	byUDP, byTCP limiter

	mu    sync.Mutex
	stats Stats
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Server{cfg: cfg, serial: uint32(time.Now().Unix()), byUDP: newLimiter(cfg.Rate), byTCP: newLimiter(cfg.Rate)}, nil
}

func (c Config) withDefaults() Config {
	c.Zone = dns.CanonicalName(cmp.Or(c.Zone, DefaultZone))
	c.Rate = cmp.Or(c.Rate, DefaultRate)
	c.Conns = cmp.Or(c.Conns, DefaultConns)
	c.Idle = cmp.Or(c.Idle, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Stats tells what was done so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Serve answers on a packet connection and a listener, of which one may be nil, until ctx
// ends; then it closes them, and returns nil.
func (s *Server) Serve(ctx context.Context, packets net.PacketConn, listener net.Listener) error {
	var servers []*dns.Server
	common := func() *dns.Server {
		return &dns.Server{
			Handler: dns.HandlerFunc(s.handle), UDPSize: dns.DefaultMsgSize, MaxTCPQueries: maxQueries,
			ReadTimeout: messageIO, IdleTimeout: func() time.Duration { return s.cfg.Idle },
		}
	}
	if packets != nil {
		d := common()
		d.PacketConn = packets
		servers = append(servers, d)
	}
	if listener != nil {
		d := common()
		d.Listener = &limited{
			Listener: connlimit.Patient(ctx, listener, s.cfg.Logger), room: make(chan struct{}, s.cfg.Conns), overflow: func() { s.count(&s.stats.Overflow) },
		}
		servers = append(servers, d)
	}
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	for _, d := range servers {
		started := make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		running.Go(func() {
			if err := d.ActivateAndServe(); err != nil {
				failed <- err
			}
		})
		select {
		case <-started:
		case err := <-failed:
			failed <- err
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("dns: %w", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), messageIO)
	defer cancel()
	for _, d := range servers {
		if stopErr := d.ShutdownContext(stop); stopErr != nil {
			s.cfg.Logger.Debug("a DNS listener did not stop at once", "err", stopErr)
		}
	}
	if packets != nil {
		_ = packets.Close()
	}
	if listener != nil {
		_ = listener.Close()
	}
	running.Wait()
	return err
}

// handle answers one query.
func (s *Server) handle(w dns.ResponseWriter, q *dns.Msg) {
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	limit := s.byTCP
	if udp {
		limit = s.byUDP
	}
	verdict := limit.take(source(w.RemoteAddr()), time.Now())
	if verdict != pass {
		s.count(&s.stats.Limited)
		if verdict == drop || !udp {
			_ = w.Close()
			return
		}
	}
	m := s.answer(q, udp)
	if m == nil {
		return
	}
	if verdict == slip {
		m.Answer, m.Ns, m.Extra, m.Truncated = nil, nil, nil, true
	}
	switch m.Rcode {
	case dns.RcodeSuccess:
		s.count(&s.stats.Answered)
	case dns.RcodeNameError:
		s.count(&s.stats.Unknown)
	case dns.RcodeServerFailure:
		s.count(&s.stats.Failed)
	default:
		s.count(&s.stats.Refused)
	}
	if err := w.WriteMsg(m); err != nil && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Debug("a DNS answer could not be sent", "err", err)
	}
}

func (s *Server) count(n *uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func source(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr()
	case *net.TCPAddr:
		return a.AddrPort().Addr()
	}
	return netip.Addr{}
}

// limited accepts so many connections at a time, and closes those beyond.
type limited struct {
	net.Listener
	room     chan struct{}
	overflow func() // counts one beyond
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
		default:
			l.overflow()
			_ = c.Close()
		}
	}
}

type counted struct {
	net.Conn
	leave func()
}

// Write has a deadline of its own: the library sets none, and one client that does not read would keep Serve from its end. What
// was written in part ends the connection, or each query that it has sent already would wait as long again.
func (c *counted) Write(b []byte) (int, error) {
	err := c.SetWriteDeadline(time.Now().Add(messageIO))
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
