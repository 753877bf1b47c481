package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Effect is something that a holder did to the world.
type Effect struct {
	// At is a reading of lease.BootClock, taken before the effect.
	At time.Duration `json:"at"`
	// Subject that was held: a role, a key, a shard.
	Subject string `json:"subject"`
	// Holder is the instance, as lease.Instance.Label shows it.
	Holder string `json:"holder"`
	// Term under which it was done.
	Term int64 `json:"term"`
	// PID of the process that did it.
	PID int `json:"pid"`
	// Run of a job that starts with this effect, or has ended with it: its scheduled time, "/" and the attempt.
	Run   string `json:"run,omitempty"`
	Ended bool   `json:"ended,omitempty"`
}

// recordSize divides the size of a page, so that no record crosses one: a
// process that is killed while it writes leaves the whole record or nothing.
const recordSize = 256

// Append adds an effect to a ledger that was opened with O_APPEND.
func Append(ledger *os.File, e Effect) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(text) >= recordSize {
		return fmt.Errorf("ledger: an effect of %d bytes; %d fit into a record", len(text), recordSize-1)
	}
	var record [recordSize]byte
	n := copy(record[:], text)
	for ; n < recordSize-1; n++ {
		record[n] = ' '
	}
	record[recordSize-1] = '\n'
	_, err = ledger.Write(record[:])
	return err
}

// Read returns the effects of a ledger from the given one on, in the order
// in which they came about. A ledger that is not there has none.
func Read(path string, from int) ([]Effect, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(int64(from)*recordSize, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	effects := make([]Effect, len(text)/recordSize)
	for i := range effects {
		record := text[i*recordSize : (i+1)*recordSize]
		if err := json.Unmarshal(record, &effects[i]); err != nil {
			return nil, fmt.Errorf("ledger: record %d of %s is %q: %w", from+i, path, record, err)
		}
	}
	return effects, nil
}

// Last returns the last effect of a ledger, a zero one when there is none.
func Last(path string) (Effect, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return Effect{}, nil
	}
	if err != nil {
		return Effect{}, err
	}
	effects, err := Read(path, max(0, int(info.Size()/recordSize)-1))
	if err != nil || len(effects) == 0 {
		return Effect{}, err
	}
	return effects[len(effects)-1], nil
}
