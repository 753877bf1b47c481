package procgroup

import "syscall"

// Own starts a process in a group of its own, which dies with this process.
func Own() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
