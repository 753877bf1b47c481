package headers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/headers"
)

// What could never be sent is refused, and no error shows a value.
func TestCheck(t *testing.T) {
	own := func(name string) bool { return name == "Range" }
	for want, h := range map[string]http.Header{
		"":                                       {"X-Api-Key": {"a b\tc"}, "x_odd!": {"ümlaut"}, "Accept": {"a", "b"}, "X-Empty": {""}},
		`"" is not a valid header name`:          {"": {"hidden"}},
		`"X Key" is not a valid header name`:     {"X Key": {"hidden"}},
		`"X-Key:" is not a valid header name`:    {"X-Key:": {"hidden"}},
		`"Schlüssel" is not a valid header name`: {"Schlüssel": {"hidden"}},
		"X-Key has a line break or another control character at position 7": {"X-Key": {"hidden\r\nX-Other: y"}},
		"at position 1":                                {"X-Key": {"fine", "\x7fhidden"}},
		"the headers X-KEY and x-key":                  {"X-KEY": {"hidden"}, "x-key": {"hidden"}},
		"Content-Length belongs to":                    {"Content-Length": {"1"}},
		"Understudy-Other belongs to":                  {"Understudy-Other": {"1"}},
		"range belongs to":                             {"range": {"1"}},
		`"X-\nInjected: y" is not a valid header name`: {"X-\nInjected: y": {"hidden"}},
		"TRANSFER-encoding belongs to ":                {"TRANSFER-encoding": {"chunked"}},
	} {
		err := headers.Check(h, own)
		switch {
		case want == "" && err != nil:
			t.Errorf("%v: %v", h, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v: %v, want %s", h, err, want)
		case err != nil && strings.Contains(err.Error(), "hidden"):
			t.Errorf("the error shows a value: %v", err)
		}
	}
}
