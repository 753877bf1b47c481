package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server under systemd tells when it is ready, that it goes round, when it reads its file again, and when it stops.
func TestServeTellsSystemd(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "understudy.yaml"), filepath.Join(dir, "notify")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server := exec.CommandContext(t.Context(), "understudy", "serve", "-c", file)
	server.Env = append(os.Environ(), "UNDERSTUDY_STORE=sqlite:"+filepath.Join(dir, "state.db"), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000", "WATCHDOG_PID=")
	var log strings.Builder
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	hears := func(want string) {
		t.Helper()
		buf := make([]byte, 4096)
		for deadline := time.Now().Add(patience); ; {
			if err := conn.SetReadDeadline(deadline); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("systemd does not hear %s: %v", want, err)
			}
			got := string(buf[:n])
			if strings.HasPrefix(got, want) {
				return
			}
			if got != "WATCHDOG=1" {
				t.Fatalf("systemd heard %q, not %s", got, want)
			}
		}
	}
	hears("READY=1")
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	if err := server.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hears("RELOADING=1\nMONOTONIC_USEC=")
	hears("READY=1")
	hears("WATCHDOG=1")
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hears("STOPPING=1")
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, &log)
	}
}
