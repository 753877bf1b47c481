package instance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// CallTimeout bounds each request to the store.
const CallTimeout = 5 * time.Second

// Host is what all instances of a process share: its log, and the store that they stand on.
type Host struct {
	Log   *slog.Logger
	Level *slog.LevelVar // of Log
	// StoreURL is where the store is; Connections are used at once, 0 is as few as it takes.
	StoreURL    string
	Connections int
	Version     string // of this program
}

// Open opens the store once, and makes it if it can.
func (h *Host) Open(ctx context.Context) (store.Store, error) { return h.open(ctx, false) }

// OpenExisting opens the store once. A file that is missing is an error.
func (h *Host) OpenExisting(ctx context.Context) (store.Store, error) { return h.open(ctx, true) }

func (h *Host) open(ctx context.Context, mustExist bool) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*CallTimeout)
	defer cancel()
	return open.Open(ctx, h.StoreURL, open.Options{Connections: h.Connections, MustExist: mustExist, Logger: h.Log})
}

// OpenPatiently opens the store, and if it cannot be reached yet continues trying if patient.
func (h *Host) OpenPatiently(ctx context.Context, patient bool) (store.Store, error) {
	return h.openPatiently(ctx, patient, h.Open)
}

// AwaitExisting opens the store as soon as it can be reached. A file that is missing is waited for, and not made.
func (h *Host) AwaitExisting(ctx context.Context) (store.Store, error) {
	return h.openPatiently(ctx, true, h.OpenExisting)
}

func (h *Host) openPatiently(ctx context.Context, patient bool, open func(context.Context) (store.Store, error)) (store.Store, error) {
	for retry := (backoff.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}); ; {
		st, err := open(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && retry.Failures() > 0 {
			h.Log.Info(lease.StoreAnswers)
		}
		if err == nil || !patient || !Unreachable(err) {
			return st, err
		}
		h.Log.Warn("the store cannot be reached; trying again", "err", err)
		if !retry.Wait(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// Unreachable reports whether an error may be over soon: the store did not answer, or not in time.
func Unreachable(err error) bool {
	return !errors.Is(err, lease.ErrInvalid) && !errors.Is(err, lease.ErrUnsafeTiming) &&
		(errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown) || errors.Is(err, context.DeadlineExceeded))
}

// Identity is how an instance shows itself, and how its session is kept.
type Identity struct {
	Name, Address string
	Timing        lease.Timing
}

// WithKeeper runs f with a keeper of a new instance, and ends its session when f
// has returned. f's context also ends if the keeper cannot continue.
func (h *Host) WithKeeper(ctx context.Context, st store.Store, who Identity, do func(context.Context, *lease.Keeper) error) error {
	// When the reader of an output (tee, journald) has gone, a line that is written to it must not end what this process holds:
	// as the signal is caught, the write only fails. An ignored signal would be inherited by programs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance(who.Name, who.Address), Timing: who.Timing, Logger: h.Log,
	})
	if err != nil {
		return err
	}
	doCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keepCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := k.Run(keepCtx); err != nil {
			cancel(err)
		}
	}()
	defer func() { stop(); <-kept }()
	return do(doCtx, k)
}

// Stopped is the exit of a command that was told to stop: that of the
// program if it had one, and success otherwise.
func Stopped(err error) error {
	var child Exit
	if errors.As(err, &child) {
		return child
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Hostname is the default name of an instance.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unnamed"
	}
	return name
}
