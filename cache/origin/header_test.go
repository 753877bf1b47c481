package origin

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/lease"
)

// TestURLHeaders: what could never be sent is refused when the origin is made, and no error shows a value.
func TestURLHeaders(t *testing.T) {
	for want, h := range map[string]http.Header{
		"":                                   {"X-Api-Key": {"a b\tc"}, "x_odd!": {"ümlaut"}, "Accept": {"a", "b"}, "X-Empty": {""}},
		`"X Key" is not a valid header name`: {"X Key": {"hidden"}},
		"the headers X-KEY and x-key":        {"X-KEY": {"hidden"}, "x-key": {"hidden"}},
		"if-none-match belongs to":           {"if-none-match": {"1"}},
	} {
		_, err := URL(URLConfig{URL: "http://127.0.0.1/{key}?token=hidden", Header: h})
		switch {
		case want == "" && err != nil:
			t.Errorf("%v: %v", h, err)
		case want != "" && (!errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%v: %v, want %s", h, err, want)
		case err != nil && strings.Contains(err.Error(), "hidden"):
			t.Errorf("the error shows a value: %v", err)
		}
	}
	if _, err := URL(URLConfig{URL: "ftp://127.0.0.1/{key}?token=hidden"}); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a wrong URL: %v", err)
	}
}
