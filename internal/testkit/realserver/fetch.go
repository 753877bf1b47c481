package realserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FetchOnce returns the path of something from a registry, in a folder that outlives the test and is named after sum, its
// checksum. What is not there yet, fetch makes in a new folder, checks and returns the path of.
func FetchOnce(ctx context.Context, sum, name string, fetch func(ctx context.Context, dir string) (string, error)) (string, error) {
	cache, err := os.UserCacheDir()
	if os.Getuid() == 0 {
		cache, err = "/var/cache", nil // servers that refuse to run as root must read it, too
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "understudy-test", sum[:16], name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	fetched, err := fetch(ctx, made)
	if err != nil {
		return "", err
	}
	// Several test processes may do this at once: the last one wins, with the same content, or finds that of another.
	if err := os.Rename(fetched, path); err != nil {
		_, err = os.Stat(path)
		return path, err
	}
	return path, nil
}

// onAnother runs the tests of the calling package that match once more, in a process of their own, on another server than the
// one that is installed: setting names it. Where it cannot be had they are skipped.
func onAnother(t *testing.T, run, name, setting string, find func(context.Context) (string, error)) {
	t.Helper()
	SkipIfShort(t, name)
	if os.Getenv(setting) != "" {
		t.Skip("it runs on another server already")
	}
	found, err := find(t.Context())
	if err != nil {
		t.Skipf("%s cannot be had: %v", name, err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.skip=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), setting+"="+found)
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n--- PASS")
	t.Logf("%d tests passed on %s", passed, found)
	if err != nil || passed == 0 {
		t.Errorf("on %s: %v\n%s", found, err, out)
	}
}
