package job

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// compareEvery is how often more than maxGets offers are compared with the store: of what it has not, no list of what is due tells.
const compareEvery = time.Minute

// defineAll stores the definitions that differ from what the store has. Of many, which is read at once: each write would hold up
// the instances that run jobs already.
func (r *runner) defineAll(ctx context.Context) error {
	var stored map[string]Job
	if len(r.Offers) > maxGets {
		stored, _ = r.readOffered(ctx) // what cannot be read is written
	}
	for _, o := range r.Offers {
		j := stored[o.Name]
		if c, err := Define(o.Name, o.Definition)(j, j.Created); err == nil && c.Unchanged {
			r.log.Info("job offered", "job", o.Name, "schedule", j.Definition.Schedule, "next", j.Next)
			continue
		}
		if err := r.define(ctx, o); err != nil {
			return err
		}
	}
	r.compared = r.Keeper.Clock().Now()
	return nil
}

// addMissing adds the offers again, now and then, that were forgotten, or that the store has lost. A definition that differs is
// that of an instance which was started later.
func (r *runner) addMissing(ctx context.Context) error {
	if r.Keeper.Clock().Now()-r.compared < compareEvery {
		return nil
	}
	stored, err := r.readOffered(ctx)
	if err != nil {
		return err
	}
	for _, o := range r.Offers {
		if j := stored[o.Name]; j.Version == 0 || j.ForgottenBy != "" {
			err = errors.Join(err, r.define(ctx, o))
		}
	}
	r.compared = r.Keeper.Clock().Now()
	return err
}

// readOffered reads all jobs, and returns those that are offered.
func (r *runner) readOffered(ctx context.Context) (map[string]Job, error) {
	stored := map[string]Job{}
	err := readPages(ctx, r.Store, r.Keeper.Timing().CallTimeout(), Query{}, func(page []Job, _ time.Time) {
		for _, j := range page {
			if _, offered := r.offers[j.Name]; offered {
				stored[j.Name] = j
			}
		}
	})
	return stored, err
}

// define stores a definition, trying until the store answers. A date that has passed is no reason to end what else is offered: the
// job ran, and was forgotten or lost with its store.
func (r *runner) define(ctx context.Context, o Offer) error {
	if r.past[o.Name] {
		return nil
	}
	level := slog.LevelWarn
	for retry := r.retry(); ; {
		j, err := r.change(ctx, o.Name, Define(o.Name, o.Definition))
		switch {
		case err == nil:
			r.log.Info("job offered", "job", o.Name, "schedule", j.Definition.Schedule, "next", j.Next)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errPast):
			r.past[o.Name] = true
			r.log.Warn("the job is not offered: its date has passed", "job", o.Name, "schedule", o.Definition.Schedule)
			return nil
		case errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrDamaged), errors.Is(err, lease.ErrTwoHosts): // no retry helps
			return err
		}
		r.log.Log(ctx, level, "the job cannot be stored; trying again", "job", o.Name, "err", err)
		level = slog.LevelDebug // once per outage
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}
