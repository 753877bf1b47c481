package sentinel

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/connlimit"
)

// tick is how often a server looks for changes that nothing announces: a node that fell silent.
const tick = time.Second

// remembered is for how long those who asked before a +switch-master, and subscribe after it, get it.
const remembered = 10 * time.Second

// maxRemembered is how many of them at most.
const maxRemembered = 100

// moved is a +switch-master that was sent.
type moved struct {
	at      time.Time
	message message
}

// Stats of a server, for metrics.
type Stats struct {
	Conns       int   // connected now
	Subscribers int   // of these
	Accepted    int64 // since the start
	Refused     int64 // for want of room
	Dropped     int64 // subscribers that did not read
	Requests    int64
	Messages    int64 // of failovers and such, before they are copied to subscribers
}

// Server answers Sentinel clients.
type Server struct {
	cfg     Config
	started time.Time

	mu       sync.Mutex
	conns    map[*conn]struct{}
	lastID   int64
	self     net.Addr
	switches []moved // of the last moments, the oldest first

	accepted, refused, dropped, requests, messages atomic.Int64
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg.withDefaults(), started: time.Now(), conns: map[*conn]struct{}{}}, nil
}

// Stats returns how it is used.
func (s *Server) Stats() Stats {
	st := Stats{
		Accepted: s.accepted.Load(), Refused: s.refused.Load(), Dropped: s.dropped.Load(),
		Requests: s.requests.Load(), Messages: s.messages.Load(),
	}
	for _, c := range s.all() {
		st.Conns++
		if c.subscribed() {
			st.Subscribers++
		}
	}
	return st
}

// Serve answers clients of the listener, which it closes, until ctx ends or the listener
// breaks. It returns when all connections are closed: nil if ctx ended. It can be called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.self = l.Addr()
	s.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() { s.publish(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	err := s.accept(ctx, l, &all)
	stop()
	_ = l.Close()
	ended := ctx.Err() != nil
	cancel()
	for _, c := range s.all() {
		c.close()
	}
	all.Wait()
	if ended {
		return nil
	}
	return err
}

func (s *Server) accept(ctx context.Context, l net.Listener, all *sync.WaitGroup) error {
	l = connlimit.Patient(ctx, l, s.cfg.Logger)
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		c := s.admit(ctx, nc)
		if c == nil {
			s.refused.Add(1)
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = nc.Close()
			continue
		}
		s.accepted.Add(1)
		all.Go(func() { c.serve(ctx); s.leave(c) })
	}
}

// admit makes room for a client, or returns nil.
func (s *Server) admit(ctx context.Context, nc net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.cfg.MaxConns || ctx.Err() != nil {
		return nil
	}
	s.lastID++
	c := newConn(s, nc, s.lastID)
	s.conns[c] = struct{}{}
	return c
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// publish tells subscribers what changes. It rests longer than it works.
func (s *Server) publish(ctx context.Context) {
	known := map[string]announced{}
	for first := true; ; first = false {
		changed := s.cfg.Where.Changed()
		started := time.Now()
		messages := s.compare(known)
		if !first { // what stood before the first look is no news
			for _, m := range messages {
				s.announce(m)
			}
		}
		if took := time.Since(started); !wait(ctx, nil, 4*took) || !wait(ctx, changed, tick) {
			return
		}
	}
}

// compare brings what subscribers know up to date, and returns the messages to send.
func (s *Server) compare(known map[string]announced) []message {
	var out []message
	there := map[string]bool{}
	for _, v := range s.cfg.Where.Shards() {
		there[v.Row.Name] = true
		m, ok := masterOf(v, s.cfg.ID)
		if !ok {
			continue
		}
		var before *announced
		if k, ok := known[m.name]; ok {
			before = &k
		}
		now, messages := changes(before, m)
		known[m.name] = now
		out = append(out, messages...)
	}
	for name, k := range known {
		if !there[name] {
			delete(known, name)
			out = append(out, gone(k))
		}
	}
	return out
}

func (s *Server) announce(m message) {
	s.messages.Add(1)
	if m.channel == switchMaster {
		s.remember(m)
	}
	for _, c := range s.all() {
		if !c.queueMessage(m) {
			s.dropped.Add(1)
			s.cfg.Logger.Warn("a Sentinel subscriber does not read and was disconnected", "client", c.net.RemoteAddr().String())
		}
	}
}

func (s *Server) remember(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.switches = append(s.switches, moved{time.Now(), m})
	s.switches = s.switches[max(0, len(s.switches)-maxRemembered):]
}

// since are the messages of the last moments that are news to a client which asked at the given time, if it
// did.
func (s *Server) since(asked time.Time) []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []message
	for _, m := range s.switches {
		if !asked.IsZero() && m.at.After(asked) && time.Since(m.at) < remembered {
			out = append(out, m.message)
		}
	}
	return out
}

// wait until d has passed or wake is closed; false if ctx ended.
func wait(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}
