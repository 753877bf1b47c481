package webtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// answerWithin bounds each question to the browser; pages wait less long.
const answerWithin = 3 * time.Minute

// Browser is a process of Chromium.
type Browser struct {
	t   testing.TB
	out io.WriteCloser

	loadAxe sync.Once
	axe     string

	mu      sync.Mutex
	last    int
	waits   map[int]chan reply
	pages   map[string]*Page // by session
	failure error            // why it answers no more
}

// message is what goes over the pipes: a question, an answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type reply struct {
	result json.RawMessage
	err    error
}

// Start starts a browser that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	program := find(t)
	in, theirOut, err := os.Pipe() // the browser's 4
	if err != nil {
		t.Fatal(err)
	}
	theirIn, out, err := os.Pipe() // the browser's 3
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio",
		"--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
		"--no-first-run", "--lang=en-GB", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Browser{t: t, out: out, waits: map[int]chan reply{}, pages: map[string]*Page{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(in) }()
	t.Cleanup(func() {
		_, _ = b.ask("", "Browser.close", nil)
		out.Close()
		ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		ended.Stop()
		in.Close()
		<-read
	})
	return b
}

func find(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Chromium, which -short leaves out")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const text = "no Chromium in the PATH: apt-get install chromium"
	if os.Getenv("UNDERSTUDY_REQUIRE_BACKENDS") == "1" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// read takes in what the browser says, until it ends.
func (b *Browser) read(in io.Reader) {
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.fail(err)
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.fail(err)
			return
		}
		b.take(m)
	}
}

func (b *Browser) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = fmt.Errorf("webtest: the browser is gone: %w", err)
	for id, w := range b.waits {
		delete(b.waits, id)
		w <- reply{err: b.failure}
	}
}

func (b *Browser) take(m message) {
	b.mu.Lock()
	w, waits := b.waits[m.ID]
	delete(b.waits, m.ID)
	page := b.pages[m.Session]
	b.mu.Unlock()
	switch {
	case waits && m.Error != nil:
		w <- reply{err: fmt.Errorf("webtest: %s", m.Error.Message)}
	case waits:
		w <- reply{result: m.Result}
	case page != nil:
		page.happened(m)
	}
}

// ask sends a question and returns the answer.
func (b *Browser) ask(session, method string, params any) (json.RawMessage, error) {
	m := message{Session: session, Method: method}
	if params != nil {
		m.Params, _ = json.Marshal(params)
	}
	w := make(chan reply, 1)
	b.mu.Lock()
	if b.failure != nil {
		b.mu.Unlock()
		return nil, b.failure
	}
	b.last++
	m.ID = b.last
	b.waits[m.ID] = w
	text, _ := json.Marshal(m)
	_, err := b.out.Write(append(text, 0))
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	select {
	case r := <-w:
		return r.result, r.err
	case <-timer.C:
		return nil, fmt.Errorf("webtest: no answer to %s within %v", method, answerWithin)
	}
}
