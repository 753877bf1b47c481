package web_test

import (
	"fmt"
	"testing"

	"github.com/understudy-ha/understudy/web/webtest"
)

// windows are what opens over the pages: where, what is clicked there one after the other, and what shows that it is there.
var windows = []struct{ name, page, first, then, there string }{
	{"a queue", "queues", `[aria-label="Show the keys of orders"]`, "", `document.querySelectorAll('#browse-body tbody tr').length === 4`},
	{"a key", "queues", `#queues-list .blocked .link`, "", `document.querySelectorAll('#browse-body tbody tr').length === 3`},
	{"a message", "queues", `#queues-list .blocked .link.sub`, "", `document.querySelectorAll('#browse-body .event').length > 0`},
	{"a job", "jobs", `#jobs-list .link`, "", `document.querySelectorAll('#browse-body .month > li').length === 31`},
	{"a run", "jobs", `#jobs-list .link`, `#browse-body tr.bad .link`, `document.querySelector('#browse-body pre').textContent.includes('disk is full')`},
	{"a source", "monitor", `#sources-list .link`, "", `document.querySelectorAll('#browse-body pre').length === 2`},
	{"the alarms", "monitor", `#monitor-history`, "", `document.querySelectorAll('#browse-body tbody tr').length >= 2`},
	{"an alarm", "monitor", `#monitor-history`, `#browse-body tbody .link`, `document.querySelector('#browse-body').textContent.includes('still open')`},
	{"resign", "roles", `[aria-label="Ask the primary of billing to resign"]`, "", asks},
	{"retry", "queues", `[aria-label="Retry the message that blocks account-7"]`, "", asks},
	{"remove a queue", "queues", `[aria-label="Remove orders"]`, "", asks},
	{"pause a check", "monitor", `[aria-label="Pause web"]`, "", asks},
	{"switch over", "shards", `[aria-label="Switch over orders"]`, "", asks},
	{"fail over", "shards", `[aria-label="Fail over payments"]`, "", asks},
	{"remove a key", "cache", `[aria-label="Remove report"]`, "", asks},
}

const asks = `document.querySelector('#act').open`

// testWindows looks at everything that opens, in each width and theme.
func testWindows(t *testing.T, b *webtest.Browser) {
	if !proving {
		t.Skip("only with UNDERSTUDY_PROVE=1")
	}
	s := newStage(t)
	s.fill()
	for _, width := range []int{1440, 390} {
		p := b.Page(t, width, 900, "light")
		p.Open(s.url(""))
		live(p)
		for _, w := range windows {
			p.Eval(fmt.Sprintf(`{ location.hash = '#/%s'; }`, w.page), nil)
			p.Click(w.first, "")
			if w.then != "" {
				p.Click(w.then, "")
			}
			p.Until(w.there)
			checkThemes(t, p, "window "+w.name, width, false)
			p.Eval(`{ for (const d of document.querySelectorAll('dialog[open]')) d.close(); }`, nil)
		}
	}
}

// reachable counts the things on the page that a keyboard has to reach, and focused is the one that it has reached: its place among
// them, or -1.
const (
	reachable = `{ window.reachable = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
		.filter((e) => !e.disabled && e.checkVisibility() && !e.closest('dialog:not([open])'));
		window.reachable[0].focus(); window.reachable.length; }`
	focused = `(() => {
		const e = document.activeElement;
		const style = getComputedStyle(e);
		const r = e.getBoundingClientRect();
		return { at: window.reachable.indexOf(e),
			seen: e.matches(':focus-visible') && style.outlineStyle !== 'none' && r.bottom > 0 && r.top < innerHeight,
			what: e.outerHTML.slice(0, 120) };
	})()`
)

// walk presses Tab from the first thing on the page to the last, and says where that goes elsewhere.
func walk(p *webtest.Page) string {
	var all int
	p.Eval(reachable, &all)
	for want := 1; want < all; want++ {
		p.Key("Tab")
		var at struct {
			At   int
			Seen bool
			What string
		}
		p.Eval(focused, &at)
		if at.At != want || !at.Seen {
			return fmt.Sprintf("after %d of %d things, Tab reaches %d, seen %v: %s", want, all, at.At, at.Seen, at.What)
		}
	}
	return ""
}

// testKeyboard: Tab reaches everything on each page, in the order in which it is read, and what has the focus shows it. Enter opens
// a window, the focus stays within until Escape, and is then where it was.
func testKeyboard(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.fill()
	p := b.Page(t, 390, 800, "light")
	p.Open(s.url(""))
	live(p)
	for _, name := range names {
		p.Eval(fmt.Sprintf(`{ location.hash = '#/%s'; }`, name), nil)
		p.Until(fmt.Sprintf(`document.body.dataset.page === '%s'`, name))
		p.Until(filled[name])
		lost := walk(p)
		for left := 4; left > 0 && lost != ""; left-- { // a page that has just changed by itself has moved things
			lost = walk(p)
		}
		if lost != "" {
			t.Errorf("%s: %s", name, lost)
		}
	}
	p.Eval(`{ location.hash = '#/roles'; }`, nil)
	const resign = `[aria-label="Ask the primary of billing to resign"]`
	p.Until(fmt.Sprintf(`document.querySelector('%s')`, resign))
	p.Eval(fmt.Sprintf(`{ document.querySelector('%s').focus(); }`, resign), nil)
	p.Key("Enter")
	for range 8 {
		p.Until(`document.querySelector('#act').open && (document.querySelector('#act').contains(document.activeElement) || document.activeElement === document.body)`)
		p.Key("Tab")
	}
	p.Key("Escape")
	p.Until(fmt.Sprintf(`!document.querySelector('#act').open && document.activeElement.matches('%s')`, resign))
}
