package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// urlOf waits until a command says where it serves.
func urlOf(t *testing.T, log *syncbuffer.Buffer) (url string) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "it serves", func() error {
		m := regexp.MustCompile(`msg=serving url=(\S+)`).FindStringSubmatch(log.String())
		if m == nil {
			return fmt.Errorf("the log has\n%s", log)
		}
		url = m[1]
		return nil
	})
	return url
}

// controlLoop is what a control-loop event says that this test looks at.
type controlLoop struct {
	Status    string            `json:"closedLoopEventStatus"`
	Name      string            `json:"closedLoopControlName"`
	RequestID string            `json:"requestID"`
	AAI       map[string]string `json:"AAI"`
}

// TestMonitorRouters: what stands on a topic are beats, and its alarms go to another,
// one pair with an id of its own.
func TestMonitorRouters(t *testing.T) {
	mr := fakerouter.New(t)
	runs(t, "monitor", "run", "--store", sqliteURL(t), "--listen", "127.0.0.1:0", "--first-window", "1s",
		"--event", "Heartbeat_vDNS,interval=500ms,missed=2,control_loop.name=CL-dns,control_loop.target_type=VM",
		"--router-in", mr.URL("HB_IN"), "--group", "hb", "--consumer", "one", "--router-out", mr.URL("CL_OUT"))
	const ves = `{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":"Heartbeat_vDNS","sourceName":"dns-1","lastEpochMicrosec":%d,"sequence":%d}}}`
	sequence := 0
	publish := func() {
		sequence++
		mr.Publish("HB_IN", fmt.Sprintf(ves, time.Now().UnixMicro(), sequence), "no beat at all")
	}
	for n := range 2 {
		publish()
		var got []controlLoop
		realserver.Eventually(t, 2*time.Minute, "an ONSET, then its ABATED", func() error {
			if n > 0 { // it beats on: a watcher that is late finds it silent again
				publish()
			}
			got = nil
			for _, text := range mr.Messages("CL_OUT") {
				var c controlLoop
				if err := json.Unmarshal([]byte(text), &c); err != nil {
					return err
				}
				got = append(got, c)
			}
			if len(got) <= n {
				return fmt.Errorf("%d events so far", len(got))
			}
			return nil
		})
		for i, c := range got {
			status := []string{"ONSET", "ABATED"}[i%2]
			if c.Status != status || c.Name != "CL-dns" || c.AAI["vserver.vserver-name"] != "dns-1" || i%2 == 1 && c.RequestID != got[i-1].RequestID {
				t.Fatalf("event %d is %+v of %+v", i, c, got)
			}
		}
	}
}

// TestMonitorKeys: with a token nobody beats without it, or a ping key, which opens
// nothing else.
func TestMonitorKeys(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "a-token-of-the-server", "ping": "a-key-for-beats-alone", "wrong": "a-key-of-somebody-else"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	st := sqliteURL(t)
	log := runs(t, "monitor", "run", "--store", st, "--listen", "127.0.0.1:0", "--event", "job,interval=1h",
		"--token-file", filepath.Join(dir, "token"), "--ping-key-file", filepath.Join(dir, "ping"), "--ping-post-only")
	url := urlOf(t, log)
	for file, want := range map[string]int{"token": exitOK, "ping": exitOK, "wrong": exitFailed} {
		code, out := ask(t, "source", "beat", "job", "by-"+file, "--server", url, "--token-file", filepath.Join(dir, file))
		if code != want {
			t.Errorf("with the %s: exit code %d, want %d\n%s", file, code, want, out)
		}
	}
	code, out := ask(t, "source", "beat", "job", "by-nothing", "--server", url)
	if code != exitFailed || !strings.Contains(out, "--token-file") {
		t.Errorf("without a key: exit code %d\n%s", code, out)
	}
	for path, want := range map[string]int{"/v1/ping/key/a-key-for-beats-alone/job/x": http.StatusForbidden, "/v1/sources": http.StatusUnauthorized} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want && answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %s, want %d", path, answer.Status, want)
		}
	}
	if _, out := ask(t, "source", "list", "--store", st); !strings.Contains(out, "by-token") || !strings.Contains(out, "by-ping") || strings.Contains(out, "by-wrong") {
		t.Errorf("the sources are\n%s", out)
	}
	if strings.Contains(log.String(), "a-key-") || strings.Contains(log.String(), "a-token-") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

// TestMonitorNeedsAStore: a store that keeps no sources is refused.
func TestMonitorNeedsAStore(t *testing.T) {
	st := realserver.Redis(t, realserver.RedisOptions{}).URL()
	for _, args := range [][]string{
		{"source", "list"}, {"source", "beat", "a", "b"}, {"source", "declare", "a", "b"}, {"monitor", "status"}, {"monitor", "config", "show"},
		{"monitor", "run", "--listen", "127.0.0.1:0", "--event", "a,interval=5s"},
	} {
		code, out := ask(t, append([]string{"--store", st}, args...)...)
		if code != exitUsage || !strings.Contains(out, "keeps no") || !strings.Contains(out, "PostgreSQL (postgres://…) do") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
	// Its jobs have alarms.
	if code, out := ask(t, "alarm", "list", "--store", st); code != exitOK {
		t.Errorf("alarm list: exit code %d\n%s", code, out)
	}
}

// TestMonitorFromCBS: what the Config Binding Service has is put into force; an empty or
// broken answer changes nothing, and is shown.
func TestMonitorFromCBS(t *testing.T) {
	var answer atomic.Value
	entry := func(name string) string {
		return `{"CBS_polling_allowed":"True","CBS_polling_interval":"1","heartbeat_config":{"vnfs":[{"eventName":"` + name +
			`","heartbeatcountmissed":3,"heartbeatinterval":60,"closedLoopControlName":"CL","policyVersion":"1","policyName":"p",` +
			`"policyScope":"s","target_type":"VNF","target":"genVnfName","version":"1"}]}}`
	}
	answer.Store(entry("Heartbeat_one"))
	cbs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/service_component/hb-7" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, answer.Load().(string))
	}))
	defer cbs.Close()
	t.Setenv("CONFIG_BINDING_SERVICE", strings.TrimPrefix(cbs.URL, "http://"))
	t.Setenv("HOSTNAME", "hb-7")
	t.Setenv("CBS_CLIENT_CONFIG_PATH", filepath.Join(t.TempDir(), "none.yaml"))
	st := sqliteURL(t)
	runs(t, "monitor", "run", "--store", st, "--listen", "127.0.0.1:0", "--config-cbs", "--log")
	says := func(want string, args ...string) {
		t.Helper()
		realserver.Eventually(t, 2*time.Minute, want, func() error {
			code, out := ask(t, append(args, "--store", st)...)
			if code != exitOK || !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("exit code %d\n%s", code, out)
			}
			return nil
		})
	}
	says("check: Heartbeat_one", "monitor", "config", "show")
	for _, broken := range []string{"{}", "<html>", `{"heartbeat_config":"{"}`, strings.Replace(entry("Heartbeat_two"), `heartbeatinterval":60`, `heartbeatinterval":0`, 1)} {
		answer.Store(broken)
		says("(?m)^refused ", "monitor", "status")
		says("check: Heartbeat_one", "monitor", "config", "show")
		answer.Store(entry("Heartbeat_one"))
		realserver.Eventually(t, 2*time.Minute, "it is well again", func() error {
			if _, out := ask(t, "monitor", "status", "--store", st); strings.Contains(out, "refused") {
				return errors.New(out)
			}
			return nil
		})
	}
	answer.Store(entry("Heartbeat_two"))
	says("check: Heartbeat_two", "monitor", "config", "show")
	says("from cbs:", "monitor", "status")
}

// TestMonitorStops: who is still sending when the server stops is answered well, and what
// was acknowledged is stored.
func TestMonitorStops(t *testing.T) {
	st := sqliteURL(t)
	log, done := &syncbuffer.Buffer{}, make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		done <- run(ctx, []string{"monitor", "run", "--store", st, "--listen", "127.0.0.1:0", "--event", "job,interval=1h"}, log, log)
	}()
	url := urlOf(t, log)
	body, rest := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		answer, err := http.Post(url+"/v1/beats", "application/json", body)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode/100 != 2 {
				err = errors.New(answer.Status)
			}
		}
		answered <- err
	}()
	if _, err := io.WriteString(rest, `{"event":"job",`); err != nil {
		t.Fatal(err)
	}
	// The server has read that much when it answers a later request.
	if code, out := ask(t, "source", "beat", "job", "first", "--server", url); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	stop()
	realserver.Eventually(t, time.Minute, "nobody is let in any more", func() error {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return nil
		}
		c.Close()
		return errors.New("it still listens")
	})
	if _, err := io.WriteString(rest, `"source":"last"}`); err != nil {
		t.Fatal(err)
	}
	rest.Close()
	if err := <-answered; err != nil {
		t.Errorf("the last one was answered %v", err)
	}
	if code := <-done; code != exitOK {
		t.Errorf("exit code %d\n%s", code, log)
	}
	if code, out := ask(t, "source", "show", "job", "last", "--store", st); code != exitOK {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
