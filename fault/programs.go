//go:build linux

package fault

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Programs are what a [Cluster] runs, built from this module.
type Programs struct {
	Understudy  string
	Worker      string
	QueueWorker string
}

// Build builds the programs as they are delivered, into a directory that is
// removed with the test. It is called once for a whole run.
func Build(tb testing.TB) Programs {
	tb.Helper()
	const module = "github.com/understudy-ha/understudy"
	dir := tb.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+string(filepath.Separator),
		module+"/cmd/understudy", module+"/fault/worker", module+"/fault/queueworker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building the programs: %v\n%s", err, out)
	}
	return Programs{
		Understudy: filepath.Join(dir, "understudy"), Worker: filepath.Join(dir, "worker"), QueueWorker: filepath.Join(dir, "queueworker"),
	}
}
