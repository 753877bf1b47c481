package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/store/memory"
)

// systemdSocket is where this process reports to systemd during the test.
func systemdSocket(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return l
}

// systemd is told when a reload starts and ends, though the file is refused.
func TestReloadTellsSystemd(t *testing.T) {
	l := systemdSocket(t)
	hup := make(chan os.Signal, 1)
	r := &reloader{
		served: &served{host: &instance.Host{Log: slog.New(slog.DiscardHandler)}, entrance: &entrance{}, cfg: &settings.Server{}},
		Reload: Reload{When: hup, Load: func() (*settings.Server, error) { return nil, errors.New("broken") }},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.run(ctx)
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

// The metrics and DNS name the roles of the file as it is now, but for one that must wait for a restart.
func TestReloadNamesTheRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, clock, log := memory.New(nil), &leasetest.BubbleClock{}, slog.New(slog.DiscardHandler)
		k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Roster: st, Instance: lease.NewInstance("a", ""), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		roles := &campaigns{log: log, keeper: k, held: newHeldRoles(), running: map[string]campaign{},
			part: func(_ string, run func(context.Context) error) { go func() { _ = run(ended) }() }}
		was := &settings.Server{Roles: []settings.Role{{Role: "gone"}, {Role: "kept"}}}
		next := &settings.Server{Roles: []settings.Role{{Role: "kept"}, {Role: "new"}, {Role: "slow", StopGrace: time.Minute}}}
		for _, r := range was.Roles {
			roles.start(r)
		}
		server, err := api.New(api.Config{Store: st, Roles: was.RoleNames()})
		if err != nil {
			t.Fatal(err)
		}
		resolver, err := resolve.NewResolver(resolve.ResolverConfig{Store: st, Roles: was.RoleNames(), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		s := &served{host: &instance.Host{Log: log}, entrance: &entrance{}, cfg: was, server: server, names: &servedNames{resolver: resolver}}
		r := &reloader{served: s, roles: roles, Reload: Reload{Load: func() (*settings.Server, error) { return next, nil }}}
		r.once(t.Context())

		page := httptest.NewRecorder()
		server.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", nil))
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = resolver.Run(ctx) }()
		synctest.Wait()
		for role, want := range map[string]bool{"gone": false, "kept": true, "new": true, "slow": false} {
			if got := strings.Contains(page.Body.String(), `understudy_role_held{role="`+role+`"}`); got != want {
				t.Errorf("%s in the metrics: %v", role, got)
			}
			if _, _, err := resolver.Find(resolve.Name{Kind: resolve.Role, Of: role}); (err == nil) != want {
				t.Errorf("%s by its name: %v", role, err)
			}
		}
		stop()
		synctest.Wait()
	})
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
		served: &served{host: &instance.Host{Log: slog.New(slog.NewTextHandler(&said, nil))}, entrance: &entrance{}, cfg: was},
		Reload: Reload{Load: func() (*settings.Server, error) { return read("# soon\n"), nil }},
	}
	r.once(t.Context()) // with nothing to stop a role with
	if len(r.cfg.Roles) != 1 || !strings.Contains(said.String(), "is empty") {
		t.Errorf("roles %v, said %s", r.cfg.Roles, said.String())
	}
}

// The CA of client certificates is read at the start: a reload that finds another one in the file says that it waits for a restart.
func TestReloadNoticesAnotherClientCA(t *testing.T) {
	dir, ends := t.TempDir(), time.Now().Add(time.Hour)
	certFile, keyFile, caFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	pair, key := pemPair(t, 1, ends)
	ca, _ := pemPair(t, 2, ends)
	put(t, certFile, pair)
	put(t, keyFile, key)
	put(t, caFile, ca)
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	cfg := &settings.Server{TLSCert: certFile, TLSKey: keyFile, TLSClientCA: caFile}
	cert, err := openCertificate(certFile, keyFile, log)
	if err != nil {
		t.Fatal(err)
	}
	if cert.clients, err = cfg.ClientCAs(); err != nil {
		t.Fatal(err)
	}
	r := &reloader{
		served: &served{host: &instance.Host{Log: log}, entrance: &entrance{cert: cert}, cfg: cfg},
		Reload: Reload{Load: func() (*settings.Server, error) { next := *cfg; return &next, nil }},
	}
	if r.once(t.Context()); strings.Contains(text.String(), "tls_client_ca") {
		t.Errorf("the same CA: %s", text.String())
	}
	other, _ := pemPair(t, 3, ends)
	put(t, caFile, other)
	if r.once(t.Context()); !strings.Contains(text.String(), "tls_client_ca: the CA in the file has changed; takes effect after a restart") {
		t.Errorf("another CA: %s", text.String())
	}
}
