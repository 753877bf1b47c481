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

// Opening is how a store is opened.
type Opening struct {
	Patient   bool // a store that cannot be reached yet is waited for
	MustExist bool // a file that is missing is not made: it is an error, or waited for
}

// Open opens the store.
func (h *Host) Open(ctx context.Context, how Opening) (store.Store, error) {
	for retry := (backoff.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}); ; {
		call, cancel := context.WithTimeout(ctx, 2*CallTimeout)
		st, err := open.Open(call, h.StoreURL, open.Options{Connections: h.Connections, MustExist: how.MustExist, Logger: h.Log})
		cancel()
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && retry.Failures() > 0 {
			h.Log.Info(lease.StoreAnswers)
		}
		if err == nil || !how.Patient || !Unreachable(err) {
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

// Run runs do as a new instance on the store, from when it is open, and closes it when the instance's session has ended.
func (h *Host) Run(ctx context.Context, how Opening, who Identity, do func(context.Context, store.Store, *lease.Keeper) error) error {
	st, err := h.Open(ctx, how)
	if err != nil {
		return Stopped(err)
	}
	defer st.Close()
	err = h.WithKeeper(ctx, st, who, func(ctx context.Context, k *lease.Keeper) error { return do(ctx, st, k) })
	if ctx.Err() != nil {
		return Stopped(err)
	}
	return err
}

// WithKeeper runs do with a keeper of a new instance, and ends its session when do
// has returned. do's context also ends if the keeper cannot continue.
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
