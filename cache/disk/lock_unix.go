//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes the lock of a directory, which ends with the process if it is not
// closed before. The file stays: removing it would let two processes lock two
// files of one name.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk: opening the lock file: %w; the directory must be writable by this user", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s is locked: each peer needs a directory of its own; stop the other one, or name another directory", ErrInUse, path)
	}
	return nil, fmt.Errorf("disk: locking %s: %w", path, err)
}
