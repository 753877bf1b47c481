package demo

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// patience is how long the demonstration waits for what takes seconds.
const patience = 30 * time.Second

// errBroken: the demonstration has shown that something promised does not hold.
var errBroken = errors.New("not everything that was promised was kept; see above")

// ready waits until the instances run, what happened before is over for these acts, and all that they offer can be done.
func (d *demo) ready(ctx context.Context, acts ...act) error {
	return d.await(ctx, "all processes are up and nothing is under way; is the machine very busy?", func() bool {
		return d.fleet.isUp(ctx) && !slices.ContainsFunc(acts, func(a act) bool {
			return !a.settled(ctx) || slices.ContainsFunc(a.offers(), func(o offer) bool { return o.Off != "" })
		})
	})
}

// runAuto takes the offers itself, one after the other, and prints all outcomes as a table.
func (d *demo) runAuto(ctx context.Context) error {
	err := d.pressAll(ctx)
	var all []result
	for _, a := range d.acts {
		all = append(all, d.outcomes(a)...)
	}
	if len(all) > 0 {
		d.voice.summary(all)
	}
	if slices.ContainsFunc(all, func(r result) bool { return !r.Kept }) {
		err = cmp.Or(err, errBroken)
	}
	return err
}

func (d *demo) pressAll(ctx context.Context) error {
	for _, a := range d.acts {
		for i, o := range a.offers() {
			if o.ID == freezeID {
				continue // frozen in the middle of a transaction it keeps SQLite's lock from everyone, and no promise holds
			}
			if err := d.press(ctx, a, i); err != nil {
				return err
			}
		}
		d.voice.printf("")
	}
	return d.ready(ctx, d.acts...) // what ends when a process is back has ended, too
}

// press does what an act offers, and waits for its outcome.
func (d *demo) press(ctx context.Context, a act, i int) error {
	if err := d.ready(ctx, a); err != nil {
		return err
	}
	o, before := a.offers()[i], len(d.outcomes(a))
	// On a machine so busy that the outcome is late, who was killed must not be back before.
	d.held.Store(true)
	defer d.held.Store(false)
	if err := d.do(ctx, a, o); err != nil {
		return err
	}
	return d.await(ctx, "the outcome of: "+o.Title, func() bool { return len(d.outcomes(a)) > before })
}

// outcomes are those of an act so far.
func (d *demo) outcomes(a act) []result {
	_, _, out := d.record.read(a.part())
	return out
}
