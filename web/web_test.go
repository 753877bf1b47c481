package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/web"
)

func get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, r)
	return w
}

// pages returns the text of every file by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range web.Paths() {
		w := get(t, path)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Fatalf("%s: %d", path, w.Code)
		}
		out[path] = w.Body.String()
	}
	if len(out) < 4 {
		t.Fatalf("only %v", web.Paths())
	}
	return out
}

// forbidden is what the policy would refuse, or what could turn text from the
// store into HTML.
var forbidden = map[string]*regexp.Regexp{
	"an inline script":          regexp.MustCompile(`(?is)<script\b[^>]*>\s*[^<\s]`),
	"an inline style":           regexp.MustCompile(`(?i)<style\b|\sstyle\s*=`),
	"an inline handler":         regexp.MustCompile(`(?i)<[^>]*\son[a-z]+\s*=`),
	"an address of elsewhere":   regexp.MustCompile(`(?i)(src|href|url|import|from|fetch)\s*[=(]?\s*["'(]?(https?:)?//`),
	"a javascript address":      regexp.MustCompile(`(?i)javascript:`),
	"HTML made from text":       regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc`),
	"code made from text":       regexp.MustCompile(`\beval\(|new Function|setTimeout\(["']`),
	"something kept for longer": regexp.MustCompile(`localStorage|document\.cookie`),
}

func TestNothingForbidden(t *testing.T) {
	for path, text := range pages(t) {
		for what, pattern := range forbidden {
			if found := pattern.FindString(text); found != "" && !strings.HasSuffix(path, ".svg") {
				t.Errorf("%s has %s: %s", path, what, found)
			}
		}
	}
}

func TestForbiddenIsFound(t *testing.T) {
	for what, text := range map[string]string{
		"an inline script":          "<script>alert(1)</script>",
		"an inline style":           `<p style="x">`,
		"an inline handler":         `<img src=x onerror=alert(1)>`,
		"an address of elsewhere":   `<script src="//cdn.example/x.js">`,
		"HTML made from text":       "row.innerHTML = name",
		"something kept for longer": "localStorage.token = 1",
	} {
		if !forbidden[what].MatchString(text) {
			t.Errorf("%s is not found in %s", what, text)
		}
	}
}

// TestEveryReferenceExists: files that are named are there, and files that are
// there are named.
func TestEveryReferenceExists(t *testing.T) {
	all := pages(t)
	named := map[string]bool{"/": true}
	for path, text := range all {
		for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"|from '\.(/[^']*)'`).FindAllStringSubmatch(text, -1) {
			target := m[1] + m[2]
			if named[target] = true; all[target] == "" {
				t.Errorf("%s names %s, which is not there", path, target)
			}
		}
	}
	for path := range all {
		if !named[path] {
			t.Errorf("%s is there and nobody names it", path)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bid="([^"]+)"`).FindAllStringSubmatch(all["/"], -1) {
		if ids[m[1]] {
			t.Errorf("the id %s is there twice", m[1])
		}
		ids[m[1]] = true
	}
	for path, text := range all {
		for _, m := range regexp.MustCompile(`byId\('([^']+)'\)`).FindAllStringSubmatch(text, -1) {
			if !ids[m[1]] {
				t.Errorf("%s asks for the element %s, which is not there", path, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?:aria-labelledby|for)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			if !ids[m[1]] {
				t.Errorf("%s: label %s is not there", path, m[1])
			}
		}
	}
}

func TestHandler(t *testing.T) {
	w := get(t, "/")
	h := w.Header()
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(h.Get("Content-Security-Policy"), want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
		t.Error("the policy allows something unsafe")
	}
	if !strings.HasPrefix(h.Get("Content-Type"), "text/html") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", h)
	}
	if got := get(t, "/", "If-None-Match", h.Get("ETag")).Code; got != http.StatusNotModified {
		t.Errorf("asked with the tag: %d", got)
	}
	if got := get(t, "/app.js").Header().Get("Content-Type"); !strings.HasPrefix(got, "text/javascript") {
		t.Errorf("app.js is %s", got)
	}
	for _, path := range []string{"/doc.go", "/web.go", "/../web.go", "/index.html", "/nothing"} {
		if got := get(t, path).Code; got != http.StatusNotFound {
			t.Errorf("%s: %d", path, got)
		}
	}
	if paths := web.Paths(); !slices.Contains(paths, "/") || slices.Contains(paths, "/doc.go") {
		t.Errorf("paths %v", paths)
	}
}
