package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

//go:embed index.html *.js *.css *.svg
var files embed.FS

// policy lets the page use its own files and its own server, and nothing else. A blob
// is a picture that it has fetched with its token.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

type asset struct {
	body       []byte
	kind, etag string
}

// Paths are those that [Handler] answers: "/" and one for each file that the
// page needs.
func Paths() []string {
	out := []string{"/"}
	for name := range assets() {
		if name != "/" {
			out = append(out, name)
		}
	}
	return out
}

// Handler serves the page.
func Handler() http.Handler {
	byPath := assets()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := byPath[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // asked for again, answered by the tag
		h.Set("ETag", a.etag)
		r.Header.Del("Range") // files this small are sent whole, and a wrong range would be refused in plain text
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
	})
}

func assets() map[string]asset {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}
	out := map[string]asset{}
	entries, _ := files.ReadDir(".")
	for _, e := range entries {
		body, _ := files.ReadFile(e.Name())
		sum := sha256.Sum256(body)
		at := "/" + e.Name()
		if e.Name() == "index.html" {
			at = "/"
		}
		out[at] = asset{body: body, kind: kinds[path.Ext(e.Name())], etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return out
}
