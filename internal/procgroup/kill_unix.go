//go:build unix

package procgroup

import (
	"os"
	"syscall"
)

// Kill kills a process with its group. It is called before the process is
// waited for, so that its number cannot be another's by then.
func Kill(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); err != nil {
		return p.Kill()
	}
	return nil
}
