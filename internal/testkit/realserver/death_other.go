//go:build !linux

package realserver

import "syscall"

// dieWithTest can only be asked of Linux.
func dieWithTest(*syscall.SysProcAttr) {}
