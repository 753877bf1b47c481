package client

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// server is the connection to one server, and the tries that wait for it.
type server struct {
	client     *Client
	addr       string
	configured bool
	spare      atomic.Bool
	avoid      atomic.Int64 // until when it is passed over, since the client's epoch; 0: not

	mu      sync.Mutex
	dialer  *zmtp.Dialer
	conn    *zmtp.Conn // nil: not connected
	closed  error      // why it takes no more
	failed  error      // the last attempt to connect, or why the connection ended
	last    uint32     // id
	pending map[uint32]*call
}

func (c *Client) newServer(addr string, configured bool) *server {
	return &server{client: c, addr: addr, configured: configured, pending: map[uint32]*call{}}
}

// open begins to connect; once.
func (s *server) open() error {
	cfg, ok := s.client.cfg.socket(s.addr, zmtp.Handler{
		Connected:    s.connected,
		Message:      s.message,
		Disconnected: s.disconnected,
		Failed:       func(_ string, err error) { s.note(err) },
	})
	if !ok {
		return nil
	}
	d, err := zmtp.Dial(s.addr, cfg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.dialer = d
	s.mu.Unlock()
	return nil
}

// close ends all tries with this error, and the connection. It returns when nothing of
// the server runs any more.
func (s *server) close(why error) {
	s.mu.Lock()
	s.closed = why
	d := s.dialer
	s.mu.Unlock()
	s.drop(why)
	if d != nil {
		_ = d.Close()
	}
}

func (s *server) note(err error) {
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
}

func (s *server) connected(conn *zmtp.Conn) {
	s.avoid.Store(0)
	s.mu.Lock()
	s.conn, s.failed = conn, nil
	s.mu.Unlock()
	s.client.up.wake()
}

func (s *server) disconnected(_ *zmtp.Conn, err error) {
	s.note(err)
	s.drop(err)
}

// drop ends all tries: their connection is gone.
func (s *server) drop(why error) {
	s.mu.Lock()
	lost := s.pending
	s.conn, s.pending = nil, map[uint32]*call{}
	s.mu.Unlock()
	for _, call := range lost {
		call.finish(reply{lost: why})
	}
}

// room is whether a server can take a request.
type room int

const (
	down room = iota
	full
	taken
)

// ask gives a try to the server. After taken, the call must be waited for, or
// forgotten.
func (s *server) ask(call *call) room {
	s.mu.Lock()
	conn := s.conn
	if conn == nil || s.closed != nil {
		s.mu.Unlock()
		return down
	}
	if len(s.pending) >= s.client.cfg.InFlight {
		s.mu.Unlock()
		return full
	}
	s.last++
	for s.pending[s.last] != nil { // it went round while that one waited
		s.last++
	}
	call.id = s.last
	call.alive.Store(0)
	s.pending[call.id] = call
	s.mu.Unlock()
	if conn.Send(call.frames()) {
		return taken
	}
	s.forget(call)
	return down // as it is about to be, or its queue of bytes is full
}

// forget gives up a try. A reply that comes later is ignored.
func (s *server) forget(call *call) {
	s.mu.Lock()
	waits := s.pending[call.id] == call
	if waits {
		delete(s.pending, call.id)
	}
	s.mu.Unlock()
	if !waits {
		<-call.done // somebody has taken it, and is about to finish it
	}
}

// message is called by the goroutine that reads the connection.
func (s *server) message(_ *zmtp.Conn, m zmtp.Message) {
	var r wire.Reply
	err := r.Decode(m)
	id, ok := wire.ParseID(r.ID)
	if err != nil || !ok {
		s.client.counts.malformed.Add(1)
		s.client.cfg.Log.Debug("client: a reply was not understood", "server", s.addr, "err", err)
		return
	}
	if s.avoid.Load() != 0 {
		s.avoid.Store(0)
	}
	s.mu.Lock()
	call := s.pending[id]
	if call != nil && r.Kind == wire.ReplyKeepAlive {
		call.alive.Store(int64(s.client.now()))
		s.mu.Unlock()
		return
	}
	delete(s.pending, id)
	s.mu.Unlock()
	if call == nil {
		s.client.counts.late.Add(1)
		return
	}
	r.ID, r.Value = nil, bytes.Clone(r.Value)
	call.finish(reply{Reply: r})
}

// wary says that the server did not answer in time.
func (s *server) wary() { s.avoid.Store(int64(s.client.now() + s.client.cfg.rules.avoid)) }

// rank is how gladly a server is asked; the lower, the sooner. One that was silent
// is tried again by one request, when its time is over.
func (s *server) rank() int {
	n := 0
	if s.spare.Load() {
		n = 1
	}
	if until := s.avoid.Load(); until != 0 {
		now := s.client.now()
		next := int64(now + s.client.cfg.rules.avoid)
		if time.Duration(until) > now || !s.avoid.CompareAndSwap(until, next) {
			n += 2
		}
	}
	return n
}

// Server is what the client knows of one server.
type Server struct {
	Addr       string
	Configured bool  // in Config.Servers
	Spare      bool  // not in the list that the servers gave
	Connected  bool  //
	Silent     bool  // connected, and did not answer in time
	InFlight   int   // requests that wait for it
	Err        error // why it is not connected; nil: no attempt has failed
}

func (s *server) view() Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Server{Addr: s.addr, Configured: s.configured, Spare: s.spare.Load(), Connected: s.conn != nil,
		Silent: s.avoid.Load() != 0, InFlight: len(s.pending), Err: s.failed}
}
