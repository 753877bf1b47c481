package web_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/web/webtest"
)

// TestInBrowser tries the dashboard as a person has it: in a browser, on a server of everything.
func TestInBrowser(t *testing.T) {
	b := webtest.Start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *webtest.Browser)
	}{
		{"flaws are found", testFlawsAreFound},
		{"pages", testPages},
		{"empty pages", testEmptyPages},
		{"navigation", testNavigation},
		{"keyboard", testKeyboard},
		{"windows", testWindows},
		{"many", testMany},
		{"actions", testActions},
		{"source", testSource},
		{"dots", testDots},
		{"charts", testCharts},
		{"rates", testRates},
		{"demonstration", testDemo},
		{"takeovers", testTakeovers},
		{"sign in", testSignIn},
		{"many tabs", testManyTabs},
		{"server dies", testServerDies},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, b) })
	}
}

// testManyTabs: a browser opens six connections to a server for all its tabs. Those that nobody sees leave them
// to others, and continue when someone looks again.
func testManyTabs(t *testing.T, b *webtest.Browser) {
	const hide = `Object.defineProperty(document, 'hidden', {value: %t, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))`
	s := newStage(t)
	var tabs []*webtest.Page
	for range 8 {
		p := b.Page(t, 1440, 900, "light")
		p.Open(s.url("#/instances"))
		live(p)
		p.Eval(fmt.Sprintf(hide, true), nil)
		tabs = append(tabs, p)
	}
	p := tabs[0]
	p.Eval(`{ const real = fetch; window.asked = 0; window.fetch = (...args) => { asked++; return real(...args); }; }`, nil)
	p.Eval(fmt.Sprintf(hide, false), nil)
	p.Until(`asked > 0 && document.body.dataset.connection === 'live'`)
	check(t, p, "a tab that is seen again")
}

// proving: axe-core looks at every page, in each theme and width, at windows and at empty pages. Otherwise it looks once at each page.
var proving = os.Getenv("UNDERSTUDY_PROVE") == "1"

// names of the pages in the order of the navigation.
var names = []string{"overview", "roles", "jobs", "shards", "monitor", "queues", "cache", "instances", "history"}

// live waits until the page shows what the server says.
func live(p *webtest.Page) {
	p.Until(`document.body.dataset.connection === 'live' && document.querySelectorAll('#sections a').length > 0 && !document.querySelector('#stage').hidden`)
}

// filled says of each page when it shows what there is.
var filled = map[string]string{
	"overview":  `document.querySelectorAll('#overview-held > li').length === 6 && document.querySelectorAll('#overview-needs > li').length >= 5`,
	"roles":     `document.querySelectorAll('#roles-list > li').length === 3`,
	"jobs":      `document.querySelectorAll('#jobs-list > li').length === 3 && document.querySelectorAll('#jobs-list .spark rect').length > 40`,
	"shards":    `document.querySelectorAll('#shards-list > li').length === 2`,
	"monitor":   `document.querySelectorAll('#monitor-alarms > li').length === 2 && document.querySelectorAll('#sources-list > li').length === 4`,
	"queues":    `document.querySelectorAll('#queues-list .blocked > li').length === 3`,
	"cache":     `document.querySelectorAll('#cache-keys > li').length === 2 && document.querySelectorAll('#cache-peers > li').length === 2`,
	"instances": `document.querySelectorAll('#instances-list > li').length > 2 && document.querySelectorAll('#store > div').length > 3`,
	"history":   `document.querySelectorAll('#history-list > li').length > 3`,
}

// flaws looks for what no page may have, and says what it found.
const flaws = `(() => {
	const out = [];
	const seen = (e) => e.checkVisibility();
	const wide = screen.width; // a small screen is zoomed out for what does not fit: innerWidth would follow it
	if (document.documentElement.scrollWidth > wide) out.push('it scrolls sideways: ' + document.documentElement.scrollWidth + ' in ' + wide);
	for (const e of document.querySelectorAll('main *')) {
		const r = e.getBoundingClientRect();
		if (seen(e) && r.width > 0 && r.right > wide + 1 && !e.closest('.points, pre, .timeline')) { out.push('beyond the edge: ' + e.outerHTML.slice(0, 120)); break; }
	}
	for (const e of document.querySelectorAll('button, a, input, select')) {
		if (!seen(e)) continue;
		const labelled = e.labels && e.labels.length > 0;
		if (!(e.textContent.trim() || e.getAttribute('aria-label') || labelled)) out.push('without a name: ' + e.outerHTML.slice(0, 120));
	}
	const heads = [...document.querySelectorAll('main h2')].filter(seen);
	if (heads.length !== 1) out.push(heads.length + ' headings of a page');
	if (document.querySelectorAll('#sections [aria-current=page]').length !== 1) out.push('the navigation does not say where this is');
	if (document.querySelectorAll('main, header.top, nav').length !== 3) out.push('a landmark is missing');
	return out;
})()`

func check(t *testing.T, p *webtest.Page, where string) {
	t.Helper()
	var found []string
	p.Eval(flaws, &found)
	if proving {
		found = append(found, p.Barriers()...)
	}
	if found = append(found, p.Trouble()...); len(found) > 0 {
		t.Errorf("%s:\n%s", where, strings.Join(found, "\n"))
	}
}

// checkThemes looks at what is shown in each theme, and with axe-core at least at the dark one if axe is set.
func checkThemes(t *testing.T, p *webtest.Page, name string, width int, axe bool) {
	t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.Theme(theme)
		where := fmt.Sprintf("%s at %d in %s", name, width, theme)
		check(t, p, where)
		if axe && theme == "dark" && !proving {
			for _, b := range p.Barriers() {
				t.Errorf("%s: %s", where, b)
			}
		}
		p.Shot(fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(name, " ", "-"), width, theme))
	}
}

// testSignIn: whoever shows a token that does not open the page is told why, and can show another.
func testSignIn(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.stop()
	s.token = "correct-horse-battery"
	s.start()
	secrets := map[access.Scope]string{}
	for _, scope := range access.AllScopes() {
		one, secret, err := access.NewToken(string(scope), access.Scopes{scope}, "alice")
		if err == nil {
			_, err = s.store.Tokens().Add(t.Context(), one, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		secrets[scope] = secret
	}
	p := b.Page(t, 1440, 900, "light")
	show := func(token, says string) {
		t.Helper()
		p.Until(`document.querySelector('#login').checkVisibility() && !document.querySelector('#stage').checkVisibility()`)
		p.Fill("#token", token)
		p.Click("#login button", "")
		if says == "" {
			live(p)
			return
		}
		p.Until(fmt.Sprintf(`document.querySelector('#login-error').textContent.includes(%q)`, says))
	}
	p.Open(s.url("#/roles"))
	show("wrong-horse-battery", "not the right one")
	show(secrets[access.Ingest], "scope read")
	show(secrets[access.Read], "")
	p.Click("#sign-out", "")
	show(s.token, "")
}

func testFlawsAreFound(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	p := b.Page(t, 390, 800, "light")
	p.Open(s.url("#/roles"))
	live(p)
	p.Until(`document.body.dataset.page === 'roles'`)
	check(t, p, "before anything is broken")
	for flaw, js := range map[string]string{
		"scrolls sideways": `const e = document.createElement('div'); e.style.width = '900px'; e.style.height = '9px'; document.body.append(e); return e;`,
		"beyond the edge":  `const e = document.createElement('p'); e.style.width = '900px'; e.textContent = 'x'; document.querySelector('main').append(e); return e;`,
		"without a name":   `const e = document.createElement('button'); document.querySelector('main').append(e); return e;`,
		"2 headings":       `const e = document.createElement('h2'); e.textContent = 'x'; document.querySelector('main').append(e); return e;`,
	} {
		var found []string
		p.Eval(`{ window.broken = (() => { `+js+` })(); }`, nil)
		p.Eval(flaws, &found)
		p.Eval(`window.broken.remove()`, nil)
		if !strings.Contains(strings.Join(found, "\n"), flaw) {
			t.Errorf("%q is not found: %q", flaw, found)
		}
	}
	for trouble, js := range map[string]string{
		"console: ":        `console.error('it is broken')`,
		"exception: ":      `setTimeout(() => { throw new Error('it is broken'); })`,
		"Failed to load":   `fetch('/nothing').then(() => {})`,
		"Content Security": `{ const e = document.createElement('div'); e.setAttribute('style', 'color: red'); document.body.append(e); e.remove(); }`,
	} {
		p.Eval(js, nil)
		said := ""
		realserver.Eventually(t, 2*time.Minute, "it is heard", func() error {
			if said += strings.Join(p.Trouble(), "\n") + "\n"; !strings.Contains(said, trouble) {
				return fmt.Errorf("no %q in %q", trouble, said)
			}
			return nil
		})
	}
}

func testPages(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.fill()
	for _, width := range []int{1440, 390} {
		p := b.Page(t, width, 900, "light")
		p.Open(s.url(""))
		live(p)
		for _, name := range names {
			p.Eval(fmt.Sprintf(`{ location.hash = '#/%s'; }`, name), nil)
			p.Until(fmt.Sprintf(`document.body.dataset.page === '%s'`, name))
			p.Until(filled[name])
			checkThemes(t, p, name, width, width == 390)
		}
	}
}

// testEmptyPages: a server of which nobody has made use yet.
func testEmptyPages(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	p := b.Page(t, 390, 800, "light")
	p.Open(s.url(""))
	live(p)
	p.Until(`document.querySelectorAll('#overview-held > li').length > 0`)
	var offered []string
	p.Eval(`[...document.querySelectorAll('#sections a')].map((a) => a.dataset.page)`, &offered)
	for _, name := range offered {
		p.Click("#sections a", strings.ToUpper(name[:1])+name[1:])
		p.Until(fmt.Sprintf(`document.body.dataset.page === '%s'`, name))
		check(t, p, name+" of nothing")
		p.Shot("empty-" + name)
	}
}

func testNavigation(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.fill()
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url("#/roles/billing"))
	live(p)
	p.Until(`document.activeElement.classList.contains('sought') && document.activeElement.textContent.includes('billing')`)
	p.Until(`document.title.startsWith('(1 vacant, 3 blocked,') && document.title.includes('Roles · Understudy')`)

	p.Click("#sections a", "Queues")
	p.Until(`document.activeElement.id === 'queues-title' && document.title.includes('Queues')`)
	p.Eval(`history.back()`, nil)
	p.Until(`document.body.dataset.page === 'roles' && document.activeElement.closest('#roles')`)

	for old, page := range map[string]string{"#shards": "shards", "#cache-log": "cache", "#nothing": "overview", "#/history/role/billing": "history"} {
		p.Eval(fmt.Sprintf(`{ location.hash = %q; }`, old), nil)
		p.Until(fmt.Sprintf(`document.body.dataset.page === %q`, page))
	}

	// Everything leads to its history, and what needs an operator to its place.
	p.Eval(`{ location.hash = '#/roles'; }`, nil)
	p.Click(`[aria-label="History of billing"]`, "")
	p.Until(`document.querySelectorAll('#history-list > li').length > 0 && [...document.querySelectorAll('#history-list .name')].every((n) => n.textContent === 'billing')`)
	p.Click("#history-all", "")
	p.Until(`[...document.querySelectorAll('#history-list .name')].some((n) => n.textContent !== 'billing')`)
	p.Eval(`{ location.hash = '#/overview'; }`, nil)
	p.Click("#overview-needs a", "account-7")
	p.Until(`document.querySelector('#browse').open && document.querySelector('#browse-body').textContent.includes('account-7-0')`)
	p.Click("#browse-close", "")
	p.Eval(`{ location.hash = '#/overview'; }`, nil)
	p.Click("#overview-needs a", "web-2")
	p.Until(`document.body.dataset.page === 'monitor' && document.querySelector('#browse').open && document.querySelector('#browse-body').textContent.includes('failed')`)

	p.Open(s.url("?#/overview"))
	live(p)
	p.Key("Tab")
	p.Until(`document.activeElement.classList.contains('skip')`)
	p.Key("Enter")
	p.Until(`document.activeElement.id === 'main'`)
	check(t, p, "navigation")
}

// runFor stands in for a server that has run for so many points of ten seconds; a window of it decides how many.
const runFor = `{
	window.slots = 360;
	const points = (f) => [...Array(360).keys()].map(f).slice(-window.slots);
	const series = () => [
		{ name: 'takeover', unit: 'ms', points: points((i) => (i % 97 === 5 ? 20 + i : null)) },
		{ name: 'lag', unit: 'transactions', points: points((i) => (i > 200 && i < 240 ? null : Math.round(4000 + 3900 * Math.sin(i / 20)))) },
		{ name: 'beats', unit: 'beats/s', points: points((i) => 480 + (i * 7919) % 40) },
		{ name: 'depth', unit: 'batches', points: points(() => null) },
	];
	const real = window.fetch;
	window.fetch = (path, options) => (String(path).startsWith('/v1/series')
		? Promise.resolve(new Response(JSON.stringify({ every_ms: 10000, series: series() }))) : real(path, options));
}`

func testCharts(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	p := b.Page(t, 1440, 900, "dark")
	p.Open(s.url("#/history"))
	live(p)
	p.Eval(runFor, nil)
	p.Click("#sections a", "Overview")
	p.Until(`document.querySelectorAll('#charts-overview > figure').length === 4`)
	var described []string
	p.Eval("[...document.querySelectorAll('#charts-overview svg')].map((s) => s.getAttribute('aria-labelledby').split(' ').map((id) => document.getElementById(id).textContent).join('. '))", &described)
	if len(described) != 4 || described[0] != "Takeovers. In the last hour: at most 316 ms, at least 25 ms, the latest 316 ms." || described[3] != "Queue depth. No queue was counted in the last hour." {
		t.Errorf("described as %q", described)
	}
	p.Click("#charts-overview summary", "As a table")
	p.Until(`document.querySelectorAll('#charts-overview .points tbody tr').length === 4`)
	check(t, p, "charts")
	p.Shot("charts-1440")

	// While there is less than five minutes, the pictures show five; then they grow with what there is.
	for slots, want := range map[int]string{3: "In the last 5 minutes: at most 483 /s", 36: "In the last 6 minutes: at most 516 /s"} {
		p.Eval(fmt.Sprintf(`{ window.slots = %d; location.hash = '#/roles'; }`, slots), nil)
		p.Until(`document.body.dataset.page === 'roles'`)
		p.Eval(`{ location.hash = '#/overview'; }`, nil)
		p.Until(fmt.Sprintf(`[...document.querySelectorAll('#charts-overview desc')].some((d) => d.textContent.startsWith(%q))`, want))
		p.Shot(fmt.Sprintf("charts-%d", slots))
	}
}

// hang lets the next look at the overview wait for an answer until its deadline, which comes soon.
const hang = `{
	const real = window.fetch;
	let deadline = null;
	AbortSignal.timeout = () => (deadline = new AbortController()).signal;
	window.fetch = (path, options) => {
		if (path !== '/v1/overview') return real(path, options);
		window.fetch = real;
		return new Promise((_, no) => {
			options.signal?.addEventListener('abort', () => no(options.signal.reason));
			deadline?.abort();
		});
	};
}`

// lateLoss lets the page notice a loss of the connection a year after the last state came.
const lateLoss = `{
	const Real = Date;
	window.Date = class extends Real {
		constructor(...args) {
			if (args.length) super(...args);
			else super(Real.now() + (document.body.dataset.connection === 'lost' ? 365 * 86400e3 : 0));
		}
	};
}`

// testServerDies: the page says that what it shows is old, and comes back by itself.
func testServerDies(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.fill()
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url("#/overview"))
	live(p)
	p.Until(filled["overview"])

	p.Eval(lateLoss, nil)
	s.stop()
	p.Until(`document.body.dataset.connection === 'lost' && document.body.classList.contains('stale') && !document.querySelector('#banner').hidden`)
	// A time of another day has its date.
	if text := p.Text("#banner"); !regexp.MustCompile(`The connection to the server was lost; trying again. What is shown is from .*\pL{3}.* \d\d:\d\d:\d\d\.`).MatchString(text) {
		t.Errorf("the banner says %q", text)
	}
	p.Until(`Number(getComputedStyle(document.querySelector('main')).opacity) < 1`)
	p.Until(filled["overview"]) // what was shown is still there
	p.Shot("lost")

	s.start()
	p.Until(`document.body.dataset.connection === 'live' && !document.body.classList.contains('stale') && document.querySelector('#banner').hidden`)
	p.Trouble() // requests that failed meanwhile
	// Every request has a deadline: one on a connection that only drops packets would keep the overview old.
	p.Eval(hang, nil)
	p.Until(`document.body.classList.contains('overview-old')`)
	s.hold(lease.ID{Space: elect.Space, Key: "afterwards"}, s.session("late"))
	p.Until(`document.querySelector('#overview-changes').textContent.includes('afterwards')`)
	check(t, p, "after the server came back")
}
