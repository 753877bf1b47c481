package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/web/webtest"
)

// demo stands in for a demonstration: whoever kills anna sees ben take over, and has to wait until anna is back.
type demo struct {
	mu     sync.Mutex
	killed time.Time
	done   []string
}

func (d *demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Method == http.MethodPost {
		d.done = append(d.done, r.URL.Path)
		if !d.killed.IsZero() {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintln(w, `{"status":409,"code":"not_now","detail":"ben is no more"}`)
			return
		}
		d.killed = time.Now()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(d.view(time.Now()))
}

func (d *demo) acts() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

type list = []map[string]any

func (d *demo) view(now time.Time) map[string]any {
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	anna := map[string]any{"from_ms": ago(30 * time.Second), "to_ms": now.UnixMilli(), "open": true}
	ben, marks, outcomes := list{}, list{}, list{}
	kill := map[string]any{"id": "role-kill", "title": "Kill anna", "command": "kill -9 4711", "text": "anna holds it: a standby takes over", "promised_ms": 6000}
	if at := d.killed.UnixMilli(); !d.killed.IsZero() {
		anna["to_ms"], anna["open"] = at, false
		ben = list{{"from_ms": at + 30, "to_ms": now.UnixMilli(), "open": true}}
		marks = list{{"id": 1, "at_ms": at, "lane": "anna", "kind": "ended"}}
		outcomes = list{{"id": 2, "at_ms": at + 30, "part": "role", "text": "ben took over from anna <b>", "took_ms": 30, "promised_ms": 6000, "kept": true}}
		kill["off"] = "anna is not back yet"
	}
	// Others are there from the beginning, and one of them did not keep its promise.
	shard := list{{"id": 9, "at_ms": ago(10 * time.Second), "part": "shard", "text": "writes went on at redis-2", "took_ms": 4500, "promised_ms": 4000, "kept": false}}
	return map[string]any{"now_ms": now.UnixMilli(), "parts": list{
		{"part": "role", "lanes": list{{"name": "anna", "spans": list{anna}}, {"name": "ben", "spans": ben}, {"name": "clara", "spans": list{}}}, "marks": marks, "outcomes": outcomes,
			"offers": list{kill, {"id": "role-freeze", "title": "Freeze ben", "command": "curl", "text": "it is frozen"}}},
		{"part": "shard", "lanes": list{{"name": "redis-1", "spans": list{}}, {"name": "redis-2", "spans": list{anna}}}, "outcomes": shard, "offers": list{},
			"marks": list{{"id": 7, "at_ms": ago(14500 * time.Millisecond), "lane": "redis-1", "kind": "ended"}, {"id": 8, "at_ms": ago(5 * time.Second), "lane": "redis-1", "kind": "back"}}},
	}}
}

// testDemo: a newcomer kills from the page, by keyboard alone, and reads what came of it beside the promise.
func testDemo(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	d := &demo{}
	s.stop()
	s.demo = d
	s.start()
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url(""))
	live(p)
	p.Until(`document.querySelectorAll('#demo-parts > li').length === 2 && document.querySelectorAll('#demo-parts .work').length === 2`)
	if got := p.Text("#demo-parts li:last-child .result"); got != "✗ writes went on at redis-2: measured 4.50 s, promised ≤ 4 s" {
		t.Errorf("a promise that was not kept: %q", got)
	}
	check(t, p, "before")

	p.Eval(`{ document.querySelector('#demo-parts button').focus(); }`, nil)
	p.Key("Enter")
	p.Until(`document.querySelector('#demo-parts .result').textContent === '✓ ben took over from anna <b>: measured 30 ms, promised ≤ 6 s'`)
	p.Until(`document.activeElement.textContent === 'Kill anna' && document.activeElement.getAttribute('aria-disabled') === 'true'`) // the focus is where it was
	p.Until(`document.querySelector('#demo-parts svg').getAttribute('aria-label') === 'Role: ben at work; killed or frozen: anna.'`)
	p.Until(`[...document.querySelectorAll('#demo-parts li:first-child text')].map((e) => e.textContent).join() === '30 ms,killed,anna,ben,clara'`)
	var log string
	p.Eval(`document.querySelector('#demo-log').innerText`, &log)
	for _, want := range []string{"anna killed", "Role: ✓ ben took over from anna <b>: measured 30 ms, promised ≤ 6 s", "redis-1 is back"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in %s", want, log)
		}
	}
	p.Key("Enter")
	p.Until(`document.querySelector('#said').textContent.includes('not now: anna is not back yet')`)
	p.Click("#demo-parts button", "Freeze ben")
	p.Until(`document.querySelector('#said').textContent.includes('ben is no more')`)
	for _, trouble := range p.Trouble() {
		if !strings.Contains(trouble, "409") {
			t.Error(trouble)
		}
	}
	if got := strings.Join(d.acts(), " "); got != "/v1/demo/role-kill /v1/demo/role-freeze" {
		t.Errorf("it asked for %s", got)
	}
	narrow := b.Page(t, 390, 900, "light")
	narrow.Open(s.url(""))
	live(narrow)
	narrow.Until(`document.querySelectorAll('#demo-parts .work').length === 3`)
	for width, q := range map[int]*webtest.Page{1440: p, 390: narrow} {
		checkThemes(t, q, "demo", width, width == 390)
	}
	moves(t, p)
}

// moves wants a timeline that moves with time, and stands still where nothing should move.
func moves(t *testing.T, p *webtest.Page) {
	const at = `document.querySelector('#demo-parts svg g').getAttribute('transform')`
	var before, after string
	p.Eval(at, &before)
	p.Eval(`new Promise((done) => setTimeout(() => done(`+at+`), 300))`, &after)
	if before != after {
		t.Logf("one step between %s and %s", before, after) // each few seconds one is allowed
		p.Eval(`new Promise((done) => setTimeout(() => done(`+at+`), 300))`, &before)
	}
	if before != after {
		t.Errorf("it moves though nothing should: %s, %s", before, after)
	}
	p.Motion("light", "no-preference")
	realserver.Eventually(t, time.Minute, "it moves", func() error {
		p.Eval(at, &before)
		p.Eval(`new Promise((done) => setTimeout(() => done(`+at+`), 200))`, &after)
		if before == after {
			return fmt.Errorf("it stands at %s", before)
		}
		return nil
	})
}

// testTakeovers: any server shows what changed hands lately, and nothing of a demonstration.
func testTakeovers(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	id := lease.ID{Space: elect.Space, Key: "billing"}
	first := s.session("web-1")
	s.hold(id, first)
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url(""))
	live(p)
	p.Until(`document.querySelectorAll('#overview-held > li').length > 0 && document.querySelector('#takeovers').hidden`) // it was held for the first time
	s.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, first, s.term(id)), nil)
	if _, err := s.store.Acquire(t.Context(), lease.Expectation{Lease: id, Session: s.session("web-2"), Seen: lease.Seen{Term: s.term(id)}}); err != nil {
		t.Fatal(err)
	}
	p.Until(`document.querySelectorAll('#takeovers-list > li').length === 1`)
	p.Until(`document.querySelector('#takeovers svg').getAttribute('aria-label').startsWith('Role billing: now web-2')`)
	p.Until(`document.querySelectorAll('#takeovers .work').length === 2 && [...document.querySelectorAll('#takeovers text.who')].map((e) => e.textContent).join() === 'web-1,web-2'`)
	p.Until(`document.querySelector('#demo').hidden && document.querySelectorAll('#demo-parts > li').length === 0`)
	check(t, p, "takeovers")
	p.Shot("takeovers-1440")
}

func (s *stage) term(id lease.ID) int64 {
	s.t.Helper()
	held, err := s.store.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return held.Term
}
