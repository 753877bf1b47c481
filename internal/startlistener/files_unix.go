//go:build unix

package startlistener

import "syscall"

// connBound is how many connections the port may have.
func connBound() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return maxConns
	}
	return int(max(16, min(maxConns, uint64(files.Cur)/2)))
}
