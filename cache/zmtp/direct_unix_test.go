//go:build unix

package zmtp

import (
	"net"
	"syscall"
	"testing"
)

// fullSocket is a socket whose buffer takes so many bytes more.
type fullSocket struct {
	syscall.RawConn
	writer *directWriter
	room   int
}

func (s fullSocket) Write(func(uintptr) bool) error {
	s.writer.n, s.writer.err = min(s.room, len(s.writer.p)), nil
	return nil
}

// What the kernel did not take at once of a large message does not keep the memory of what it took.
func TestRestOfDirectWrite(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := newConn(&Config{}, near, "pipe")
	defer c.Close()
	const size, room = 4 << 20, 4<<20 - 64<<10
	c.direct.raw = fullSocket{writer: &c.direct, room: room}
	whole := make([]byte, size)
	whole[size-1] = 7
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = whole
	c.writeOnce()
	if len(c.queue) != size-room || c.queue[len(c.queue)-1] != 7 {
		t.Fatalf("%d bytes wait", len(c.queue))
	}
	if &c.queue[0] == &whole[room] {
		t.Errorf("the %d bytes that wait keep all of %d", size-room, size)
	}
}
