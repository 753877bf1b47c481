//go:build !unix

package procgroup

import (
	"os/exec"
	"time"
)

// Running is a program that was started.
type Running struct{ cmd *exec.Cmd }

// Start starts a command as it is, because there are no groups here: the end of its context kills it alone.
// [Running.Wait] must follow.
func Start(cmd *exec.Cmd, lingers time.Duration) (*Running, error) {
	cmd.WaitDelay = lingers
	return &Running{cmd}, cmd.Start()
}

// Wait waits for the program's end, and then for so long for the end of its output.
func (r *Running) Wait() error { return r.cmd.Wait() }
