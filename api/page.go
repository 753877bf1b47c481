package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

// cursor is what a list of things with names of several parts gives as next, and takes as after.
func cursor(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p) // which has no slash
	}
	return strings.Join(parts, "/")
}

// afterCursor reads the parameter after as a [cursor] of n parts; nil when the request has none.
func afterCursor(r *http.Request, n int) ([]string, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return nil, nil
	}
	return readCursor(text, n)
}

func readCursor(text string, n int) ([]string, error) {
	parts := strings.Split(text, "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err == nil {
			err = lease.ValidateText("after", plain, 0, lease.MaxKey)
		}
		if err != nil || len(parts) != n {
			return nil, fmt.Errorf("%w: after=%.50q: use the next of the page before", lease.ErrInvalid, text)
		}
		parts[i] = plain
	}
	return parts, nil
}
