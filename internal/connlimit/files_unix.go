//go:build unix

package connlimit

import "syscall"

// Bound is how many connections a port may have, if one in share of the files may be a connection of it.
func Bound(share int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return maxConns
	}
	return int(max(16, min(maxConns, uint64(files.Cur)/uint64(share))))
}
