package webtest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// The package of npm that looks for what keeps people from using a page.
const (
	axePackage = "axe-core@4.14.1"
	axeFile    = "package/axe.min.js"
	axeSum     = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c" // of the file
	axeMax     = 8 << 20                                                            // bytes
)

// axe is the text of axe-core, which npm fetches once into a folder that outlives the test.
func axe(ctx context.Context) (string, error) {
	path, err := realserver.FetchOnce(ctx, axeSum, filepath.Base(axeFile), fetchAxe)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err == nil && !isAxe(text) {
		err = fmt.Errorf("%s is not the known one: remove it", path)
	}
	return string(text), err
}

func fetchAxe(ctx context.Context, made string) (string, error) {
	if out, err := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", made, axePackage).CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching %s: %w: %.300s", axePackage, err, out)
	}
	packed, _ := filepath.Glob(filepath.Join(made, "*.tgz"))
	if len(packed) != 1 {
		return "", fmt.Errorf("fetching %s: %d packages", axePackage, len(packed))
	}
	text, err := unpack(packed[0], axeFile)
	if err != nil {
		return "", err
	}
	if !isAxe(text) {
		return "", fmt.Errorf("%s in %s is not the known one", axeFile, axePackage)
	}
	unpacked := filepath.Join(made, filepath.Base(axeFile))
	return unpacked, os.WriteFile(unpacked, text, 0o644)
}

func isAxe(text []byte) bool {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]) == axeSum
}

// unpack returns a file of a package.
func unpack(packed, name string) ([]byte, error) {
	f, err := os.Open(packed)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for all := tar.NewReader(plain); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no %s", filepath.Base(packed), name)
		}
		if err != nil {
			return nil, err
		}
		if h.Name == name {
			return io.ReadAll(io.LimitReader(all, axeMax))
		}
	}
}

// Barriers are what axe-core finds on the page that is serious or critical: what, and where. Without it there are none, which
// is logged.
func (p *Page) Barriers() (found []string) {
	p.t.Helper()
	p.b.loadAxe.Do(func() {
		var err error
		if p.b.axe, err = axe(p.t.Context()); err != nil {
			p.b.t.Logf("skipped, since axe-core cannot be had: what it would find on the pages: %v", err)
		}
	})
	if p.b.axe == "" {
		return nil
	}
	p.Eval(`{ if (!window.axe) { `+p.b.axe+` } }`, nil)
	p.Eval(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
		.filter((v) => ['serious', 'critical'].includes(v.impact))
		.flatMap((v) => v.nodes.slice(0, 5).map((n) => [v.id, n.target.join(' '), n.html.slice(0, 160), n.failureSummary.split('\n').slice(1).join(';')].join(' | '))))`, &found)
	return found
}
