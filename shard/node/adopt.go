package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/shard"
)

// Adopt watches the process of a node that someone else started, from the id that the
// node tells of itself, and the address where it was reached; with 0, the one that listens there. It cannot be started by it. The
// error wraps [errors.ErrUnsupported] where that is not possible.
func Adopt(pid int, address string) (shard.Process, error) {
	if pid == 0 {
		var err error
		if pid, err = listener(address); err != nil {
			return nil, err
		}
	}
	if pid <= 1 {
		return nil, fmt.Errorf("node: process %d is not a node of this host", pid)
	}
	r, err := watch(pid, nil)
	if err != nil {
		return nil, err
	}
	// Asked once the process is held, so that it is the same one.
	if err := listens(pid, address); err != nil {
		r.close()
		return nil, err
	}
	return adopted{r}, nil
}

// adopted implements [shard.Process] for a process that someone else started.
type adopted struct{ r *run }

func (a adopted) Start(context.Context) error {
	return fmt.Errorf("node: process %d was started by somebody else: %w", a.r.pid, errors.ErrUnsupported)
}

func (a adopted) Running() bool         { return a.r.running() }
func (a adopted) Done() <-chan struct{} { return a.r.done }
func (a adopted) Kill() error           { return a.r.kill() }
func (a adopted) PID() int              { return a.r.PID() }

// Close ends the watching.
func (a adopted) Close() error {
	a.r.close()
	return nil
}
