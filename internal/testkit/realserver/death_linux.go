package realserver

import "syscall"

// dieWithTest has the kernel end a server when the test process ends.
func dieWithTest(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
