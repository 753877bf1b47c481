//go:build unix

package main

import (
	"os"
	"syscall"
)

// forwarded are the signals that a guarded program gets from its guard.
var forwarded = []os.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
