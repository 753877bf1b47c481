//go:build !linux && !darwin && !freebsd && !openbsd

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Process is a program that was started. There is none on this system.
type Process struct{}

// Start fails with [errors.ErrUnsupported].
func Start(context.Context, Config) (*Process, error) {
	return nil, fmt.Errorf("guard: a program cannot be guarded on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Watch fails.
func Watch([]string) int {
	fmt.Fprintf(os.Stderr, "guard: a program cannot be guarded on %s\n", runtime.GOOS)
	return 2
}

// Forwarded is empty on this system.
func Forwarded() []os.Signal { return nil }

// Pid is 0.
func (*Process) Pid() int { return 0 }

// Extend does nothing.
func (*Process) Extend(time.Duration) {}

// Signal fails.
func (*Process) Signal(os.Signal) error { return errors.ErrUnsupported }

// Stop does nothing.
func (*Process) Stop() {}

// Done is nil.
func (*Process) Done() <-chan struct{} { return nil }

// Wait fails.
func (*Process) Wait() (Exit, error) { return Exit{}, errors.ErrUnsupported }
