package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
)

// systemd is told when a reload starts and ends, though the file is refused.
func TestReloadTellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	hup := make(chan os.Signal, 1)
	r := &reloader{
		host: &instance.Host{Log: slog.New(slog.DiscardHandler)}, cfg: &settings.Server{},
		Reload: Reload{When: hup, Load: func() (*settings.Server, error) { return nil, errors.New("broken") }},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.run(ctx, live{})
	}()
	hup <- syscall.SIGHUP
	for _, want := range []string{"RELOADING=1\nMONOTONIC_USEC=", "READY=1"} {
		if err := l.SetReadDeadline(time.Now().Add(enough)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		n, err := l.Read(got)
		if err != nil || !strings.HasPrefix(string(got[:n]), want) {
			t.Fatalf("told %q, %v; want %q", got[:n], err, want)
		}
	}
	stop()
	<-done
}

// A file that is just being written is empty for a moment: its roles are not given up for that.
func TestReloadOfAnEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "understudy.yaml")
	read := func(text string) *settings.Server {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := settings.ReadWith(path, nil, func(*settings.Server) {})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var said strings.Builder
	was := read("roles: [{role: a}]\n")
	r := &reloader{
		host: &instance.Host{Log: slog.New(slog.NewTextHandler(&said, nil))}, cfg: was,
		Reload: Reload{Load: func() (*settings.Server, error) { return read("# soon\n"), nil }},
	}
	r.once(t.Context(), live{}) // with nothing to stop a role with
	if len(r.cfg.Roles) != 1 || !strings.Contains(said.String(), "is empty") {
		t.Errorf("roles %v, said %s", r.cfg.Roles, said.String())
	}
}
