package webtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Page is a tab of a browser.
type Page struct {
	b       *Browser
	t       testing.TB
	target  string
	session string
	width   int
	height  int

	mu      sync.Mutex
	trouble []string
}

// Page opens an empty tab that looks so wide and high, in the theme light or dark. It
// closes with the test.
func (b *Browser) Page(t testing.TB, width, height int, theme string) *Page {
	t.Helper()
	p := &Page{b: b, t: t, width: width, height: height}
	var made struct{ TargetID, SessionID string }
	p.must("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	p.target = made.TargetID
	p.must("", "Target.attachToTarget", map[string]any{"targetId": p.target, "flatten": true}, &made)
	p.session = made.SessionID
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	t.Cleanup(func() {
		_, _ = b.ask("", "Target.closeTarget", map[string]any{"targetId": p.target})
		b.mu.Lock()
		delete(b.pages, p.session)
		b.mu.Unlock()
	})
	for _, part := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(part+".enable", nil)
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "screenWidth": width, "screenHeight": height, "deviceScaleFactor": 1, "mobile": width < 600})
	p.do("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true})
	p.Theme(theme)
	return p
}

// Theme makes the page light or dark; nothing moves by itself.
func (p *Page) Theme(theme string) {
	p.t.Helper()
	p.Motion(theme, "reduce")
}

// Motion is a theme with what people want of motion: reduce, or no-preference.
func (p *Page) Motion(theme, motion string) {
	p.t.Helper()
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": motion},
	}})
}

func (p *Page) must(session, method string, params, into any) {
	p.t.Helper()
	result, err := p.b.ask(session, method, params)
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	if into != nil {
		if err := json.Unmarshal(result, into); err != nil {
			p.t.Fatalf("%s: %v in %s", method, err, result)
		}
	}
}

func (p *Page) do(method string, params any) {
	p.t.Helper()
	p.must(p.session, method, params, nil)
}

// Open goes to an address.
func (p *Page) Open(url string) {
	p.t.Helper()
	var out struct{ ErrorText string }
	p.must(p.session, "Page.navigate", map[string]any{"url": url}, &out)
	if out.ErrorText != "" {
		p.t.Fatalf("opening %s: %s", url, out.ErrorText)
	}
}

// Eval runs JavaScript, waits for a promise, and puts what comes of it into a variable; nil drops it.
func (p *Page) Eval(js string, into any) {
	p.t.Helper()
	if err := p.eval(js, into); err != nil {
		p.t.Fatalf("%v; the page: %s", err, p.Text("main"))
	}
}

func (p *Page) eval(js string, into any) error {
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	result, err := p.b.ask(p.session, "Runtime.evaluate", map[string]any{
		"expression": js, "awaitPromise": true, "returnByValue": true, "userGesture": true,
	})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, &out); err != nil {
		return err
	}
	if e := out.ExceptionDetails; e != nil {
		return fmt.Errorf("%s: %s %s", js, e.Text, e.Exception.Description)
	}
	if into == nil || out.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, into)
}

// Until waits in the page until an expression is true. A page that is left meanwhile is followed.
func (p *Page) Until(js string) {
	p.t.Helper()
	wait := fmt.Sprintf(`new Promise((ok, no) => {
		const end = Date.now() + 120000;
		const look = () => {
			let is = false;
			try { is = Boolean(%s); } catch { /* not there yet */ }
			if (is) ok(true);
			else if (Date.now() > end) no(new Error('it never came true'));
			else setTimeout(look, 20);
		};
		look();
	})`, js)
	err := p.eval(wait, nil)
	for left := 3; left > 0 && err != nil && strings.Contains(err.Error(), "navigated"); left-- {
		err = p.eval(wait, nil)
	}
	if err != nil {
		p.t.Fatalf("%v; the page: %s", err, p.Text("main"))
	}
}

// Click waits until what a selector finds can be seen and used, and clicks on it. With a text,
// it is the first that has it.
func (p *Page) Click(selector, text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%s)].find((e) => e.checkVisibility() && !e.disabled && e.textContent.includes(%s))`, quote(selector), quote(text))
	p.Until(find)
	p.Eval(`{ const e = `+find+`; e.focus(); e.click(); }`, nil)
}

// Fill waits until what a selector finds is there, and types into it.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf(`document.querySelector(%s).checkVisibility()`, quote(selector)))
	p.Eval(fmt.Sprintf(`{ const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event('input', { bubbles: true })); e.dispatchEvent(new Event('change', { bubbles: true })); }`, quote(selector), quote(text)), nil)
}

// Key presses a key, such as Tab or Enter.
func (p *Page) Key(key string) {
	p.t.Helper()
	params := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}[key]}
	if key == "Enter" {
		params["text"] = "\r"
	}
	p.do("Input.dispatchKeyEvent", params)
	params["type"] = "keyUp"
	p.do("Input.dispatchKeyEvent", params)
}

// Text is what can be read in what a selector finds.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	if err := p.eval(fmt.Sprintf(`(document.querySelector(%s) || document.documentElement).innerText`, quote(selector)), &text); err != nil {
		return err.Error()
	}
	return text
}

// Trouble returns what the page has complained of since the last time.
func (p *Page) Trouble() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.trouble
	p.trouble = nil
	return out
}

// happened takes in what the page says by itself.
func (p *Page) happened(m message) {
	var e struct {
		Type             string
		Args             []struct{ Value any }
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct{ Exception struct{ Description string } }
	}
	_ = json.Unmarshal(m.Params, &e)
	text := ""
	switch {
	case m.Method == "Runtime.exceptionThrown":
		text = "exception: " + e.ExceptionDetails.Exception.Description
	case m.Method == "Log.entryAdded" && e.Entry.Level == "error":
		text = strings.TrimSpace(e.Entry.Text + " " + e.Entry.URL)
	case m.Method == "Runtime.consoleAPICalled" && (e.Type == "error" || e.Type == "warning"):
		text = fmt.Sprint("console: ", e.Args)
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = append(p.trouble, text)
}

// Shot saves a picture of the whole page as NAME.png in the folder UNDERSTUDY_SHOTS, if
// that is set.
func (p *Page) Shot(name string) {
	p.t.Helper()
	folder := os.Getenv("UNDERSTUDY_SHOTS")
	if folder == "" {
		return
	}
	var high int
	p.Eval(`Math.min(document.documentElement.scrollHeight, 5000)`, &high)
	var out struct{ Data string }
	p.must(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": p.width, "height": max(high, p.height), "scale": 1}}, &out)
	picture, err := base64.StdEncoding.DecodeString(out.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}
