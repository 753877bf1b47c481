package api

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store/memory"
)

const guardToken = "a-token-for-the-example"

// guardScript returns commands that run docs/guard.sh with another time-out of its session, and another time for its calls and
// for its command to stop.
func guardScript(t *testing.T, timeout, call, grace string) func(api, name string, command ...string) *exec.Cmd {
	t.Helper()
	sh := realserver.Find(t, "sh")
	realserver.Find(t, "curl")
	if _, err := os.Stat("/proc/uptime"); err != nil {
		t.Skip("the example is for Linux")
	}
	text, err := os.ReadFile("../docs/guard.sh")
	if err != nil {
		t.Fatal(err)
	}
	script := string(text)
	for is, other := range map[string]string{"timeout=15": timeout, "call=2 ": call, "grace=2 ": grace} {
		if strings.Count(script, is) != 1 {
			t.Fatalf("the program does not set %q once", is)
		}
		script = strings.Replace(script, is, other, 1)
	}
	guard := filepath.Join(t.TempDir(), "guard.sh")
	if err := os.WriteFile(guard, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(api, name string, command ...string) *exec.Cmd {
		cmd := exec.Command(sh, append([]string{guard, "billing", name}, command...)...)
		variable := "UNDERSTUDY_SERVER"
		if name == "web-1" {
			variable = "UNDERSTUDY_API" // its old name
		}
		cmd.Env = append(os.Environ(), variable+"="+api, "UNDERSTUDY_TOKEN="+guardToken)
		return cmd
	}
}

// longCall and longGrace are for a starved machine.
const longCall, longGrace = "call=60 ", "grace=60 "

// sleeper is a command that writes its process ID to the file and sleeps. It keeps no output open, for whose end a test that
// fails would wait.
func sleeper(file string) []string {
	return []string{"sh", "-c", `exec >/dev/null 2>&1; echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 1000`, "sleeper", file}
}

func processIn(t *testing.T, file string) (pid int) {
	t.Helper()
	realserver.Eventually(t, enough, "the command runs", func() error {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return pid
}

// mustBeDead waits for the end of a process, and ends it after the test if it does not end.
func mustBeDead(t *testing.T, pid int) {
	t.Helper()
	lives := func() bool { return syscall.Kill(pid, 0) == nil }
	t.Cleanup(func() {
		if t.Failed() && lives() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	realserver.Eventually(t, enough, "the command is dead", func() error {
		if lives() {
			return errors.New("it lives")
		}
		return nil
	})
}

// TestGuardScript runs docs/guard.sh as it stands there: a second
// one takes over when the first is stopped, under a higher term, and never
// before the first one's command is dead.
func TestGuardScript(t *testing.T) {
	// Nobody is to lapse, nor to be killed before it has written, on a machine that is starved for seconds.
	guard := guardScript(t, "timeout=300", longCall, longGrace)
	log := filepath.Join(t.TempDir(), "log")
	st := memory.New(nil)
	srv := httptest.NewServer(start(t, Config{Store: st, Token: guardToken}).Handler())
	defer srv.Close()
	run := func(name string) *realserver.Process {
		work := `trap 'echo "$1 stops" >>"$2"; exit 0' TERM; echo "$1 starts $UNDERSTUDY_TERM" >>"$2"; while :; do sleep 0.1; done`
		return realserver.Start(t, guard(srv.URL, name, "sh", "-c", work, "work", name, log))
	}
	primary := func(name string) (term int64) {
		realserver.Eventually(t, enough, name+" is primary and works", func() error {
			p, err := elect.Resolve(t.Context(), st, "billing")
			if err != nil {
				return err
			}
			lines, _ := os.ReadFile(log)
			if term = p.Term; p.Name != name || !strings.Contains(string(lines), fmt.Sprintf("%s starts %d\n", name, term)) {
				return fmt.Errorf("primary %s, log:\n%s", p.Name, lines)
			}
			return nil
		})
		return term
	}

	first := run("web-1")
	one := primary("web-1")
	second := run("web-2")
	realserver.Eventually(t, enough, "web-2 stands by", func() error {
		roles, err := elect.Roles(t.Context(), st)
		if err != nil || len(roles) != 1 || len(roles[0].Standbys) != 1 {
			return fmt.Errorf("%+v, %v", roles, err)
		}
		return nil
	})
	first.Stop(syscall.SIGTERM)
	two := primary("web-2")
	if two <= one {
		t.Errorf("web-2 has term %d after web-1 had %d", two, one)
	}
	second.Stop(syscall.SIGTERM)
	lines, _ := os.ReadFile(log)
	want := fmt.Sprintf("web-1 starts %d\nweb-1 stops\nweb-2 starts %d\nweb-2 stops\n", one, two)
	if string(lines) != want {
		t.Errorf("the commands wrote\n%s, want\n%s", lines, want)
	}
	if _, err := elect.Resolve(t.Context(), st, "billing"); err == nil {
		t.Error("the role is still held after both have been stopped")
	}
}

// A guard that got the role when its trust had nearly ended, as after a pause, starts nothing and gives the role back.
func TestGuardScriptWithoutTrust(t *testing.T) {
	guard := guardScript(t, "timeout=15", longCall, longGrace) // less than its grace and its calls may take here
	left := make(chan struct{}, 1)
	s := start(t, Config{Store: memory.New(nil), Token: guardToken}).Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		if r.Method == http.MethodDelete {
			select {
			case left <- struct{}{}:
			default:
			}
		}
	}))
	defer srv.Close()
	p := realserver.Start(t, guard(srv.URL, "web-1", "true"))
	select {
	case <-left:
	case <-time.After(enough):
		t.Error("it keeps the session")
	}
	p.Stop(syscall.SIGTERM)
	if out := p.Output(); strings.Contains(out, "primary") {
		t.Errorf("it started its command: %s", out)
	}
}

// A guard whose reader has gone, as when what it was piped into was killed, lives to stop its command before trust ends.
func TestGuardScriptWithoutReader(t *testing.T) {
	const trust = 12 * time.Second // the time-out without its interval
	guard := guardScript(t, "timeout=15", "call=4 ", "grace=1 ")
	srv := httptest.NewServer(start(t, Config{Store: memory.New(nil), Token: guardToken}).Handler())
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := guard(srv.URL, "web-1", sleeper(file)...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.ExtraFiles = []*os.File{write}
	cmd.Args = append([]string{cmd.Args[0], "-c", `exec "$0" "$@" >&3 2>&3 3>&-`}, cmd.Args...)
	p := realserver.Start(t, cmd)
	write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil || !strings.Contains(line, "is primary") {
		t.Fatalf("it says %q, %v", line, err)
	}
	pid := processIn(t, file)
	read.Close()
	closed := time.Now()
	srv.Close()
	mustBeDead(t, pid)
	if took := time.Since(closed); took > trust {
		t.Errorf("the command was dead %v after the server was, trust ended after %v", took, trust)
	}
	if p.Exited() {
		t.Error("the guard has ended")
	}
}

// The terminal of a guard was closed.
func TestGuardScriptHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored, as under nohup: no shell can trap it")
	}
	guard := guardScript(t, "timeout=300", longCall, longGrace)
	st := memory.New(nil)
	srv := httptest.NewServer(start(t, Config{Store: st, Token: guardToken}).Handler())
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "pid")
	p := realserver.Start(t, guard(srv.URL, "web-1", sleeper(file)...))
	pid := processIn(t, file)
	p.Stop(syscall.SIGHUP)
	mustBeDead(t, pid)
	if holder, err := elect.Resolve(t.Context(), st, "billing"); !errors.Is(err, elect.ErrVacant) {
		t.Errorf("the role is held by %+v, %v", holder, err)
	}
}
