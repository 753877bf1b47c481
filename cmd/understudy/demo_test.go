package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestDemo kills the primary of a real demonstration as its page does, and freezes the next: each has a successor within what is
// promised. Pages of other sites cannot, and an ordinary server has nothing of this.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts four servers")
	}
	t.Setenv("UNDERSTUDY_STORE", "")
	url := startDemo(t)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example", "Host": "elsewhere.example", "X-Forwarded-For": "192.0.2.1"} {
		if code, body := httpAsk(t, http.MethodPost, url+"/v1/demo/role-kill", header, value); code != http.StatusForbidden && code != http.StatusMisdirectedRequest {
			t.Errorf("asked with %s: %d %s", header, code, body)
		}
	}
	if code, body := httpAsk(t, http.MethodPost, url+"/v1/demo/no-such"); code != http.StatusConflict || !strings.Contains(body, "is not offered") {
		t.Errorf("something else: %d %s", code, body)
	}
	done := 0
	for _, act := range []string{"role-kill", "role-freeze"} {
		realserver.Eventually(t, 2*time.Minute, act+" is possible", func() error {
			if code, body := httpAsk(t, http.MethodPost, url+"/v1/demo/"+act); code != http.StatusNoContent {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
		realserver.Eventually(t, 2*time.Minute, "a standby took over after "+act, func() error {
			role := partOf(t, url, "role")
			took := slices.IndexFunc(role.Outcomes[min(done, len(role.Outcomes)):], func(o demoOutcome) bool { return o.Promised == 2500 })
			if took < 0 {
				return fmt.Errorf("%+v", role)
			}
			done += took + 1
			return nil
		})
	}
	kinds := map[string]int{}
	role := partOf(t, url, "role")
	for _, m := range role.Marks {
		kinds[m.Kind]++
	}
	if kinds["ended"] == 0 || kinds["frozen"] == 0 || len(role.Lanes) != 3 {
		t.Errorf("the page does not see what was done: %+v", role)
	}
	for _, o := range role.Outcomes {
		if o.Promised > 0 && !strings.Contains(o.Text, "over from") {
			t.Errorf("outcome %+v", o)
		}
	}
}

// TestServeHasNoDemo: what the page of a demonstration may do is nowhere else.
func TestServeHasNoDemo(t *testing.T) {
	addr := realserver.FreeAddress(t)
	startProgram(t, exec.Command("understudy", "serve", "--store", "sqlite:"+t.TempDir()+"/x.db", "--listen", addr))
	url := "http://" + addr
	realserver.Eventually(t, 2*time.Minute, "the server is ready", func() error {
		if code, body := httpAsk(t, http.MethodGet, url+"/readyz"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for _, c := range [][2]string{{http.MethodGet, "/v1/demo"}, {http.MethodPost, "/v1/demo/role-kill"}} {
		if code, body := httpAsk(t, c[0], url+c[1]); code != http.StatusNotFound || !strings.Contains(body, `"no_route"`) {
			t.Errorf("%s %s: %d %s", c[0], c[1], code, body)
		}
	}
}

type demoOutcome struct {
	Text     string `json:"text"`
	Took     int64  `json:"took_ms"`
	Promised int64  `json:"promised_ms"`
}

type demoPart struct {
	Part     string                  `json:"part"`
	Lanes    []struct{ Name string } `json:"lanes"`
	Marks    []struct{ Kind string } `json:"marks"`
	Outcomes []demoOutcome           `json:"outcomes"`
}

func partOf(t *testing.T, url, name string) demoPart {
	t.Helper()
	code, body := httpAsk(t, http.MethodGet, url+"/v1/demo")
	var v struct{ Parts []demoPart }
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, p := range v.Parts {
		if p.Part == name {
			return p
		}
	}
	t.Fatalf("no %s in %s", name, body)
	return demoPart{}
}

func httpAsk(t *testing.T, method, url string, header ...string) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// startDemo starts one that ends with the test, and returns its page.
func startDemo(t *testing.T) (url string) {
	t.Helper()
	cmd := exec.Command("understudy", "demo", "--no-shard", "--listen", "127.0.0.1:0", "--interval", "500ms", "--timeout", "2s")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, cmd)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			realserver.Eventually(t, 2*time.Minute, "the demonstration has begun", func() error {
				if code, body := httpAsk(t, http.MethodGet, url+"/v1/demo"); code != http.StatusOK {
					return fmt.Errorf("%d %s", code, body)
				}
				return nil
			})
			return url
		}
	}
	t.Fatal("it does not say where its page is")
	return ""
}

// startProgram starts a program that ends with the test.
func startProgram(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	})
}
