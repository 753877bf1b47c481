// Package flock locks a file for one process. The lock ends with the process, or when the file is closed. The file stays:
// removing it would let two processes lock two files of one name. Systems without flock(2) lock nothing.
package flock

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked: another process has the lock.
var ErrLocked = errors.New("locked")

// Open opens the file, creates it if needed, and locks it. It does not wait: [ErrLocked].
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w; the folder must be writable by this user", err)
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
