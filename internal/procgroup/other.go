//go:build !unix

package procgroup

import (
	"os"
	"syscall"
)

// Own starts a process as it is: there are no groups here.
func Own() *syscall.SysProcAttr { return nil }

// Kill kills a process.
func Kill(p *os.Process) error { return p.Kill() }
