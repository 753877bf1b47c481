package demo

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// patience is how long the demonstration waits for what takes seconds.
const patience = 30 * time.Second

// errBroken: the demonstration has shown that something promised does not hold.
var errBroken = errors.New("not everything that was promised was kept; see above")

// ready waits until the instances run, and what happened before is over for these acts.
func (d *demo) ready(ctx context.Context, acts ...act) error {
	return d.await(ctx, "all processes are up and nothing is under way; is the machine very busy?", func() bool {
		if !d.fleet.isUp(ctx) {
			return false
		}
		for _, act := range acts {
			if !act.settled(ctx) {
				return false
			}
		}
		return true
	})
}

// playAll plays act after act, and prints the table.
func (d *demo) playAll(ctx context.Context) error {
	var all []outcome
	err := func() error {
		for _, act := range d.acts {
			if err := d.ready(ctx, act); err != nil {
				return err
			}
			list, err := act.play(ctx)
			all = append(all, list...)
			if err != nil {
				return err
			}
			d.voice.printf("")
		}
		return nil
	}()
	if len(all) > 0 {
		d.voice.summary(all)
	}
	for _, o := range all {
		if !o.kept() {
			err = cmp.Or(err, errBroken)
		}
	}
	return err
}
