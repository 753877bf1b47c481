package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each file with a secret that others may read is named, in one warning; those that only their owner reads, and those
// that hold no secret, are not.
func TestExposedFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 && name != "rooted" { // else it is another user's already
			if err := os.Chown(path, 65534, -1); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	text := "token_file: " + file("token", 0o644) + "\n" +
		"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', secret_file: " + file("cache", 0o640) + ", origin: {url: 'http://127.0.0.1:3/{key}', token_file: " + file("origin", 0o400) + "}}\n" +
		"queues:\n- queue: q\n  webhook: {url: 'http://127.0.0.1:1/', secret_file: " + file("hook", 0o600) + ", header_files: {X-Key: " + file("header", 0o604) + "}}\n" +
		"monitor: {ping_keys: [{file: " + file("ping", 0o604) + "}]}\n"
	c, err := ReadWith(writeFile(t, text), nil, func(*Server) {})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"cache.secret_file " + dir + "/cache (0640)", "monitor.ping_keys[0].file " + dir + "/ping (0604)",
		"queues[0].webhook.header_files.X-Key " + dir + "/header (0604)", "token_file " + dir + "/token (0644)",
	}
	if got := ExposedFiles(c); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := c.Warnings(); len(got) != 1 || !strings.Contains(got[0], strings.Join(want, ", ")) || !strings.Contains(got[0], "chmod 600") {
		t.Errorf("warnings: %q", got)
	}
}
