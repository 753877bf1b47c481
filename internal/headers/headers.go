package headers

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Check refuses headers that cannot be sent, names that differ in case only, and those that are not for others to
// set: what frames a request, what starts with Understudy-, and what the caller says is its own, by canonical name.
func Check(h http.Header, own func(name string) bool) error {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name == "" || strings.ContainsFunc(name, notInName) {
			return fmt.Errorf("%.100q is not a valid header name; use letters, digits and -, as in X-Api-Key", name)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if other, twice := seen[canonical]; twice {
			return fmt.Errorf("the headers %s and %s are one; leave one out", other, name)
		}
		seen[canonical] = name
		if framing(canonical) || strings.HasPrefix(canonical, "Understudy-") || own(canonical) {
			return fmt.Errorf("the header %s belongs to the protocol", name)
		}
		for _, value := range h[name] {
			if at := strings.IndexFunc(value, notInValue); at >= 0 {
				return fmt.Errorf("the value of the header %s has a line break or another control character at position %d", name, at+1)
			}
		}
	}
	return nil
}

func framing(name string) bool {
	return name == "Host" || name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection"
}

// notInName tells what is no character of a token (RFC 9110, 5.6.2).
func notInName(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// notInValue tells what cannot stand in a value.
func notInValue(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
