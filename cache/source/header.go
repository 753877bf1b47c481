package source

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// checkHeader refuses headers that cannot be sent, or that are not for others to set. It shows no value: it may be a
// secret.
func checkHeader(h http.Header) error {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name == "" || strings.ContainsFunc(name, notInName) {
			return fmt.Errorf("%.100q is no name of a header; use letters, digits and -, as in X-Api-Key", name)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if other, twice := seen[canonical]; twice {
			return fmt.Errorf("the headers %s and %s are one; leave one out", other, name)
		}
		seen[canonical] = name
		switch {
		case canonical == "Host", canonical == "Content-Length", canonical == "Transfer-Encoding", canonical == "Connection",
			canonical == "Range", strings.HasPrefix(canonical, "If-"), strings.HasPrefix(canonical, "Understudy-"):
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

// notInName tells what is no character of a token (RFC 9110, 5.6.2).
func notInName(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// notInValue tells what cannot stand in a value.
func notInValue(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
