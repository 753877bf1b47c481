package sableplain

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"

	"github.com/understudy-ha/understudy/internal/resp"
)

// Server is a stand-in that runs.
type Server struct {
	ln      net.Listener
	backend string
	forms   map[string]form
	running sync.WaitGroup

	mu      sync.Mutex
	blind   bool
	before  func(args []string)
	refused []string
	served  map[string]int
	conns   map[net.Conn]struct{}
	closed  bool
}

// NodeID of the stand-in.
const NodeID = "00000000000000000000000000000000000005ab"

// Start serves on a loopback port, in front of the redis-server at backend, until
// Close.
func Start(backend string) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{ln: ln, backend: backend, forms: commands(), served: map[string]int{}, conns: map[net.Conn]struct{}{}}
	s.running.Go(s.accept)
	return s, nil
}

// Addr is HOST:PORT.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Refused are the requests that SableDB would not have understood, with why.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.refused...)
}

// Served counts the requests that were let through, by command.
func (s *Server) Served() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.served)
}

// IgnoreWatch makes it a broken server, whose WATCH does nothing: which a
// test of transactions has to notice.
func (s *Server) IgnoreWatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = true
}

// Before calls f with each request that is about to be passed on, which waits for it.
func (s *Server) Before(f func(args []string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Cut closes all connections, as a restart of the server would.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Close stops it.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.ln.Close()
	s.Cut()
	s.running.Wait()
}

func (s *Server) accept() {
	for {
		client, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() { s.serve(client) })
	}
}

// keep remembers a connection as long as it is open; ok is false after Close.
func (s *Server) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[c] = struct{}{}
	}
	return !s.closed
}

func (s *Server) forget(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// session is one client with its connection to the real server.
type session struct {
	s       *Server
	client  net.Conn
	server  net.Conn
	answers *resp.ReplyReader
	multi   bool
	spoilt  bool   // a command of the transaction was refused
	watched bool   // since the last EXEC, DISCARD or UNWATCH
	ttls    []bool // which of the queued commands are TTL
}

func (s *Server) serve(client net.Conn) {
	defer s.forget(client)
	if !s.keep(client) {
		return
	}
	server, err := net.Dial("tcp", s.backend)
	if err != nil {
		return
	}
	defer s.forget(server)
	if !s.keep(server) {
		return
	}
	requests := make(chan []string, 64)
	gone := make(chan struct{})
	defer close(gone)
	s.running.Go(func() {
		// A client that hangs up must be noticed while the server blocks.
		defer close(requests)
		in := resp.NewReader(client, requestLimits)
		for {
			args, err := in.Request()
			if err != nil {
				_ = server.Close()
				return
			}
			select {
			case requests <- args:
			case <-gone:
				return
			}
		}
	})
	c := &session{s: s, client: client, server: server, answers: resp.NewReplyReader(bufio.NewReader(server), replyLimits)}
	var out resp.Writer
	for args := range requests {
		answer, err := c.answer(args)
		if err != nil {
			break
		}
		writeReply(&out, answer)
		if _, err := client.Write(out.Take(nil)); err != nil {
			break
		}
	}
	_ = client.Close()
}

func (c *session) answer(args []string) (resp.Reply, error) {
	name := strings.ToUpper(args[0])
	if why := c.wrong(name, args); why != "" {
		c.spoilt = c.spoilt || c.multi
		c.s.refuse(fmt.Sprintf("%.200q: %s", args, why))
		return failed("ERR " + why), nil
	}
	c.s.mu.Lock()
	c.s.served[name]++
	before, blind := c.s.before, c.s.blind
	c.s.mu.Unlock()
	if before != nil {
		before(args)
	}
	switch name {
	case "INFO":
		return c.info()
	case "TTL":
		args = []string{"PTTL", args[1]}
		if !c.multi {
			v, err := c.pass(args)
			return roundUp(v), err
		}
	case "EXEC":
		return c.exec()
	case "WATCH":
		c.watched = true
		if blind {
			return resp.Reply{Kind: '+', Text: "OK"}, nil
		}
	case "UNWATCH", "DISCARD":
		c.watched, c.multi = false, false
	case "MULTI":
		c.multi, c.spoilt, c.ttls = true, false, nil
		return c.pass(args)
	}
	if c.multi {
		c.ttls = append(c.ttls, name == "TTL")
	}
	return c.pass(args)
}

// wrong is why SableDB would not do it.
func (c *session) wrong(name string, args []string) string {
	f, known := c.s.forms[name]
	switch {
	case !known:
		return "unsupported command " + strings.ToLower(args[0])
	case c.multi && outside(name):
		return fmt.Sprintf("command %s can not be used in a MULTI / EXEC block", strings.ToLower(args[0]))
	case name == "WATCH" && c.watched:
		return "a second WATCH replaces the first: nothing sensible does that"
	case (name == "EXEC" || name == "DISCARD") && !c.multi:
		return strings.ToUpper(name) + " without MULTI"
	}
	return f(args)
}

func (s *Server) refuse(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refused) < 1000 {
		s.refused = append(s.refused, text)
	}
}

func (c *session) pass(args []string) (resp.Reply, error) {
	if _, err := c.server.Write(resp.AppendCommand(nil, args)); err != nil {
		return resp.Reply{}, err
	}
	return c.answers.Reply()
}

func (c *session) exec() (resp.Reply, error) {
	c.multi, c.watched = false, false
	if c.spoilt {
		if _, err := c.pass([]string{"DISCARD"}); err != nil {
			return resp.Reply{}, err
		}
		return failed("EXECABORT Transaction discarded because of previous errors."), nil
	}
	v, err := c.pass([]string{"EXEC"})
	for i := range v.Items {
		if i < len(c.ttls) && c.ttls[i] {
			v.Items[i] = roundUp(v.Items[i])
		}
	}
	return v, err
}

// roundUp makes seconds of milliseconds.
func roundUp(v resp.Reply) resp.Reply {
	if v.Int > 0 {
		v.Int = (v.Int + 999) / 1000
	}
	return v
}

// info is the text of SableDB.
func (c *session) info() (resp.Reply, error) {
	if v, err := c.pass([]string{"PING"}); err != nil || v.Text != "PONG" {
		return v, err
	}
	return resp.Reply{Kind: '$', Text: "# Replication\nrole:primary\nnode_id:" + NodeID + "\nshard:\nslots:0-16383\nmanagement_database:\n" +
		"last_db_update_sequence_number:1\nconnected_replicas:0\n"}, nil
}
