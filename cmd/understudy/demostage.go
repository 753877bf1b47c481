package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// open opens the page and the store, in this order: it can be looked at meanwhile.
func (d *demo) open(ctx context.Context) error {
	if err := d.places(); err != nil {
		return err
	}
	cfg, err := d.pageConfig()
	if err != nil {
		return err
	}
	page, err := d.openPage(cfg)
	if err != nil {
		return err
	}
	defer page.close(ctx)
	d.url = "http://" + page.addr
	if d.page, err = client.New(client.Config{URL: d.url}); err != nil {
		return err
	}
	d.voice.say("Understudy: three instances, %s, on %s.\nLook at %s\n", strings.Join(demoNames[:], ", "), redact(d.app.storeURL), d.voice.paint(demoBold, d.url))
	quiet := *d.app
	quiet.log, quiet.connections = quietLog(), cfg.connections()
	st, err := quiet.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := demoOnly(ctx, st); err != nil {
		return err
	}
	_, d.works = st.(store.Queues)
	if err := d.cast(); err != nil {
		return err
	}
	return d.stage(ctx, func(ctx context.Context) error {
		return quiet.withKeeper(ctx, st, cfg.instance(), func(ctx context.Context, k *lease.Keeper) error {
			return quiet.serveOn(ctx, cfg, page, st, k, nil)
		})
	})
}

// stage runs the page, the acts and their processes until ctx ends or a part fails.
func (d *demo) stage(ctx context.Context, page func(context.Context) error) (err error) {
	stopped := ctx.Err // by whoever runs it
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.world.start()
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := page(ctx); ctx.Err() == nil {
			cancel(fmt.Errorf("the page: %w", err))
		}
	})
	for _, p := range d.procs {
		parts.Go(func() { p.keep(ctx, d) })
	}
	for _, act := range d.acts {
		parts.Go(func() { act.run(ctx) })
	}
	if d.flags.auto {
		err = d.playAll(ctx)
	} else {
		_ = d.ready(ctx, d.acts...) // the welcome can be late, and need not be whole
		d.welcome(ctx)
		<-ctx.Done()
	}
	d.voice.say("\nstopping everything …")
	failed := context.Cause(ctx)
	cancel(nil)
	parts.Wait()
	switch {
	case stopped() == nil:
	case d.flags.auto:
		return errors.New("stopped before the end")
	default:
		return nil
	}
	return cmp.Or(failed, err)
}

// openPage listens for the page, elsewhere if its address is taken.
func (d *demo) openPage(cfg *serveConfig) (*door, error) {
	l, err := listen(cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		d.voice.say("%s is taken; the page is elsewhere.", cfg.Listen)
		cfg.Listen = "127.0.0.1:0"
		l, err = listen(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; another address can be chosen with --listen", err)
	}
	return openDoor(l, quietLog(), "the store has not been reached yet"), nil
}

// cast makes the acts, and the processes in them.
func (d *demo) cast() error {
	fleet, err := newDemoFleet(d)
	if err != nil {
		return err
	}
	d.fleet, d.procs = fleet, fleet.procs
	d.acts = []demoAct{newDemoRole(d)}
	if d.works {
		monitor := newDemoMonitor(d)
		d.acts = append(d.acts, newDemoQueue(d), monitor)
		d.procs = append(d.procs, monitor.sensor)
	} else {
		d.voice.say("The acts with a queue and the monitor are left out: this store keeps none. SQLite and PostgreSQL do.")
	}
	d.acts = append(d.acts, newDemoCache(d))
	if d.flags.noShard {
		return nil
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		d.voice.say("The act with a shard is left out: there is no redis-server. Install it to see that, too (apt install redis-server, brew install redis).")
		return nil
	}
	shard, err := newDemoShard(d, program)
	if err != nil {
		return err
	}
	d.acts, d.procs = append(d.acts, shard), append(d.procs, shard.procs...)
	return nil
}
