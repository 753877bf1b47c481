//go:build linux

package fault_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// prove: `make prove` runs what repeats a fault on another store or with another
// receiver, more seeds, and longer; `make test` tries each kind of fault once.
var prove = os.Getenv("UNDERSTUDY_PROVE") == "1"

// tried tells make prove's table how often each fault was tried.
func tried(t *testing.T, did map[string]int) {
	for _, fault := range slices.Sorted(maps.Keys(did)) {
		t.Attr("tried", fmt.Sprintf("%d %s", did[fault], fault))
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Scenarios wait for most of their time.
	_ = flag.Set("test.parallel", "6")
	if err := fault.Adopt(); err != nil {
		fmt.Fprintln(os.Stderr, "becoming the parent of orphans:", err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "understudy-programs")
	if err == nil && os.Getenv(fault.ProgramsDir) == "" {
		err = os.Setenv(fault.ProgramsDir, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a directory for the programs:", err)
		os.Exit(1)
	}
	code := realserver.Main(m)
	for _, p := range fault.Leftovers(10 * time.Second) {
		fmt.Fprintln(os.Stderr, "LEFT OVER:", p)
		code = 1
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
