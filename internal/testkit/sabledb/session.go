package sabledb

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
)

// session is one client.
type session struct {
	n     *Node
	conn  net.Conn
	out   resp.Writer
	multi bool
	queue [][]string
	// written is what its transactions have written so far: it is written again by the next one.
	written map[string]*value
	now     map[string]bool // what the present EXEC has written
	inExec  bool
	watched map[string]*value
	dirty   bool // the queue was spoilt
	broken  bool
}

func (n *Node) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s := &session{n: n, conn: conn, written: map[string]*value{}}
		n.locked(func() {
			if n.conns[s] = true; n.down {
				_ = conn.Close()
			}
		})
		n.wg.Go(s.serve)
	}
}

func (s *session) serve() {
	requests, gone := make(chan []string, 1024), make(chan struct{})
	s.n.wg.Go(func() {
		// A client that hangs up frees its lock, also while it waits.
		defer close(requests)
		r := resp.NewReader(s.conn, resp.Limits{Line: 64 << 10, Args: 64 << 10, Bytes: 64 << 20})
		for {
			args, err := r.Request()
			if err != nil {
				return
			}
			select {
			case requests <- args:
			case <-gone:
				return
			}
		}
	})
	defer s.end()
	defer close(gone)
	for args := range requests {
		s.pause(args)
		s.answer(args)
		if _, err := s.conn.Write(s.out.Take(nil)); err != nil || s.broken {
			return
		}
	}
}

// pause waits while the node hangs, and as the test says.
func (s *session) pause(args []string) {
	s.n.c.mu.Lock()
	hung, before := s.n.hung, s.n.before
	s.n.c.mu.Unlock()
	if hung != nil {
		<-hung
	}
	if before != nil {
		before(args)
	}
}

func (s *session) end() {
	_ = s.conn.Close()
	s.n.locked(func() {
		delete(s.n.conns, s)
		for name, owner := range s.n.locks {
			if owner == s {
				s.n.unlock(name)
			}
		}
	})
}

func (n *Node) unlock(name string) {
	delete(n.locks, name)
	close(n.lockFreed)
	n.lockFreed = make(chan struct{})
}

func (s *session) answer(args []string) {
	name := strings.ToUpper(args[0])
	switch name {
	case "LOCK":
		s.lock(args)
		return
	case "BRPOP":
		s.brpop(args)
		return
	case "EXEC":
		s.exec()
		return
	}
	s.n.c.mu.Lock()
	defer s.n.c.mu.Unlock()
	s.n.served[name]++
	if s.multi && name != "DISCARD" {
		if _, known := s.n.commands[name]; !known || outside[name] {
			s.dirty = true
			s.refuse(args)
			return
		}
		s.queue = append(s.queue, args)
		s.out.Simple("QUEUED")
		return
	}
	switch name {
	case "MULTI":
		s.multi, s.queue, s.dirty = true, nil, false
		s.out.Simple("OK")
	case "DISCARD":
		s.multi, s.watched = false, nil
		s.out.Simple("OK")
	case "WATCH":
		s.watched = map[string]*value{}
		for _, key := range args[1:] {
			s.watched[key] = s.n.data[key]
		}
		s.out.Simple("OK")
	case "UNWATCH":
		s.watched = nil
		s.out.Simple("OK")
	case "UNLOCK":
		if len(args) == 2 && s.n.locks[args[1]] == s {
			s.n.unlock(args[1])
			s.out.Simple("OK")
		} else {
			s.out.Error("ERR no such key")
		}
	default:
		s.run(name, args)
	}
}

func (s *session) run(name string, args []string) {
	c, known := s.n.commands[name]
	switch {
	case !known || len(args) < c.least || c.exact && len(args) != c.least:
		s.refuse(args)
	case c.writes && s.n.foreign != nil && s.n.foreign(args[1]):
		s.out.Error("MOVED 1 127.0.0.1:1")
	case c.writes && s.n.replica:
		s.out.Error("READONLY You can't write against a read only replica.")
	default:
		c.run(s, args)
	}
}

func (s *session) refuse(args []string) {
	s.n.refused = append(s.n.refused, strings.Join(args, " "))
	s.out.Error("unsupported command " + strings.ToLower(args[0]))
}

// exec carries the transaction out: the watched keys are checked, and only then it waits for its turn.
func (s *session) exec() {
	s.n.c.mu.Lock()
	s.n.served["EXEC"]++
	changed := false
	for key, was := range s.watched {
		changed = changed || s.n.data[key] != was && s.n.data[key] != nil
	}
	dirty, multi := s.dirty, s.multi
	s.multi, s.watched = false, nil
	s.n.c.mu.Unlock()
	switch {
	case !multi:
		s.out.Error("ERR EXEC without MULTI")
		return
	case dirty:
		s.out.Error("EXECABORT Transaction discarded because of previous errors.")
		return
	case changed:
		s.out.NullArray()
		return
	}
	<-time.After(s.n.c.Window)
	s.n.c.mu.Lock()
	defer s.n.c.mu.Unlock()
	s.inExec, s.now = true, map[string]bool{}
	s.out.Array(len(s.queue))
	for _, args := range s.queue {
		s.run(strings.ToUpper(args[0]), args)
	}
	s.inExec = false
	for key, v := range s.written {
		s.n.put(key, v)
	}
	s.n.wake()
	if s.broken {
		s.out.Take(nil) // no answer comes
	}
}

func (s *session) lock(args []string) {
	if len(args) < 2 {
		s.out.Error("ERR wrong number of arguments for 'lock' command")
		return
	}
	wait := 0
	if len(args) > 2 {
		wait, _ = strconv.Atoi(args[2])
	}
	timer := time.After(time.Duration(wait) * time.Millisecond)
	for {
		s.n.c.mu.Lock()
		s.n.served["LOCK"]++
		owner, freed, stop := s.n.locks[args[1]], s.n.lockFreed, s.n.stop
		if owner == nil || s.n.lockless {
			owner = nil
			s.n.locks[args[1]] = s
		}
		s.n.c.mu.Unlock()
		switch owner {
		case nil:
			s.out.Simple("OK")
			return
		case s:
			s.out.Error("DEADLOCK lock is already owned by the calling client")
			return
		}
		select {
		case <-freed:
		case <-stop:
			s.broken = true
			return
		case <-timer:
			s.out.Error("EAGAIN Try again")
			return
		}
	}
}
