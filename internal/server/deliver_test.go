//go:build unix

package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestFrontLeavesFiles: clients of a front cannot open so many connections that the process has no file left for its store and
// programs.
func TestFrontLeavesFiles(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	few := files
	few.Cur = 128 // 16 connections, 4 of one address
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		q := &settings.Queue{Queue: "ledger", Front: &settings.Front{}}
		ended <- serveFront(ctx, slog.New(slog.DiscardHandler), l, memory.New(nil), q)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for i := range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		body := 0
		if i < 4 { // it is being sent, and does not come
			body = 1
		}
		fmt.Fprintf(c, "POST /batches HTTP/1.1\r\nHost: front\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", body)
		if i < 4 {
			continue
		}
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("one connection too many was answered: %s", answer)
		}
	}
}

// A queue of a server does not tell systemd that the server is ready: other parts may still be loading.
func TestQueueDoesNotSpeakForItsServer(t *testing.T) {
	l := systemdSocket(t)
	st, windows := memory.New(nil), claim.Windows{First: 30 * time.Second, Second: 3 * time.Minute}
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Instance: lease.NewInstance("a", ""), Timing: windows.Timing()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &settings.Queue{Queue: "q", Exec: &settings.Exec{Command: []string{"cat"}}}
	to, err := cfg.Target()
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatch.New(dispatch.Config{Name: "q", Keeper: k, Claims: st.Claims(), Queue: st.Queue(), Target: to, Windows: windows})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	q := servedQueue{host: &instance.Host{Log: slog.New(slog.DiscardHandler)}, cfg: cfg, queues: st, dispatcher: d}
	_ = q.run(ctx)
	end, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if _, err := io.WriteString(end, "end of the test"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1000)
	if n, err := l.Read(got); err != nil || string(got[:n]) != "end of the test" {
		t.Errorf("systemd was told %q (%v)", got[:n], err)
	}
}
