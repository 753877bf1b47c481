//go:build !embedded

package dns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/miekg/dns"

	"github.com/understudy-ha/understudy/resolve/dns"
)

// pipes is a listener in memory.
type pipes struct {
	accepted chan net.Conn
	failing  atomic.Bool  // there is no file left
	calls    atomic.Int64 // of Accept
	closed   chan struct{}
	close    func()
}

// manyCalls are too many, and then Accept waits: a loop without a pause would keep the time of a test from going on.
const manyCalls = 1000

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	if p.calls.Add(1) < manyCalls && p.failing.Load() {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accepted <- server
	return client
}

// TestDeafClient: one that asks and reads nothing keeps neither its connection nor the server.
func TestDeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := dns.New(dns.Config{Source: names(), Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		listener := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, nil, listener) }()
		deaf := func() net.Conn {
			c := listener.dial()
			for range 2 { // of which the second is not even read
				go func() { _ = (&wire.Conn{Conn: c}).WriteMsg(question("billing.role.ha.internal.", wire.TypeA)) }()
			}
			synctest.Wait()
			return c
		}
		const patience = 5 * time.Second // more than a message may take, and less than two that wait for each other and an idle time
		ended := make(chan error, 1)
		first := deaf()
		go func() {
			time.Sleep(patience)
			_, err := first.Read(make([]byte, 1))
			ended <- err
		}()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("%v after it asked, a client that does not read can read: %v", patience, err)
		}
		_ = first.Close()
		last := deaf()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("a client that does not read keeps the server from its end")
		}
		_ = last.Close()
	})
}

// TestNoFileLeft: a connection that cannot be accepted is tried again, with a pause, and accepted once it can be.
func TestNoFileLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := dns.New(dns.Config{Source: names(), Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		listener := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		listener.failing.Store(true)
		started := time.Now()
		go func() { done <- s.Serve(ctx, nil, listener) }()
		time.Sleep(10 * time.Second)
		if n := listener.calls.Load(); n < 5 || n > 50 {
			t.Errorf("tried %d times in %v", n, time.Since(started))
		}
		listener.failing.Store(false)
		c := listener.dial()
		if err := (&wire.Conn{Conn: c}).WriteMsg(question("billing.role.ha.internal.", wire.TypeA)); err != nil {
			t.Error(err)
		}
		if m, err := (&wire.Conn{Conn: c}).ReadMsg(); err != nil || len(m.Answer) != 1 {
			t.Errorf("answer %v, %v", m, err)
		}
		_ = c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
