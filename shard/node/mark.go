package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// errNotThere: the process that was asked for does not run any more.
var errNotThere = errors.New("node: no such process")

// mark is the content of node.pid.
type mark struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // of the process, since the boot, as the kernel counts
	Boot  string `json:"boot"`
	Argv  string `json:"argv_sha256"`
}

func newMark(pid int, argv []string) mark {
	start, _ := startOf(pid)
	return mark{PID: pid, Start: start, Boot: bootID(), Argv: hash(argv)}
}

// readMark returns the zero mark if there is none.
func readMark(file string) (mark, error) {
	var m mark
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return m, fmt.Errorf("node: %s, which tells of a node that may be running: %w; remove it if none is", file, err)
	}
	return m, nil
}

func (m mark) write(file string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".node.pid-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// find returns the process that the mark tells of, or errNotThere.
func (m mark) find() (*run, error) {
	if m.PID <= 1 || m.Start == "" || m.Boot == "" || m.Boot != bootID() {
		return nil, errNotThere
	}
	r, err := watch(m.PID, nil)
	if err != nil {
		return nil, err
	}
	// The number may have been given to another process before it was held.
	if start, err := startOf(m.PID); err != nil || start != m.Start || !r.running() {
		r.close()
		return nil, errNotThere
	}
	return r, nil
}
