//go:build linux

package node

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
)

func TestForeign(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	mine, address := os.Getpid(), l.Addr().String()
	p, err := New(Config{Argv: []string{"redis-server"}, Dir: t.TempDir()})
	must(t, err)
	err = p.Foreign(mine, address)
	if !errors.Is(err, shard.ErrNotManaged) || !strings.Contains(err.Error(), strconv.Itoa(mine)) {
		t.Errorf("another process answers before any was started: %v", err)
	}
	child := exec.Command("sleep", "1000")
	must(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	must(t, newMark(child.Process.Pid, nil).write(p.markFile()))
	err = p.Foreign(mine, address)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(child.Process.Pid)) || !strings.Contains(err.Error(), strconv.Itoa(mine)) {
		t.Errorf("both processes are to be named: %v", err)
	}
	// What the started program has started itself is the node.
	must(t, newMark(os.Getppid(), nil).write(p.markFile()))
	must(t, p.Foreign(mine, address))
	must(t, newMark(mine, nil).write(p.markFile()))
	must(t, p.Foreign(mine, address))
	// Whatever does not listen there itself proves nothing: the number may be that of another namespace.
	must(t, newMark(1<<22, nil).write(p.markFile()))
	must(t, p.Foreign(child.Process.Pid, address))
	must(t, p.Foreign(mine, realserver.FreeAddress(t)))
	must(t, p.Foreign(0, address))
}
