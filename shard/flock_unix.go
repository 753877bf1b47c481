//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package shard

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/understudy-ha/understudy/lease"
)

// flock takes the lock of a data folder. It ends with the process if the file is not closed before.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("shard: opening the lock file: %w; the data folder must be writable by this user", err)
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
		return nil, fmt.Errorf("%w: %s is locked: another agent uses this data folder; stop it, or name another folder", lease.ErrInvalid, path)
	}
	return nil, fmt.Errorf("shard: locking %s: %w", path, err)
}
