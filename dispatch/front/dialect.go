package front

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// dialect is what differs between the APIs.
type dialect interface {
	// listType refuses a list of batches by its Content-Type.
	listType(contentType string) error
	// wait is how long a request wants to wait.
	wait(query url.Values) (time.Duration, error)
	// isUndecided statuses are waited for.
	isUndecided(word) bool
	submitted(w http.ResponseWriter, r *http.Request, ids []string)
	statuses(w http.ResponseWriter, r *http.Request, found []status)
	fail(w http.ResponseWriter, f fault)
}

// forwarded is where the client believes this server is, from the header
// Forwarded, or X-Forwarded-Name without it.
func forwarded(r *http.Request, name string) string {
	if all := r.Header.Get("Forwarded"); all != "" {
		for pair := range strings.FieldsFuncSeq(all, func(c rune) bool { return c == ';' || c == ',' || c == ' ' || c == '\t' }) {
			if n, value, ok := strings.Cut(pair, "="); ok && strings.EqualFold(n, name) && value != "" {
				if unquoted, ok := strings.CutPrefix(value, `"`); ok && strings.HasSuffix(unquoted, `"`) {
					return strings.TrimSuffix(unquoted, `"`)
				}
				return value
			}
		}
	}
	return r.Header.Get("X-Forwarded-" + name)
}

// origin is the scheme and host of links.
func origin(r *http.Request) string {
	scheme, host := forwarded(r, "Proto"), forwarded(r, "Host")
	if scheme == "" {
		scheme = "http"
		if r.TLS != nil {
			scheme = "https"
		}
	}
	if host == "" {
		host = r.Host
	}
	return scheme + "://" + host
}

// encode writes JSON without Go's escapes for HTML. What it is given can always
// be written.
func encode(v any, indent string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// ascii escapes all that is not ASCII, as Python does. In JSON that can only be inside of texts.
func ascii(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for _, r := range string(body) {
		if r < 0x7f {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

func write(w http.ResponseWriter, contentType string, status int, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
