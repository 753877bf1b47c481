package front

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// dialect is what differs between the APIs.
type dialect interface {
	// listType refuses a list of batches by its Content-Type.
	listType(contentType string) error
	// wait is how long a request wants to wait.
	wait(query url.Values) (time.Duration, error)
	// unsettled statuses are waited for.
	unsettled(word) bool
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

// ascii escapes all that is not printable ASCII. In JSON that can only be inside of
// texts.
func ascii(body []byte) []byte {
	const digits = "0123456789abcdef"
	var out []byte
	for i := 0; i < len(body); {
		c := body[i]
		if c < utf8.RuneSelf && c != 0x7f {
			if out != nil {
				out = append(out, c)
			}
			i++
			continue
		}
		if out == nil {
			out = append(make([]byte, 0, len(body)+64), body[:i]...)
		}
		r, n := utf8.DecodeRune(body[i:])
		units := []rune{r}
		if r > 0xffff {
			r -= 0x10000
			units = []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
		}
		for _, u := range units {
			out = append(out, '\\', 'u', digits[u>>12&15], digits[u>>8&15], digits[u>>4&15], digits[u&15])
		}
		i += n
	}
	if out == nil {
		return body
	}
	return out
}

func write(w http.ResponseWriter, contentType string, status int, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
