//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package shard

import (
	"fmt"
	"os"
)

// flock opens the lock file and locks nothing.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("shard: opening the lock file: %w; the data folder must be writable by this user", err)
	}
	return f, nil
}
