package guard

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"time"
)

// What guard and watchers say to each other, through two pipes per watcher.

// order is what the guard tells a watcher. Its few bytes are written at once, so
// that they arrive whole or not at all.
type order struct {
	kind  byte
	value int64
}

const (
	orderExtend byte = 'd' // value: the deadline, in ns of the watcher's clock
	orderStop   byte = 's'
	orderSignal byte = 'g' // value: the signal's number

	orderSize = 9
)

func (o order) encode() []byte {
	return binary.LittleEndian.AppendUint64([]byte{o.kind}, uint64(o.value))
}

func decodeOrder(b []byte) order {
	return order{kind: b[0], value: int64(binary.LittleEndian.Uint64(b[1:orderSize]))}
}

// report is what a watcher tells the guard, as a line of JSON. The guard may be
// stopped: all that a watcher ever says fits into the pipe.
type report struct {
	Kind reportKind `json:"kind"`
	// Pid of the program (started).
	Pid int `json:"pid,omitempty"`
	// Errno is why the program could not be started (failed).
	Errno int `json:"errno,omitempty"`
	// Error is why the watcher could not do its work, Late whether it was the
	// deadline (failed).
	Error string `json:"error,omitempty"`
	Late  bool   `json:"late,omitempty"`
	// Code the program exited with, and why and when (ended).
	Code   int           `json:"code,omitempty"`
	Reason Reason        `json:"reason,omitempty"`
	At     time.Duration `json:"at,omitempty"`
}

type reportKind string

const (
	reportStarted reportKind = "started"
	reportFailed  reportKind = "failed"
	reportEnded   reportKind = "ended"
)

// shellCode is what a shell exits with when a program cannot be started.
func shellCode(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return 127
	}
	return 126
}
