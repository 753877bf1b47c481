package dispatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// Limits of a message's headers.
const (
	MaxHeaders     = 50      // of one message
	MaxHeaderBytes = 8 << 10 // of all names and values together
)

// ValidateHeaders checks the headers of a message, such as traceparent, or ce-type of CloudEvents. Its errors wrap
// [lease.ErrInvalid].
func ValidateHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("%w: %d headers; at most %d are allowed", lease.ErrInvalid, len(headers), MaxHeaders)
	}
	size, seen := 0, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, lower := headers[name], strings.ToLower(name)
		switch {
		case !CanCarryHeader(name):
			return fmt.Errorf("%w: the header %.100q is not a name of letters, digits, - and _, or belongs to the protocol", lease.ErrInvalid, name)
		case seen[lower]:
			return fmt.Errorf("%w: the header %s appears twice", lease.ErrInvalid, lower)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return fmt.Errorf("%w: the value of the header %s has a control character", lease.ErrInvalid, name)
		}
		seen[lower] = true
		size += len(name) + len(value)
	}
	if size > MaxHeaderBytes {
		return fmt.Errorf("%w: the headers have %d bytes; at most %d are allowed", lease.ErrInvalid, size, MaxHeaderBytes)
	}
	return nil
}

// CanCarryHeader reports whether a message may have a header of this name: a plain one, and none that frames a request,
// signs or identifies it, or says who sends it.
func CanCarryHeader(name string) bool {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return false
	}
	switch lower := strings.ToLower(name); lower {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect",
		"idempotency-key", "authorization", "cookie", "user-agent":
		return false
	default:
		return !strings.HasPrefix(lower, "understudy-") && !strings.HasPrefix(lower, "webhook-") && !strings.HasPrefix(lower, "proxy-")
	}
}

// EncodeHeaders is how stores keep headers: a JSON object, or "" for none.
func EncodeHeaders(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	text, err := json.Marshal(headers)
	if err != nil {
		panic(err) // a map of strings
	}
	return string(text)
}

// DecodeHeaders reads what a store keeps. A value that is not a string, or that SQL put there and cannot be carried, is left out.
func DecodeHeaders(text string) map[string]string {
	var found map[string]any
	if text == "" || json.Unmarshal([]byte(text), &found) != nil {
		return nil
	}
	out := map[string]string{}
	for name, value := range found {
		if s, ok := value.(string); ok && ValidateHeaders(map[string]string{name: s}) == nil {
			out[name] = s
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
