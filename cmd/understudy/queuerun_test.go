package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// runs runs a command in this process until the test ends, which must then end
// it with code 0.
func runs(t *testing.T, args ...string) *syncbuffer.Buffer {
	t.Helper()
	out := &syncbuffer.Buffer{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, out, out) }()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != exitOK {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	})
	return out
}

// ask runs a command to its end.
func ask(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	o := &syncbuffer.Buffer{}
	return run(t.Context(), args, o, o), o.String()
}

func sqliteURL(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "u.db") }

func TestDeliverWebhooks(t *testing.T) {
	const secret = "a secret of the two"
	sink := &targettest.Sink{Deduplicates: true, Check: func(r *http.Request, body []byte) error {
		return target.Verify([]byte(secret), r.Header, body, time.Now(), time.Minute)
	}}
	srv := httptest.NewServer(sink)
	defer srv.Close()
	st := sqliteURL(t)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(t.TempDir(), "lines")
	var text strings.Builder
	var ids []string
	for n := range 1200 { // more than two groups
		fmt.Fprintf(&text, `{"key":"k%d","id":"b%d","payload":"%d"}`+"\n", n%10, n, n)
		ids = append(ids, fmt.Sprint("b", n))
	}
	if err := os.WriteFile(lines, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	runs(t, "batch", "run", "hooks", "--store", st, "--webhook", srv.URL, "--secret-file", file, "--resend-safe")
	code, out := ask(t, "batch", "add", "hooks", "--store", st, "--create", "--ndjson", lines)
	if code != exitOK || !strings.Contains(out, "1200 stored, 0 were there already") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	code, out = ask(t, append([]string{"batch", "wait", "--store", st, "--queue", "hooks", "--timeout", "5m"}, ids[1190:]...)...)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if missing := sink.Missing(ids); len(missing) > 0 {
		t.Errorf("%d did not arrive, %s among them", len(missing), missing[0])
	}
	for _, complaint := range sink.Judge() {
		t.Error(complaint)
	}
}

// TestDeliverToLedger: what a client of a ledger submits at the front is there
// once, and the front tells so.
func TestDeliverToLedger(t *testing.T) {
	ledger := &targettest.Sawtooth{}
	srv := httptest.NewServer(ledger)
	defer srv.Close()
	st := sqliteURL(t)
	log := runs(t, "batch", "run", "ledger", "--store", st, "--sawtooth", srv.URL, "--front", "127.0.0.1:0")
	var front string
	realserver.Eventually(t, time.Minute, "the front answers", func() error {
		m := regexp.MustCompile(`msg=front .* url=(\S+)`).FindStringSubmatch(log.String())
		if m == nil {
			return fmt.Errorf("the log has\n%s", log)
		}
		front = m[1]
		return nil
	})
	fromPage, err := http.NewRequestWithContext(t.Context(), "POST", front+"/batches", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	fromPage.Header.Set("Sec-Fetch-Site", "cross-site")
	if answer, err := http.DefaultClient.Do(fromPage); err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site was answered %+v, %v", answer, err)
	}
	id, list := targettest.NewSigner("one").One("1", "payload")
	answer, err := http.Post(front+"/batches", "application/octet-stream", bytes.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("the front answered %s", answer.Status)
	}
	realserver.Eventually(t, time.Minute, "the front shows it committed", func() error {
		answer, err := http.Get(front + "/batch_statuses?wait=10&id=" + id)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if !strings.Contains(string(body), "COMMITTED") {
			return fmt.Errorf("%s, %v", body, err)
		}
		return nil
	})
	if got := ledger.Effects(); len(got) != 1 || got[0] != id {
		t.Errorf("the ledger carried out %v", got)
	}
}

// TestNotBefore: a message that is to wait is shown so, sent when it is due, and what is no time is refused with one that is.
func TestNotBefore(t *testing.T) {
	sink := &targettest.Sink{}
	srv := httptest.NewServer(sink)
	defer srv.Close()
	st := sqliteURL(t)
	payload := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(payload, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(id, when string) (int, string) {
		return ask(t, "queue", "add", "hooks", "--store", st, "--create", "--key", "k", "--id", id, "--not-before", when, payload)
	}
	for _, wrong := range []string{"tomorrow", "-1h", "2026-12-24"} {
		if code, out := add("wrong", wrong); code != exitUsage || !strings.Contains(out, "2026-12-24T18:00:00Z") {
			t.Errorf("--not-before %s: exit code %d\n%s", wrong, code, out)
		}
	}
	due := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	for id, when := range map[string]string{"later": due.Format(time.RFC3339), "soon": "1s"} {
		if code, out := add(id, when); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, out)
		}
	}
	shows := func(want string, args ...string) {
		t.Helper()
		if code, out := ask(t, append([]string{"queue", "--store", st}, args...)...); code != exitOK || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, and no %q in\n%s", args, code, want, out)
		}
	}
	local := due.Local().Format(time.DateTime)
	shows("not before "+local, "list", "hooks", "--state", "scheduled")
	shows(local, "show", "later")
	shows(`"scheduled":2`, "list", "-o", "json")
	runs(t, "queue", "run", "hooks", "--store", st, "--webhook", srv.URL)
	realserver.Eventually(t, time.Minute, "what is due arrives", func() error {
		if missing := sink.Missing([]string{"soon"}); len(missing) > 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if missing := sink.Missing([]string{"later"}); len(missing) != 1 {
		t.Error("what is due in two days was sent")
	}
}

func TestStoreWithoutQueues(t *testing.T) {
	st := realserver.Redis(t, realserver.RedisOptions{}).URL()
	file := filepath.Join(t.TempDir(), "understudy.yaml")
	if err := os.WriteFile(file, []byte("queues: [{queue: a, exec: {command: [cat]}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for one that does not answer: its URL says that it cannot.
	for _, args := range [][]string{
		{"queue", "run", "a", "--exec", "--", "cat"}, {"queue", "wait", "x"}, {"queue", "list"}, {"serve", "-c", file, "--listen", "127.0.0.1:0"},
	} {
		code, out := ask(t, append([]string{"--store", "redis://127.0.0.1:1"}, args...)...)
		if code != exitUsage || !strings.Contains(out, "keeps no queues") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
	for _, args := range [][]string{
		{"batch", "queues"}, {"batch", "add", "a", "--key", "k", os.DevNull}, {"batch", "wait", "x"}, {"batch", "retry", "x"},
		{"batch", "run", "a", "--exec", "--", "cat"},
		{"serve", "-c", file, "--listen", "127.0.0.1:0"},
	} {
		code, out := ask(t, append([]string{"--store", st}, args...)...)
		if code != exitUsage || !strings.Contains(out, "keeps no queues; SQLite (sqlite:PATH) and PostgreSQL (postgres://…) do") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
}
