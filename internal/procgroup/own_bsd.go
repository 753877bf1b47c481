//go:build unix && !linux

package procgroup

import "syscall"

// Own starts a process in a group of its own.
func Own() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
