package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
)

// ran runs a command, and returns its exit code and what it wrote to standard error.
func ran(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	t.Setenv("UNDERSTUDY_STORE", "sqlite:"+filepath.Join(t.TempDir(), "none.db"))
	var log strings.Builder
	return run(t.Context(), args, io.Discard, &log), log.String()
}

// TestStoreThatKeepsNoSuchThing: a store that will never keep what a command is about is refused by its URL, before anyone waits
// for it to answer.
func TestStoreThatKeepsNoSuchThing(t *testing.T) {
	const redis, sabledb = "redis://127.0.0.1:1/0", "sabledb://127.0.0.1:1"
	file := filepath.Join(t.TempDir(), "understudy.yaml")
	if err := os.WriteFile(file, []byte("jobs: [{job: a, schedule: '@daily', command: [a]}]\nlisten: 127.0.0.1:0"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, store := range map[string]string{
		"queue list": redis, "queue run orders --webhook http://x": redis, "batch list": redis, "source beat disk web-1": redis, "source list": redis, "monitor status": redis,
		"job list": sabledb, "job run a --schedule @daily -- true": sabledb, "serve -c " + file: sabledb,
	} {
		if code, log := ran(t, append([]string{"--store", store}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(log, "the store "+store+" keeps no ") {
			t.Errorf("%s: exit %d: %s", args, code, log)
		}
	}
	for _, args := range []string{"alarm list", "job list"} { // Redis keeps jobs, and their alarms
		if code, log := ran(t, append(strings.Fields(args), "--store", redis)...); code != exitUnreachable {
			t.Errorf("%s: exit %d: %s", args, code, log)
		}
	}
}

// TestExamples: each command that acts has an example of itself, and what examples call is there, with its flags.
func TestExamples(t *testing.T) {
	root := (&app{stdout: io.Discard, stderr: io.Discard}).root()
	find := func(call string) (*cobra.Command, error) {
		call, _, _ = strings.Cut(call+" ", " -- ")
		c, rest, err := root.Find(strings.Fields(call))
		if err != nil {
			return nil, err
		}
		if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			return nil, fmt.Errorf("there is no %q", rest[0])
		}
		c.InheritedFlags() // adds them to the others
		for _, word := range rest {
			name, _, _ := strings.Cut(word, "=")
			if long, ok := strings.CutPrefix(name, "--"); ok && c.Flags().Lookup(long) == nil || !ok && len(name) == 2 && name[0] == '-' && c.Flags().ShorthandLookup(name[1:]) == nil {
				return nil, fmt.Errorf("there is no %s", name)
			}
		}
		return c, nil
	}
	for _, wrong := range []string{"rule run", "role whom x", "role run x --nmae y", "role list -z"} {
		if _, err := find(wrong); err == nil {
			t.Errorf("understudy %s was found right", wrong)
		}
	}
	calls := regexp.MustCompile(`\bunderstudy ((?:[^\n|;&)#<>]|\\\n)*)`)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		own := c.HasSubCommands()
		for _, call := range calls.FindAllStringSubmatch(c.Example, -1) {
			named, err := find(strings.ReplaceAll(call[1], "\\\n", " "))
			if err != nil {
				t.Errorf("an example of %q: understudy %s: %v", c.CommandPath(), call[1], err)
			}
			own = own || named == c
		}
		if !own {
			t.Errorf("%q has no example of itself:\n%s", c.CommandPath(), c.Example)
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(root)
}

// TestHelpPromises: help says what holds, where it once said more or something else.
func TestHelpPromises(t *testing.T) {
	for command, want := range map[string]string{
		"serve":          "an address that is not loopback needs a token and TLS",
		"shard agent":    "A takeover within one to three seconds",
		"shard failover": "Writes that the old primary accepts until it is closed are lost on top of that",
		"cache remove":   "wait this long for the peers to confirm, at most 10s",
		"cache refresh":  "wait this long for the value, at most 5m",
		"config check":   "the longest takeover time if this instance dies while another works",
		"config example": "or they conflict with other keys in the file",
		"doctor":         "no other user can read the secret files",
		"job run":        "of scheduled times at which no instance was up, run: one",
		"queue cancel":   "A message that the target has left undecided for a long time",
	} {
		var out bytes.Buffer
		if code := run(t.Context(), append(strings.Fields(command), "--help"), &out, io.Discard); code != exitOK || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%s --help does not say %q:\n%s", command, want, out.String())
		}
	}
}

// TestOldNameOfQueueList: what selects messages selects no queues, by the old name neither.
func TestOldNameOfQueueList(t *testing.T) {
	for _, flag := range []string{"--state=failed", "--key=k", "--limit=3"} {
		if code, log := ran(t, "batch", "queues", flag); code != exitUsage || !strings.Contains(log, "QUEUE, which is missing") {
			t.Errorf("%s: exit %d: %s", flag, code, log)
		}
	}
}

// TestStateOfAnotherRole: a program of one role that writes the state of another has no term of it.
func TestStateOfAnotherRole(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "understudy.db")
	if code, log := ran(t, "store", "migrate", store); code != exitOK {
		t.Fatal(log)
	}
	t.Setenv("UNDERSTUDY_ROLE", "a")
	t.Setenv("UNDERSTUDY_TERM", "17")
	if code, log := ran(t, "role", "state", "put", "b", store); code != exitUsage || !strings.Contains(log, "--term is missing") {
		t.Errorf("exit %d: %s", code, log)
	}
	t.Setenv("UNDERSTUDY_TERM", "17x")
	if code, log := ran(t, "role", "state", "put", "a", store); code != exitUsage || !strings.Contains(log, `UNDERSTUDY_TERM is "17x"`) {
		t.Errorf("exit %d: %s", code, log)
	}
}

// apiOf is a client of a server that answers by path.
func apiOf(t *testing.T, answers func(w http.ResponseWriter, r *http.Request)) *client.Client {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answers(w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestQueueRemovedMeanwhile: a queue that was removed since the queues were listed has no message, and the others are looked into.
func TestQueueRemovedMeanwhile(t *testing.T) {
	c := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/queues"):
			_, _ = io.WriteString(w, `{"queues":[{"queue":"gone"},{"queue":"orders"}]}`)
		case strings.Contains(r.URL.Path, "gone"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"no_queue","detail":"no such queue"}`)
		default:
			_, _ = io.WriteString(w, `{"queue":"orders","id":"one","state":"committed"}`)
		}
	})
	if m, err := findMessage(t.Context(), c, "", "one"); err != nil || m.Queue != "orders" {
		t.Errorf("found %+v, %v", m, err)
	}
	if _, err := findMessage(t.Context(), c, "gone", "one"); !errors.Is(err, dispatch.ErrNoQueue) {
		t.Errorf("in a queue that was named: %v", err)
	}
}

// stalled is an input that has something, and then nothing for ever; it calls waits when it has come to that.
type stalled struct {
	io.Reader
	waits func()
}

func (s stalled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == nil {
		return n, nil
	}
	s.waits()
	select {}
}

// TestSignalEndsInput: a signal ends a command that waits for its input, and the lines that are whole are stored.
func TestSignalEndsInput(t *testing.T) {
	var posted atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted.Store(string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"messages":[{"id":"one","added":true}]}`)
	}))
	defer srv.Close()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	errStop := errors.New("told to stop")
	for _, args := range []string{"queue add orders --key k", "queue add orders --key k " + fifo, "queue add orders --ndjson -", "role state put r --term 1", "monitor config check -"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := stalled{strings.NewReader(`{"key":"k","id":"one"}` + "\n" + `{"key":"k","id":"tw`), func() { cancel(errStop) }}
		if strings.HasSuffix(args, fifo) {
			cancel(errStop)
		}
		posted.Store("")
		ended := make(chan error, 1)
		go func() {
			a := &app{stdout: io.Discard, stderr: io.Discard}
			root := a.root()
			root.SetIn(in)
			root.SetArgs(append(strings.Fields(args), "--server", srv.URL))
			ended <- root.ExecuteContext(ctx)
		}()
		select {
		case err := <-ended:
			body, _ := posted.Load().(string)
			if ndjson := strings.Contains(args, "ndjson"); !errors.Is(err, errStop) || strings.Contains(body, `"one"`) != ndjson || !ndjson && body != "" {
				t.Errorf("%s: %v, with %s sent", args, err, body)
			} else if ndjson && !strings.HasSuffix(err.Error(), "; before that, 1 stored, 0 were there already") {
				t.Errorf("%s: %v", args, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: it waits for its input", args)
		}
		cancel(nil)
	}
}

// TestDamagedStore: every command ends with exit 4 at a store that opens and cannot be read, and speaks of no server.
func TestDamagedStore(t *testing.T) {
	const name = "a-queue-to-be-found-in-the-file"
	file := filepath.Join(t.TempDir(), "u.db")
	store := "--store=sqlite:" + file
	payload := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(payload, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, log := ran(t, "queue", "add", name, "--create", "--key", "k", payload, store); code != exitOK {
		t.Fatal(log)
	}
	all, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096 // the first is the schema
	for at := page; at < len(all); at += page {
		if one := all[at : at+page]; bytes.Contains(one, []byte(name)) {
			copy(one, bytes.Repeat([]byte{0xff}, page))
		}
	}
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"queue list", "queue wait one --queue " + name, "queue retry one --queue " + name, "history"} {
		if code, log := ran(t, append(strings.Fields(args), store)...); code != exitUnreachable || !strings.Contains(log, "store damaged") || strings.Contains(log, "server") {
			t.Errorf("%s: exit %d: %s", args, code, log)
		}
	}
}

// TestActOnPages: after a message whose outcome is unknown no other is acted on, on no page, and what is known of each is returned,
// also when the next page cannot be read.
func TestActOnPages(t *testing.T) {
	for name, x := range map[string]struct {
		at, code, acted string
		status          int
		want            []string
	}{
		"unknown in the middle":     {"2", "unknown_outcome", "1 2", 504, []string{"2: why", "the rest was not tried"}},
		"unknown at the page's end": {"3", "unknown_outcome", "1 2 3", 504, []string{"3: why", "the rest was not tried"}},
		"the next page is not read": {"page", "store_unavailable", "1 2 3", 503, []string{"1: no longer", "why"}},
		"refused":                   {"2", "wrong_state", "1 2 3 4", 409, []string{"1: no longer", "2: why"}},
	} {
		var acted []string
		c := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
			refuse := func(status int, code, detail string) {
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"code":%q,"detail":%q}`, code, detail)
			}
			id := path.Base(path.Dir(r.URL.Path))
			switch {
			case r.Method == http.MethodGet && r.URL.Query().Get("after") == "":
				_, _ = io.WriteString(w, `{"messages":[{"id":"1"},{"id":"2"},{"id":"3"}],"next":"p2"}`)
			case r.Method == http.MethodGet && x.at == "page":
				refuse(x.status, x.code, "why")
			case r.Method == http.MethodGet:
				_, _ = io.WriteString(w, `{"messages":[{"id":"4"}]}`)
			default:
				acted = append(acted, id)
				if id == x.at {
					refuse(x.status, x.code, "why")
				} else if id == "1" {
					refuse(http.StatusConflict, "wrong_state", "no longer")
				}
			}
		})
		act := actor{app: &app{stdout: io.Discard, stderr: io.Discard}, api: c, action: dispatch.Retry}
		err := act.onState(t.Context(), client.MessageQuery{Queue: "orders", State: "failed"})
		if got := strings.Join(acted, " "); got != x.acted {
			t.Errorf("%s: acted on %s", name, got)
		}
		for _, want := range append(x.want, "1: no longer") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is missing: %v", name, want, err)
			}
		}
	}
}

// TestPagesEndWhereTheAPISays: a page that is not full is not the last one if the API names another.
func TestPagesEndWhereTheAPISays(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	pages := [][]int{{1}, {2, 3}, {4}}
	next := func(context.Context, int) (page []int, more string, err error) {
		page, pages = pages[0], pages[1:]
		if len(pages) > 0 {
			more = "there is one"
		}
		return page, more, nil
	}
	var got []int
	if err := printPages(t.Context(), a, 10, next, func(all []int) error { got = all; return nil }); err != nil || !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("%v, %v", got, err)
	}
}
