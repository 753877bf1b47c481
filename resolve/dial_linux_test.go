package resolve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
)

// silent is an address of this host at which nothing answers, not even by refusing: a listener that accepts nothing, and
// whose queue is full.
func silent(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for range 10 {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue of a listener does not fill up")
	return ""
}

// A holder whose host is silent does not take all the time: the others are tried.
func TestDialPastASilentHolder(t *testing.T) {
	w := newWorld(t, api.Config{})
	w.hold("billing", "web-1", silent(t))
	w.hold("billing#2", "web-2", echo(t, "2"))
	d, err := w.client(nil).Dialer("billing")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", "whatever:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 1)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "2" {
		t.Errorf("reached %q, %v", b, err)
	}
	if a, err := w.client(nil).Lookup(t.Context(), "billing"); err != nil || len(a.Holders) != 2 {
		t.Errorf("the test shows nothing: %+v, %v", a, err)
	}
}
