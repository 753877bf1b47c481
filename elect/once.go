package elect

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// OnceSpace is the space of the leases under which jobs run once per period.
const OnceSpace = "once"

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
	held, err := cfg.Keeper.Acquire(ctx, lease.AcquireRequest{
		Leases: []lease.ID{{Space: OnceSpace, Key: cfg.Job}}, Every: cfg.Every,
		Margin: cfg.campaign().stopGrace(),
	})
	if err != nil {
		return err
	}
	return newCampaign(cfg.campaign()).runWork(ctx, held, job)
}
