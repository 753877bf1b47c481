package elect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/understudy-ha/understudy/lease"
)

func releaseHeld(ctx context.Context, log *slog.Logger, held *lease.HeldLease, successor, reason string) (released bool) {
	err := held.Release(ctx, successor, reason)
	if err != nil {
		log.Warn("the role could not be released; it is free when this session ends", "err", err)
	}
	return err == nil
}

// reasonFor is what the history says about the end of a term.
func reasonFor(cause error, stopped bool, err error) string {
	switch {
	case !stopped && err != nil:
		return "work failed: " + err.Error()
	case !stopped:
		return "work done"
	case errors.Is(cause, lease.ErrResign):
		return "resigned"
	case errors.Is(cause, lease.ErrLost):
		return "lost"
	case errors.Is(cause, ErrMoved):
		return "moved"
	default:
		return "stopped"
	}
}

// errorOfStopped is what a campaign returns whose work was stopped with the cause, and then returned err.
func (c *campaign) errorOfStopped(err, cause error) error {
	if why := c.Keeper.Err(); why != nil && errors.Is(cause, lease.ErrLost) { // the loss only follows from it
		cause = why
		if errors.Is(err, lease.ErrLost) {
			err = nil
		}
	}
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return cause
	case errors.Is(err, cause): // it says so already
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
