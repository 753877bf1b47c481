package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs that are not there are named with the line on which they stand; those that are there are not.
func TestMissingPrograms(t *testing.T) {
	dir := t.TempDir()
	there, plain := filepath.Join(dir, "there"), filepath.Join(dir, "plain")
	for path, mode := range map[string]os.FileMode{there: 0o700, plain: 0o600} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	text := "roles:\n- role: a\n  command: [sh, -c, 'true']\n- role: b\n  command: [no-such-program-anywhere]\n- role: c\n- role: d\n  command: [" + plain + "]\n" +
		"hooks:\n- command: [" + there + "]\n- command: [" + filepath.Join(dir, "gone") + "]\n"
	c, err := ReadWith(writeFile(t, text), nil, func(*Server) {})
	if err != nil {
		t.Fatal(err)
	}
	got := c.Warnings()
	want := []string{`line 5: roles[1].command: the program no-such-program-anywhere of role "b"`, "line 8: roles[3].command: the program " + plain + ` of role "d"`, "line 11: hooks[1].command: the program " + filepath.Join(dir, "gone") + " of hook 2"}
	if len(got) != len(want) {
		t.Fatalf("%d are told, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("says %q, want %q", got[i], want[i])
		}
	}
}
