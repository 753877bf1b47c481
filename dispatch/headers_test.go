package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

func TestHeaders(t *testing.T) {
	fine := map[string]string{"traceparent": "00-1-2-01", "Ce-Type": "grün", "X_Odd": ""}
	if err := dispatch.ValidateHeaders(fine); err != nil {
		t.Error(err)
	}
	if got := dispatch.DecodeHeaders(dispatch.EncodeHeaders(fine)); !cmp.Equal(got, fine) {
		t.Errorf("read back as %v", got)
	}
	many := map[string]string{}
	for i := range dispatch.MaxHeaders + 1 {
		many[fmt.Sprint("h", i)] = ""
	}
	for name, bad := range map[string]map[string]string{
		"no name": {"": "x"}, "a blank": {"a b": "x"}, "a colon": {"a:": "x"}, "a line break": {"a": "x\r\nHost: y"}, "twice": {"A": "x", "a": "y"},
		"the protocol's": {"understudy-term": "9"}, "a signature": {"Webhook-Signature": "v1,x"}, "an id": {"idempotency-key": "x"},
		"framing": {"Content-Length": "1"}, "rights": {"Authorization": "Bearer x"}, "many": many,
		"long": {"a": strings.Repeat("x", dispatch.MaxHeaderBytes)},
	} {
		if err := dispatch.ValidateHeaders(bad); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]map[string]string{
		"": nil, "{}": nil, "[]": nil, "{": nil, `{"a": 1, "b": "x", "Host": "evil", "c": "x\ny"}`: {"b": "x"},
	} {
		if got := dispatch.DecodeHeaders(text); !cmp.Equal(got, want) {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
