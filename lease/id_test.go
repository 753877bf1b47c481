package lease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/lease"
)

func TestIDValidate(t *testing.T) {
	for _, c := range []struct {
		space, key string
		ok         bool
	}{
		{"role", "billing", true},
		{"a", "k", true},
		{"role-2_x.y", "日本 ✓", true},
		{"role", `'; DROP TABLE lease; --`, true}, // only data
		{"role", "<script>", true},
		{strings.Repeat("s", lease.MaxSpace), strings.Repeat("k", lease.MaxKey), true},
		{"", "k", false},
		{"Role", "k", false},
		{"2role", "k", false},
		{"ro/le", "k", false},
		{"röle", "k", false},
		{strings.Repeat("s", lease.MaxSpace+1), "k", false},
		{"role", "", false},
		{"role", " k", false},
		{"role", "k\u00a0", false},
		{"role", "a\nb", false},
		{"role", "a\x00b", false},
		{"role", "a\x1b[31mb", false},
		{"role", "a\u202eb", false}, // turns the writing round
		{"role", "a\u200bb", false}, // has no width
		{"role", "a\ufeffb", false},
		{"role", "\xff\xfe", false},
		{"role", strings.Repeat("k", lease.MaxKey+1), false},
	} {
		err := lease.ID{Space: c.space, Key: c.key}.Validate()
		if (err == nil) != c.ok {
			t.Errorf("%q, %q: %v, want ok: %t", c.space, c.key, err, c.ok)
		}
		if err != nil && (!errors.Is(err, lease.ErrInvalid) || strings.ContainsAny(err.Error(), "\n\x00\x1b\u202e\u200b")) {
			t.Errorf("%q: the error %q is no ErrInvalid, or repeats the text raw", c.key, err)
		}
	}
}

func TestInstanceValidate(t *testing.T) {
	good := lease.NewInstance("db-1", "10.0.0.1:5432")
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if err := lease.NewInstance("db-1", "").Validate(); err != nil {
		t.Errorf("an instance without an address: %v", err)
	}
	for _, bad := range []lease.Instance{
		{}, {ID: "x"}, {Name: "x"},
		lease.NewInstance("a\tb", ""), lease.NewInstance("a", "b\r\nc"),
		lease.NewInstance(strings.Repeat("n", lease.MaxName+1), ""),
		lease.NewInstance("n", strings.Repeat("a", lease.MaxAddress+1)),
	} {
		if err := bad.Validate(); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestInstanceNames(t *testing.T) {
	a, b := lease.NewInstance("n", ""), lease.NewInstance("n", "")
	if a.ID == b.ID || len(a.ID) < 20 {
		t.Errorf("two starts have the ids %q and %q", a.ID, b.ID)
	}
	if a.Label() != "n/"+a.ID[:8] || (lease.Instance{ID: "x", Name: "n"}).Label() != "n/x" {
		t.Errorf("label %q", a.Label())
	}
	for successor, want := range map[string]bool{"n": true, a.ID: true, b.ID: false, a.ID[:8]: false, "": false, "N": false} {
		if a.IsNamed(successor) != want {
			t.Errorf("Named(%q) = %t", successor, !want)
		}
	}
	if (lease.Instance{}).IsNamed("") {
		t.Error("no successor names nobody")
	}
}

func TestTruncateReason(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"a\nb\x00c":                    "a b c",
		"bad \xff byte":                "bad   byte",
		strings.Repeat("x", 300):       strings.Repeat("x", lease.MaxReason-3) + "…",
		"x" + strings.Repeat("é", 150): "x" + strings.Repeat("é", 98) + "…",
	} {
		got := lease.TruncateReason(in)
		if got != want || !utf8.ValidString(got) || len(got) > lease.MaxReason {
			t.Errorf("CutReason(%.20q…) = %q", in, got)
		}
	}
	if got := lease.ReleaseRequestedReason("b", "op"); got != "asked to resign for b by op" {
		t.Errorf("AskReason = %q", got)
	}
	if got := lease.ReleaseRequestedReason("", "op\n"); got != "asked to resign by op " {
		t.Errorf("AskReason = %q", got)
	}
}

func FuzzValidateText(f *testing.F) {
	for _, s := range []string{"a", " a", "\xff", "a\u202eb", "日本"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := lease.ValidateText("text", s, 1, 50)
		if err == nil && (s == "" || len(s) > 50 || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\n\r\t\x1b")) {
			t.Errorf("%q is accepted", s)
		}
		if got := lease.TruncateReason(s); len(got) > lease.MaxReason || !utf8.ValidString(got) {
			t.Errorf("CutReason(%q) = %q", s, got)
		}
		if quoted := fmt.Sprint(err); err != nil && !utf8.ValidString(quoted) {
			t.Errorf("the error for %q is not text", s)
		}
	})
}
