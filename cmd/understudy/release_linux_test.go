package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// The process that releases the role of a guard that was killed ignores SIGTERM, which the end of the guard sends, as the watcher did
// whose place it took: the runtime of a new program does not keep that by itself.
func TestReleaseIgnoresSIGTERM(t *testing.T) {
	release := exec.Command("understudy", instance.ReleaseArg)
	input, err := release.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := release.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release.Wait() }()
	defer input.Close() // which ends it
	realserver.Eventually(t, patience, "SIGTERM is ignored", func() error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", release.Process.Pid))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
		mask, _, _ := strings.Cut(rest, "\n")
		ignored, err := strconv.ParseUint(mask, 16, 64)
		if err == nil && ignored&(1<<(syscall.SIGTERM-1)) == 0 {
			err = fmt.Errorf("ignored: %s", mask)
		}
		return err
	})
}
