package redis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckStartFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const closes = "replicaof 127.0.0.1 0\nmin-replicas-to-write 2147483647\n"
	fence := file("fence.conf", closes)
	loop := file("loop.conf", closes+"include "+filepath.Join(dir, "loop.conf")+"\n")
	for name, c := range map[string]struct{ path, want string }{
		"all lines":          {fence, ""},
		"old names":          {file("old.conf", "SLAVEOF 127.0.0.1 0\nmin-slaves-to-write \"2147483647\"\n"), ""},
		"included":           {file("main.conf", "port 1\ninclude "+filepath.Join(dir, "fen*.conf")+"\n"), ""},
		"overruled later":    {file("later.conf", closes+"min-replicas-to-write 1\n"), "lacks min-replicas-to-write 2147483647"},
		"follows somebody":   {file("other.conf", closes+"replicaof 10.0.0.1 6379\n"), "lacks replicaof 127.0.0.1 0"},
		"commented out":      {file("comment.conf", "# "+strings.ReplaceAll(closes, "\n", "\n# ")), "replicaof 127.0.0.1 0, min-replicas-to-write"},
		"no file":            {"", "no configuration file"},
		"not there":          {filepath.Join(dir, "nothing"), "cannot be read"},
		"includes itself":    {loop, "files are included"},
		"a folder":           {dir, "cannot be read"},
		"none of them, ever": {file("empty.conf", ""), "lacks"},
	} {
		err := CheckStartFile(c.path)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{"6.2.6": true, "6.2.7": false, "6.0.16": true, "5.0.14": true, "7.0.0": false, "6.2.14": false, "": false, "255.255.255": false} {
		if got := isTooOld(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
