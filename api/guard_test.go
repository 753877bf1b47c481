package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store/memory"
)

const guardToken = "a-token-for-the-example"

// guardScript returns what runs docs/guard.sh with another time-out of its session, and with time for a starved machine.
func guardScript(t *testing.T, timeout string) (run func(api, name string, command ...string) *realserver.Process) {
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
	for is, longer := range map[string]string{"timeout=15": timeout, "call=2 ": "call=60 ", "grace=2 ": "grace=60 "} {
		if strings.Count(script, is) != 1 {
			t.Fatalf("the program does not set %q once", is)
		}
		script = strings.Replace(script, is, longer, 1)
	}
	guard := filepath.Join(t.TempDir(), "guard.sh")
	if err := os.WriteFile(guard, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(api, name string, command ...string) *realserver.Process {
		cmd := exec.Command(sh, append([]string{guard, "billing", name}, command...)...)
		variable := "UNDERSTUDY_SERVER"
		if name == "web-1" {
			variable = "UNDERSTUDY_API" // its old name
		}
		cmd.Env = append(os.Environ(), variable+"="+api, "UNDERSTUDY_TOKEN="+guardToken)
		return realserver.Start(t, cmd)
	}
}

// TestGuardScript runs docs/guard.sh as it stands there: a second
// one takes over when the first is stopped, under a higher term, and never
// before the first one's command is dead.
func TestGuardScript(t *testing.T) {
	// Nobody is to lapse, nor to be killed before it has written, on a machine that is starved for seconds.
	guard := guardScript(t, "timeout=300")
	log := filepath.Join(t.TempDir(), "log")
	st := memory.New(nil)
	srv := httptest.NewServer(start(t, Config{Store: st, Token: guardToken}).Handler())
	defer srv.Close()
	run := func(name string) *realserver.Process {
		work := `trap 'echo "$1 stops" >>"$2"; exit 0' TERM; echo "$1 starts $UNDERSTUDY_TERM" >>"$2"; while :; do sleep 0.1; done`
		return guard(srv.URL, name, "sh", "-c", work, "work", name, log)
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
	guard := guardScript(t, "timeout=15") // less than its grace and its calls may take here
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
	p := guard(srv.URL, "web-1", "true")
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
