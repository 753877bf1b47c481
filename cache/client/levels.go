package client

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Stats are counts since New, and levels.
type Stats struct {
	Gets      int64 // started
	Errors    int64 // of these, without a value
	Retries   int64 // tries after the first of a request
	Referred  int64 // tries at whose end the server said to ask another
	Silent    int64 // tries that were not answered in time
	Late      int64 // replies to tries that nobody waits for any more
	Malformed int64 // replies that were not understood
	Servers   int   // level: known
	Connected int   // level: of these, connected
}

type counts struct {
	gets, errors, retries, referred, silent, late, malformed atomic.Int64
}

// Stats counts what has happened so far.
func (c *Client) Stats() Stats {
	return Stats{
		Gets: c.counts.gets.Load(), Errors: c.counts.errors.Load(), Retries: c.counts.retries.Load(),
		Referred: c.counts.referred.Load(), Silent: c.counts.silent.Load(), Late: c.counts.late.Load(),
		Malformed: c.counts.malformed.Load(), Servers: len(c.servers), Connected: c.connected(),
	}
}

// Servers are the servers of the configuration, in the order in which they take turns.
func (c *Client) Servers() []Server {
	var out []Server
	for _, s := range c.servers {
		out = append(out, s.status())
	}
	return out
}

func (c *Client) connected() int {
	n := 0
	for _, s := range c.servers {
		if s.status().Connected {
			n++
		}
	}
	return n
}

// connectionErrors says why no server is connected.
func (c *Client) connectionErrors() string {
	var b strings.Builder
	for i, s := range c.Servers() {
		if i > 0 {
			b.WriteString("; ")
		}
		switch {
		case s.Connected:
			fmt.Fprintf(&b, "%s has connected now", s.Addr)
		case s.Err != nil:
			fmt.Fprintf(&b, "%s: %v", s.Addr, s.Err)
		default:
			fmt.Fprintf(&b, "%s: connecting", s.Addr)
		}
	}
	return b.String()
}

// signal wakes all who wait.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait is closed at the next wake.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
