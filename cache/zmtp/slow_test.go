package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipeConn serves a connection after its handshake, with a pipe in place of the network: for time that is not real.
func pipeConn(t *testing.T, cfg Config) (*Conn, net.Conn) {
	t.Helper()
	resolved, err := cfg.resolve(true)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	c := newConn(resolved, near, "pipe")
	c.minor = 1
	go func() { _ = c.serve() }()
	t.Cleanup(func() { c.Close(); far.Close() })
	synctest.Wait()
	return c, far
}

// slowConn is a connection whose other end reads slowly, until the test ends.
func slowConn(t *testing.T, cfg Config, n int, every time.Duration) *Conn {
	t.Helper()
	c, far := pipeConn(t, cfg)
	go readSlowly(t.Context(), far, n, every)
	return c
}

// readSlowly reads so many bytes of each message at a time, until ctx ends.
func readSlowly(ctx context.Context, r io.Reader, n int, every time.Duration) {
	for p := make([]byte, n); ; {
		if _, err := io.ReadFull(r, p); err != nil {
			return
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
	}
}

// A reader is slow when it takes nothing for WriteTimeout, not when what is written at a time takes longer than that.
func TestSlowerThanAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := observe()
		c, far := pipeConn(t, Config{Kind: ROUTER, Handler: h, WriteTimeout: 3 * time.Second})
		ctx, stop := context.WithCancel(t.Context())
		go readSlowly(ctx, far, 8<<10, 2900*time.Millisecond)
		c.Send(Message{make([]byte, writeChunk)})
		time.Sleep(time.Minute)
		select {
		case err := <-w.down:
			t.Fatalf("disconnected although it reads: %v", err)
		default:
		}
		stop()
		begin := time.Now()
		if err := recv(t, "end", w.down); !errors.Is(err, ErrSlow) {
			t.Errorf("ended with %v, want ErrSlow", err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("a reader that has stopped is disconnected after %v", took)
		}
	})
}

// While a handler runs, it is this side that does not read: the other one is not silent.
func TestSilentInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := observe()
		h.Message = func(*Conn, Message) { time.Sleep(time.Second) }
		_, far := pipeConn(t, Config{Kind: ROUTER, Handler: h, Heartbeat: 20 * time.Millisecond, HeartbeatTimeout: 100 * time.Millisecond})
		pings := make(chan bool, 1000)
		go func() {
			defer close(pings)
			for p := make([]byte, 9); ; pings <- true {
				if _, err := io.ReadFull(far, p); err != nil {
					return
				}
			}
		}()
		for i := range 100 {
			recv(t, "PING", pings)
			answer := `04 05 04 "PONG"`
			if i == 50 {
				answer = `0001 "x"`
			}
			if _, err := far.Write(unhex(t, answer)); err != nil {
				t.Fatalf("%v: %v", err, recv(t, "end", w.down))
			}
		}
		if err := recv(t, "end", w.down); !errors.Is(err, ErrSilent) {
			t.Errorf("ended with %v, want ErrSilent", err)
		}
	})
}
