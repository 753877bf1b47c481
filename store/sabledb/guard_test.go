package sabledb_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sabledb"
)

// balancer is between a process and the server: its connections break alone, and can be late.
type balancer struct {
	s server
	l net.Listener

	mu     sync.Mutex
	links  []*link
	before func() // called once, with the next connection accepted and not passed on yet
	wg     sync.WaitGroup
}

// link is a connection that is passed on.
type link struct {
	ends  [2]net.Conn
	ended chan struct{}
}

func (s server) balancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{s: s, l: l}
	b.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.cut()
		b.wg.Wait()
	})
	return b
}

func (b *balancer) open(t *testing.T) *sabledb.Store {
	t.Helper()
	return open(t, "sabledb://"+b.l.Addr().String()+"?prefix="+b.s.prefix)
}

func (b *balancer) pass(conn net.Conn) {
	b.mu.Lock()
	before := b.before
	b.before = nil
	b.mu.Unlock()
	if before != nil {
		before()
	}
	to, err := net.Dial("tcp4", b.s.Addr)
	if err != nil {
		_ = conn.Close()
		return
	}
	n := &link{[2]net.Conn{conn, to}, make(chan struct{})}
	b.mu.Lock()
	b.links = append(b.links, n)
	b.mu.Unlock()
	defer close(n.ended)
	var wg sync.WaitGroup
	for i := range n.ends {
		wg.Go(func() {
			_, _ = io.Copy(n.ends[i], n.ends[1-i])
			n.close()
		})
	}
	wg.Wait()
}

func (n *link) close() {
	for _, end := range n.ends {
		_ = end.Close()
	}
}

// cut breaks all connections through it.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.links {
		n.close()
	}
}

// broken waits until all connections that were passed on have ended.
func (b *balancer) broken() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.links {
		<-n.ended
	}
}

// givesNothingAway demands that the store refuses a free lease since the server may have forgotten who holds it.
func givesNothingAway(t *testing.T, st *sabledb.Store, session string) {
	t.Helper()
	_, err := claim(t.Context(), st, session)
	saysForgotten(t, err)
}

func saysForgotten(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("Acquire: %v, want ErrUnavailable and why", err)
	}
}

// The server is started again after a call has looked whether it was, and before the call's own connection reaches it.
func TestRestartBehindTheLook(t *testing.T) {
	s := standIn(t)
	b := s.balancer(t)
	st := b.open(t)
	me := startSession(t, st, time.Minute)
	s.Flush()
	b.mu.Lock()
	b.before = func() {
		s.Kill()
		if err := s.Run(); err != nil {
			t.Error(err)
		}
		b.broken()
	}
	b.mu.Unlock()
	_, err := st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: me.ID})
	saysForgotten(t, err)
}

// A call that has read the state before a connection broke does not write that down: the one that noticed it does.
func TestWriteThatKnowsOfNoBreak(t *testing.T) {
	s := standIn(t)
	b := s.balancer(t)
	st := b.open(t)
	me := startSession(t, st, time.Minute)
	halted, goOn := make(chan struct{}), make(chan struct{})
	var halt, resume sync.Once
	s.Before(func(args []string) {
		switch args[0] {
		case "MULTI":
			halt.Do(func() { close(halted); <-goOn })
		case "LOCK":
			select {
			case <-halted: // the other call has noticed the break
				resume.Do(func() { close(goOn) })
			default:
			}
		}
	})
	wrote := make(chan error, 1)
	go func() {
		_, err := st.RenewSession(t.Context(), me.ID)
		wrote <- err
	}()
	<-halted
	b.mu.Lock()
	b.links[0].close() // the connection that is kept
	b.mu.Unlock()
	if _, err := st.Get(t.Context(), roleR); err != nil {
		t.Error(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	givesNothingAway(t, st, me.ID)
}

// An address that leads now to one server and now to another is of no use.
func TestTwoServersAtOneAddress(t *testing.T) {
	s := standIn(t)
	st := s.open(t)
	first := false
	s.Before(func(args []string) {
		if args[0] == "INFO" {
			if first = !first; first {
				s.InfoText("node_id:beef")
			} else {
				s.InfoText("")
			}
		}
	})
	if _, err := st.Get(t.Context(), roleR); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "two servers") {
		t.Errorf("Get: %v, want ErrUnavailable and why", err)
	}
}
