package main

import (
	"io"
	"strings"
	"testing"
)

// TestOldFlags: a flag that was renamed works under its old name for one more version, counts as given, and is not shown.
func TestOldFlags(t *testing.T) {
	for _, c := range []struct{ command, given, now, value string }{
		{"queue run", "--never-twice", "at-most-once", "true"},
		{"queue run", "--recognises", "deduplicates", "true"},
		{"queue run", "--also=http://a", "other-services", "[http://a]"},
		{"queue add", "--make", "create", "true"},
		{"cache serve", "--source-cmd=a {key}", "origin-cmd", "a {key}"},
		{"cache serve", "--source-url=http://a/{key}", "origin-url", "http://a/{key}"},
		{"cache serve", "--source-header=A: b", "origin-header", "[A: b]"},
		{"cache serve", "--source-token-file=a", "origin-token-file", "a"},
		{"cache serve", "--source-ca-file=a", "origin-ca-file", "a"},
		{"alarm list", "--standing", "open", "true"},
		{"monitor config apply", "--keep", "keep-others", "true"},
		{"shard failover", "--lose=3", "max-loss", "3"},
		{"shard proxy", "--hold=3s", "wait", "3s"},
	} {
		command, _, err := (&app{stdout: io.Discard, stderr: io.Discard}).root().Find(strings.Fields(c.command))
		if err != nil {
			t.Fatal(err)
		}
		if err := command.ParseFlags([]string{c.given}); err != nil {
			t.Errorf("%s %s: %v", c.command, c.given, err)
			continue
		}
		if f := command.Flags().Lookup(c.now); f == nil || !f.Changed || f.Value.String() != c.value {
			t.Errorf("%s %s: --%s is %+v", c.command, c.given, c.now, f)
		}
		if old, _, _ := strings.Cut(c.given, "="); strings.Contains(command.Flags().FlagUsages(), old+" ") {
			t.Errorf("%s --help shows %s", c.command, old)
		}
	}
}
