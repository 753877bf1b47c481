package sdnotify

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// systemd listens as systemd does, and is named in the environment.
func systemd(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", "")
	return conn
}

// hear returns the next message, "" if none comes in time.
func hear(t *testing.T, conn *net.UnixConn, within time.Duration) string {
	t.Helper()
	buf := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(buf[:n]))
}

func TestStates(t *testing.T) {
	conn := systemd(t)
	for _, c := range []struct {
		tell func()
		want string
	}{
		{Ready, "READY=1"},
		{Stopping, "STOPPING=1"},
	} {
		c.tell()
		if got := hear(t, conn, time.Minute); got != c.want {
			t.Errorf("systemd heard %q, want %q", got, c.want)
		}
	}
}

func TestReloadingTellsWhen(t *testing.T) {
	conn := systemd(t)
	before, ok := monotonic()
	if !ok {
		t.Skip("no such clock here")
	}
	Reloading()
	state, usec, found := strings.Cut(hear(t, conn, time.Minute), "\nMONOTONIC_USEC=")
	if state != "RELOADING=1" || !found {
		t.Fatalf("systemd heard %q, with a time: %v", state, found)
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	after, _ := monotonic()
	if at := time.Duration(n) * time.Microsecond; err != nil || at < before-time.Microsecond || at > after {
		t.Errorf("the time is %q (%v), not between %v and %v", usec, err, before, after)
	}
}

func TestAbstractSocket(t *testing.T) {
	name := "understudy-" + strconv.Itoa(os.Getpid())
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "\x00" + name, Net: "unixgram"})
	if err != nil {
		t.Skip("no abstract sockets here")
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", "@"+name)
	Ready()
	if got := hear(t, conn, time.Minute); got != "READY=1" {
		t.Errorf("systemd heard %q", got)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	Ready()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	Ready()
	Reloading()
	Stopping()
}

// A stuck service is not vouched for; one that continues again is.
func TestWatchdogFallsSilentWithTheService(t *testing.T) {
	conn := systemd(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	var alive atomic.Bool
	var asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watchdog(ctx, func() bool { asked.Add(1); return alive.Load() })
	}()
	for deadline := time.Now().Add(time.Minute); asked.Load() < 5; {
		if got := hear(t, conn, 10*time.Millisecond); got != "" {
			t.Fatalf("while it was stuck systemd heard %q", got)
		}
		if time.Now().After(deadline) {
			t.Fatal("the service was not asked")
		}
	}
	alive.Store(true)
	for range 3 {
		if got := hear(t, conn, time.Minute); got != "WATCHDOG=1" {
			t.Fatalf("systemd heard %q", got)
		}
	}
	cancel()
	<-done
}

// An alive that does not return is a service that does not go round.
func TestWatchdogThatHangsTellsNothing(t *testing.T) {
	conn := systemd(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	ctx, cancel := context.WithCancel(t.Context())
	entered, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		Watchdog(ctx, func() bool { close(entered); <-ctx.Done(); return false })
	}()
	<-entered
	if got := hear(t, conn, 100*time.Millisecond); got != "" {
		t.Errorf("systemd heard %q", got)
	}
	cancel()
	<-done
}

func TestWatchdogIsNotWaitedFor(t *testing.T) {
	for name, env := range map[string][2]string{
		"nothing said":      {"", ""},
		"another process's": {"30000", "1"},
		"no number":         {"soon", ""},
		"nothing":           {"0", ""},
		"less than nothing": {"-5", ""},
		"years":             {"9223372036854775807", ""},
	} {
		t.Run(name, func(t *testing.T) {
			systemd(t)
			t.Setenv("WATCHDOG_USEC", env[0])
			t.Setenv("WATCHDOG_PID", env[1])
			Watchdog(t.Context(), func() bool { t.Error("it was asked"); return false })
		})
	}
	systemd(t)
	t.Setenv("WATCHDOG_USEC", "30000000")
	if every, ok := period(); !ok || every != 10*time.Second {
		t.Errorf("it is told every %v (%v), want 10s", every, ok)
	}
}
