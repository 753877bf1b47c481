package elect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// OnceSpace is the space of the leases under which jobs run once per period.
const OnceSpace = "once"

// ErrNotDue: another instance runs the job, or has started it in this period. See [OnceConfig].NoWait.
var ErrNotDue = errors.New("elect: the job is not due")

// maxPeriod is the longest period of a job.
const maxPeriod = 366 * 24 * time.Hour

// OnceConfig describes a job that runs on one instance per period.
type OnceConfig struct {
	// Keeper of this instance's session; its Run must be running. Required.
	Keeper *lease.Keeper
	// Job to run once per period, on any instance. Required; named as a role is.
	Job string
	// Every is the period, from start to start, by the store's clock. At least
	// as long as the keeper's timeout, at most 366 days.
	Every time.Duration
	// NoWait: do not wait for the next period, but return [ErrNotDue]: for a scheduler of one's own that says when. A
	// run that is still on is waited for, up to 2·T, because its instance may have died.
	NoWait bool
	// StopGrace, Overrun and Logger as in [Config].
	StopGrace time.Duration
	Overrun   func()
	Logger    *slog.Logger
}

func (c OnceConfig) campaign() Config {
	return Config{Keeper: c.Keeper, Role: c.Job, StopGrace: c.StopGrace, Overrun: c.Overrun, Logger: c.Logger}
}

// Validate checks the configuration; errors wrap lease.ErrInvalid or
// lease.ErrUnsafeTiming.
func (c OnceConfig) Validate() error {
	if err := c.campaign().Validate(); err != nil {
		return err
	}
	if t := c.Keeper.Timing().Timeout; c.Every < t || c.Every > maxPeriod {
		return fmt.Errorf("%w: a period of %v; it can be %v (the timeout) to 8784h", lease.ErrInvalid, c.Every, t)
	}
	return nil
}

// Once waits until the job is due and no other instance has started it in this
// period, runs it, and returns what it returned. A run that is lost (its
// instance died or was cut off) is not repeated before the next period; one that
// takes longer than the period delays the next. Call it again for the next
// period.
func Once(ctx context.Context, cfg OnceConfig, job Work) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	want := lease.AcquireRequest{
		Leases: []lease.ID{{Space: OnceSpace, Key: cfg.Job}}, Every: cfg.Every,
		Margin: cfg.campaign().stopGrace(),
	}
	waiting, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	if cfg.NoWait {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(waiting, 2*cfg.Keeper.Timing().Timeout,
			fmt.Errorf("%w: %q: another instance still runs it, or the store does not answer", ErrNotDue, cfg.Job))
		defer cancel()
		want.Shown = func(l lease.Lease) {
			if err := cfg.notDue(l); err != nil {
				refuse(err)
			}
		}
	}
	held, err := cfg.Keeper.Acquire(waiting, want)
	if err != nil {
		return err
	}
	return newCampaign(cfg.campaign()).runWork(ctx, held, job)
}

// notDue is why a job whose lease is like this does not start now; nil if it may.
func (c OnceConfig) notDue(l lease.Lease) error {
	if age := l.TermAge(); l.Term > 0 && age < c.Every && l.Holder.ID != c.Keeper.Instance().ID {
		return fmt.Errorf("%w: %q was started %v ago, and is started every %v at most", ErrNotDue, c.Job, age.Round(time.Millisecond), c.Every)
	}
	return nil
}
