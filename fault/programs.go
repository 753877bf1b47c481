//go:build linux

package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/previous"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Programs are what a [Cluster] runs, built from this module.
type Programs struct {
	Understudy  string
	Worker      string
	QueueWorker string
	CacheWorker string
}

// ProgramsDir is the setting in the environment that names the directory of the
// programs. A test's main function makes it and removes it; a test process that this
// one starts finds them there.
const ProgramsDir = "UNDERSTUDY_FAULT_PROGRAMS"

// Build builds the programs as they are delivered, the first time that it is called.
func Build(tb testing.TB) Programs {
	tb.Helper()
	realserver.SkipIfShort(tb, "the built programs")
	p, err := build()
	if err != nil {
		tb.Fatalf("building the programs: %v", err)
	}
	return p
}

var build = sync.OnceValues(func() (Programs, error) {
	const module = "github.com/understudy-ha/understudy"
	dir := os.Getenv(ProgramsDir)
	if dir == "" {
		return Programs{}, errors.New("no " + ProgramsDir)
	}
	p := programsIn(dir)
	if _, err := os.Stat(p.Understudy); err == nil {
		return p, nil
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+string(filepath.Separator),
		module+"/cmd/understudy", module+"/fault/worker", module+"/fault/queueworker", module+"/fault/cacheworker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("%w\n%s", err, out)
	}
	return p, nil
})

func programsIn(dir string) Programs {
	return Programs{
		Understudy: filepath.Join(dir, "understudy"), Worker: filepath.Join(dir, "worker"), QueueWorker: filepath.Join(dir, "queueworker"),
		CacheWorker: filepath.Join(dir, "cacheworker"),
	}
}

// BuildPrevious builds the programs of the previous version, except for the cache's, which uses no store.
func BuildPrevious(tb testing.TB) Programs {
	tb.Helper()
	realserver.SkipIfShort(tb, "the built programs")
	dir := tb.TempDir()
	previous.Build(tb, dir, "./cmd/understudy", "./fault/worker", "./fault/queueworker")
	return programsIn(dir)
}
