//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package disk

import (
	"fmt"
	"os"
)

// lock opens the lock file and locks nothing.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk: opening the lock file: %w; the directory must be writable by this user", err)
	}
	return f, nil
}
