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
	CacheWorker string
}

// built has, for a test process that another one started, the programs' directory.
const built = "UNDERSTUDY_FAULT_PROGRAMS"

// Build builds the programs as they are delivered, into a directory that is
// removed with the test. It is called once for a whole run.
func Build(tb testing.TB) Programs {
	tb.Helper()
	const module = "github.com/understudy-ha/understudy"
	if dir := os.Getenv(built); dir != "" {
		return programs(dir)
	}
	dir := tb.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+string(filepath.Separator),
		module+"/cmd/understudy", module+"/fault/worker", module+"/fault/queueworker", module+"/fault/cacheworker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building the programs: %v\n%s", err, out)
	}
	return programs(dir)
}

func programs(dir string) Programs {
	return Programs{
		Understudy: filepath.Join(dir, "understudy"), Worker: filepath.Join(dir, "worker"), QueueWorker: filepath.Join(dir, "queueworker"),
		CacheWorker: filepath.Join(dir, "cacheworker"),
	}
}
