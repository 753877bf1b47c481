package demo

import "syscall"

// ownGroup starts a process in a group of its own, which ends with this process
// whatever happens to it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
