package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Every flag that serve accepts changes what it runs with, or is said here to be for something else.
func TestFlagsOfServeHaveAnEffect(t *testing.T) {
	others := map[string]string{
		"config": "names the file", "output": "what other commands print; serve prints nothing", "server": "is refused", "help": "prints",
	}
	newServe := func() (*app, *serveFlags, *cobra.Command) {
		a, f := &app{stdout: io.Discard, stderr: io.Discard}, &serveFlags{}
		root := a.root()
		old, _, err := root.Find([]string{"serve"})
		if err != nil {
			t.Fatal(err)
		}
		c := a.serveCommandOf(f)
		root.RemoveCommand(old)
		root.AddCommand(c)
		return a, f, c
	}
	var names []string
	_, _, all := newServe()
	for _, flags := range []*pflag.FlagSet{all.LocalFlags(), all.InheritedFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	for _, name := range names {
		if others[name] != "" {
			continue
		}
		a, f, c := newServe()
		if err := c.ParseFlags([]string{"--" + name, "given"}); err != nil {
			t.Fatal(err)
		}
		before := settings.Server{Token: "of the file", StoreFile: "of the file"}
		after := before
		a.applyFlags(f, c.Flags().Changed)(&after)
		if reflect.DeepEqual(before, after) {
			t.Errorf("serve accepts --%s, which has no effect", name)
		}
		if after.Token != "" && after.TokenFile != "" || after.Store != "" && after.StoreFile != "" {
			t.Errorf("--%s does not take the place of what the file says", name)
		}
	}
	if len(names) < 8 {
		t.Errorf("only the flags %v were found", names)
	}
}

// A server under systemd tells when it is ready, that it goes round, when it reads its file again, and when it stops.
func TestServeTellsSystemd(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "understudy.yaml"), filepath.Join(dir, "notify")
	addr := realserver.FreeAddress(t)
	if err := os.WriteFile(file, []byte("listen: "+addr+"\n"), 0o600); err != nil {
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
	if answer, err := http.Get("http://" + addr + "/readyz"); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("after READY=1, /readyz: %+v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
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

// A server with queues and a monitor on a PostgreSQL that accepts no writes stays up, says why it is not ready, and works as soon as that one
// is promoted.
func TestServeOnAStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs PostgreSQL")
	}
	db := realserver.Postgres(t, realserver.PostgresOptions{})
	env := append(os.Environ(), "UNDERSTUDY_STORE="+db.URL())
	migrate := exec.CommandContext(t.Context(), "understudy", "store", "migrate")
	migrate.Env = env
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	db.BecomeStandby(t)

	file, addr := filepath.Join(t.TempDir(), "understudy.yaml"), fmt.Sprintf("127.0.0.1:%d", realserver.FreePort(t))
	text := "listen: " + addr + "\nqueues:\n- queue: orders\n  exec: {command: [cat]}\nmonitor:\n  checks: [{check: disk, interval: 1m}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), "understudy", "serve", "-c", file)
	server.Env = env
	var log strings.Builder
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	ready := func(status int, says string) {
		t.Helper()
		realserver.Eventually(t, patience, "readyz answers as it should", func() error {
			select {
			case err := <-ended:
				t.Fatalf("the server has ended: %v\n%s", err, &log)
			default:
			}
			a, err := http.Get("http://" + addr + "/readyz")
			if err != nil {
				return err
			}
			defer a.Body.Close()
			body, err := io.ReadAll(a.Body)
			if err != nil || a.StatusCode != status || !strings.Contains(string(body), says) {
				return fmt.Errorf("%d %s, %v", a.StatusCode, body, err)
			}
			return nil
		})
	}
	ready(503, "accepts no writes")
	if err := db.Exec("SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	ready(200, "ready")
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, &log)
	}
}
