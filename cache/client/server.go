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
	client *Client
	addr   string
	dialer *zmtp.Dialer
	avoid  atomic.Int64 // until when it is passed over, since the client's epoch; 0: not

	mu      sync.Mutex
	conn    *zmtp.Conn // nil: not connected
	closed  bool       // it takes no more
	failed  error      // the last attempt to connect, or why the connection ended
	last    uint32     // id
	pending map[uint32]*call
}

// newServer starts to connect.
func (c *Client) newServer(addr string) (*server, error) {
	s := &server{client: c, addr: addr, pending: map[uint32]*call{}}
	var err error
	s.dialer, err = zmtp.Dial(addr, c.cfg.socket(addr, zmtp.Handler{
		Connected:    s.connected,
		Message:      s.message,
		Disconnected: s.disconnected,
		Failed:       func(_ string, err error) { s.recordError(err) },
	}))
	return s, err
}

// close ends all tries with [ErrClosed], and the connection. It returns when nothing of
// the server runs any more.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop(ErrClosed)
	_ = s.dialer.Close()
}

func (s *server) recordError(err error) {
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
	s.recordError(err)
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

// offer gives a try to the server. After taken, the call must be waited for, or
// forgotten.
func (s *server) offer(call *call) room {
	s.mu.Lock()
	conn := s.conn
	if conn == nil || s.closed {
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
		<-call.done // someone has taken it, and is about to finish it
	}
}

// message is called by the goroutine that reads the connection.
func (s *server) message(_ *zmtp.Conn, m zmtp.Message) {
	var r wire.Reply
	err := r.Decode(m)
	id, ok := wire.ParseID(r.ID)
	if err != nil || !ok {
		s.client.counts.malformed.Add(1)
		s.client.cfg.Logger.Debug("client: a reply was not understood", "server", s.addr, "err", err)
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

// avoidForNow says that the server did not answer in time.
func (s *server) avoidForNow() { s.avoid.Store(int64(s.client.now() + s.client.cfg.rules.avoid)) }

// isPassedOver reports whether other servers are asked first, because this one was silent.
// When its time has ended, it is tried again by one request.
func (s *server) isPassedOver() bool {
	until := s.avoid.Load()
	if until == 0 {
		return false
	}
	now := s.client.now()
	next := int64(now + s.client.cfg.rules.avoid)
	return time.Duration(until) > now || !s.avoid.CompareAndSwap(until, next)
}

// Server is what the client knows of one server.
type Server struct {
	Addr      string
	Connected bool
	Silent    bool  // connected, and did not answer in time
	InFlight  int   // requests that wait for it
	Err       error // why it is not connected; nil: no attempt has failed
}

func (s *server) status() Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Server{Addr: s.addr, Connected: s.conn != nil, Silent: s.avoid.Load() != 0, InFlight: len(s.pending), Err: s.failed}
}
