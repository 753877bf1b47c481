package disk

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrInUse is that another process has the directory.
	ErrInUse = errors.New("disk: another process uses this directory")
	// ErrFile is a file that cannot be read: damaged, of another program, or of a
	// newer version of this one.
	ErrFile = errors.New("disk: the file cannot be used")

	// errVersion is that a file of this program has a version that was never made: its header is damaged.
	errVersion = errors.New("which no understudy has made")

	errClosed = errors.New("disk: the storage is closed")
)

// repair is what to do about a file that cannot be read.
const repair = "stop this peer and run understudy cache repair on its data folder; do so on one peer at a time, while the others are up"

// failed says what was being done and what to do about the error.
func failed(doing string, err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("disk: %s: %w", doing, err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %s: %w; %s", ErrFile, doing, err, repair)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("disk: %s: %w; free space on the file system of the cache", doing, err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("disk: %s: %w; the disk failed or is full: see the kernel's log", doing, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("disk: %s: %w; the file and its directory must be writable by this user", doing, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("disk: %s: %w; another program has opened the file: close it", doing, err)
	}
	return fmt.Errorf("disk: %s: %w", doing, err)
}
