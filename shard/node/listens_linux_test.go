package node

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Of nodes that share a port on one host each is found by its own address; where that does not tell them apart, none is.
func TestAdoptByAddress(t *testing.T) {
	port := strconv.Itoa(realserver.FreePort(t))
	nodes, dirs := map[string]int{}, []string{t.TempDir(), t.TempDir()}
	for i, host := range []string{"127.0.0.1", "127.0.0.2"} {
		address := net.JoinHostPort(host, port)
		nodes[address] = start(t, nodeConfig(dirs[i], "listen "+address)).PID()
	}
	for _, dir := range dirs {
		logged(t, dir, "ready <nil>")
	}
	for address, pid := range nodes {
		p, err := Adopt(0, address)
		must(t, err)
		if p.PID() != pid {
			t.Errorf("process %d was adopted as the node at %s, which is process %d", p.PID(), address, pid)
		}
		must(t, p.(adopted).Close())
		for other, stranger := range nodes {
			if p, err := Adopt(stranger, address); err == nil && other != address {
				t.Errorf("process %d, which listens at %s, was adopted as the node at %s", p.PID(), other, address)
			}
		}
	}
	if p, err := Adopt(0, "localhost:"+port); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("one of two that listen on the port was adopted: %v, %v", p, err)
	}
}

// As the kernel chooses among sockets that listen on one port.
func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		table, to string
		want      int
	}{
		{hexOf(127, 0, 0, 1), "127.0.0.1", 3},
		{hexOf(127, 0, 0, 1), "127.0.0.2", 0},
		{hexOf(127, 0, 0, 1), "", 3}, // a name
		{"00000000", "10.0.0.1", 2},
		{strings.Repeat("0", 32), "10.0.0.1", 1},
		{strings.Repeat("0", 32), "2001:db8::1", 2},
		{"00000000", "2001:db8::1", 0},
		{strings.Repeat("0", 16) + hexOf(0, 0, 0xff, 0xff) + hexOf(10, 0, 0, 1), "10.0.0.1", 3},
		{strings.Repeat("0", 24) + hexOf(0, 0, 0, 1), "::1", 3},
		{strings.Repeat("0", 24) + hexOf(0, 0, 0, 1), "127.0.0.1", 0},
		{"not hex", "127.0.0.1", 0},
	} {
		to, _ := netip.ParseAddr(c.to)
		if got := accepts(tableAddress(c.table), to); got != c.want {
			t.Errorf("a socket at %s for a connection to %q: %d, want %d", c.table, c.to, got, c.want)
		}
	}
}

func hexOf(b ...byte) string { return fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b)) }
