package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// code is SQLite's primary result code, 0 when err is not from SQLite.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// busy tells errors that pass by themselves: another process writes, recovers
// the log or switches its mode at this moment.
func busy(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// retry tries until the outcome is something else than busy or ctx ends.
// SQLite's own waiting lets one process starve another; random pauses do not.
func retry(ctx context.Context, try func() error) error {
	for pauses := (backoff.Backoff{First: time.Millisecond, Most: 15 * time.Millisecond}); ; {
		err := try()
		if !busy(err) {
			return err
		}
		if !pauses.Wait(ctx) {
			return fmt.Errorf("another transaction kept the file locked: %w: %w", err, context.Cause(ctx))
		}
	}
}

// failed gives an error the sentinel that the ports promise. Refusals pass as
// they are; all else says that nothing was applied.
func failed(op string, err error) error {
	for _, refusal := range []error{
		lease.ErrHeld, lease.ErrNotHeld, lease.ErrLapsed, lease.ErrInvalid, dispatch.ErrNoQueue, dispatch.ErrNoMessage, dispatch.ErrState, dispatch.ErrUncertain,
		monitor.ErrAlarmOpen, monitor.ErrNoSource, monitor.ErrNoCheck, monitor.ErrNoAlarm,
		job.ErrNotFound, shard.ErrNotFound, shard.ErrChanged, shard.ErrLocked, shard.ErrTaken, shard.ErrNoCommand,
	} {
		if errors.Is(err, refusal) {
			return err
		}
	}
	kind := lease.ErrUnavailable
	if isDamage(err) {
		kind = lease.ErrDamaged
	}
	return fmt.Errorf("sqlite: %s: %w: %w%s", op, kind, err, advice(err))
}

// isDamage reports whether SQLite cannot make sense of the file.
func isDamage(err error) bool {
	return code(err) == sqlite3.SQLITE_NOTADB || code(err) == sqlite3.SQLITE_CORRUPT
}

// commitFailed is failed for a COMMIT. When the disk refused to sync, the commit
// record may have reached it, and a recovery after a crash may bring it back.
func commitFailed(op string, err error) error {
	if code(err) == sqlite3.SQLITE_IOERR {
		return fmt.Errorf("sqlite: %s: %w: %w%s", op, lease.ErrUnknown, err, advice(err))
	}
	return failed(op, err)
}

func advice(err error) string {
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return "; free space on the file system of the store"
	case sqlite3.SQLITE_IOERR:
		return "; the disk failed or is full: see the kernel's log"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return "; the file and its directory must be writable by this user"
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return "; restore it from a backup: the outbox, tokens and history in it cannot be made again (docs/runbook.md#a-damaged-store)"
	}
	return ""
}
