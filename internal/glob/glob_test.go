package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"":          {"", "a"},
		"a":         {"a", "ab,"},
		"*":         {",billing,a/b", "-"},
		"billing":   {"billing", "billings,bill,"},
		"billing*":  {"billing,billing#2,billings", "bill,a billing"},
		"*/key":     {"q/key,a/b/key,/key", "key,q/keys"},
		"a*b*c":     {"abc,a-b-c,abcbc,a b bc", "ac,acb,xabc,abcx"},
		"*b*":       {"b,abc", "a"},
		"**":        {",x", "-"},
		"a*a":       {"aa,aba", "a"},
		"a?":        {"a?", "ab"},
		"[a]\\":     {"[a]\\", "a"},
		"straße*":   {"straße,straße 1", "strasse"},
		"orders/a*": {"orders/a,orders/a/b", "orders/b"},
	} {
		for text := range strings.SplitSeq(c.yes, ",") {
			if !Match(pattern, text) {
				t.Errorf("%q does not match %q", pattern, text)
			}
		}
		for text := range strings.SplitSeq(c.no, ",") {
			if c.no != "-" && Match(pattern, text) {
				t.Errorf("%q matches %q", pattern, text)
			}
		}
	}
}

func TestMatchRedis(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"+s*", "+switch-master", true}, {"+s*", "-sdown", false}, {"?sdown", "-sdown", true},
		{"[+-]", "-", true}, {"[-+]sdown", "-sdown", true}, {"[^+]sdown", "+sdown", false}, {"[a-c]", "b", true}, {"[c-a]", "b", true}, {"[a", "a", true}, {"\\*", "*", true},
		{"\\*", "a", false}, {"[\\]]", "]", true}, {"*a*b*c", "xxaxxbxxc", true}, {"*a*b*c", "xxaxxbxx", false}, {"a*", "a", true}, {"[", "[", false}, {"[]", "]", false}, {"\\", "\\", true},
	} {
		if got := MatchRedis(c.pattern, c.name); got != c.want {
			t.Errorf("MatchRedis(%q, %q) = %t", c.pattern, c.name, got)
		}
	}
	if MatchRedis(strings.Repeat("*a", 30000), strings.Repeat("a", 29999)) {
		t.Error("a name that is too short fits")
	}
}
