package api

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestGuardScript runs docs/guard.sh as it stands there: a second
// one takes over when the first is stopped, under a higher term, and never
// before the first one's command is dead.
func TestGuardScript(t *testing.T) {
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
	// Nobody is to lapse, nor to be killed before it has written, on a machine that is starved for seconds.
	for is, longer := range map[string]string{"timeout=15": "timeout=300", "call=2 ": "call=60 ", "grace=2 ": "grace=60 "} {
		if strings.Count(script, is) != 1 {
			t.Fatalf("the program does not set %q once", is)
		}
		script = strings.Replace(script, is, longer, 1)
	}
	dir := t.TempDir()
	guard, log := filepath.Join(dir, "guard.sh"), filepath.Join(dir, "log")
	if err := os.WriteFile(guard, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}

	const token = "a-token-for-the-example"
	st := memory.New(nil)
	s := start(t, Config{Store: st, Token: token})
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	run := func(name string) *realserver.Process {
		work := `trap 'echo "$1 stops" >>"$2"; exit 0' TERM; echo "$1 starts $UNDERSTUDY_TERM" >>"$2"; while :; do sleep 0.1; done`
		cmd := exec.Command(sh, guard, "billing", name, sh, "-c", work, "work", name, log)
		cmd.Env = append(os.Environ(), "UNDERSTUDY_API="+srv.URL, "UNDERSTUDY_TOKEN="+token)
		return realserver.Start(t, cmd)
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
