package demo

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
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/store"
)

// open opens the page and the store, in this order: it can be looked at meanwhile.
func (d *demo) open(ctx context.Context) error {
	if err := d.findAddresses(); err != nil {
		return err
	}
	page, err := d.openPage()
	if err != nil {
		return err
	}
	defer page.Close(ctx)
	d.url = "http://" + page.Addr()
	if d.page, err = client.New(client.Config{URL: d.url}); err != nil {
		return err
	}
	d.voice.printf("Understudy: three instances, %s, on %s.\nLook at %s\n", strings.Join(names[:], ", "), termtext.URL(d.cfg.StoreURL), d.voice.paint(bold, d.url))
	st, err := page.Open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := unused(ctx, st); err != nil {
		return err
	}
	_, d.works = st.(store.Queues)
	if err := d.makeActs(); err != nil {
		return err
	}
	return d.runAll(ctx, func(ctx context.Context) error { return page.Serve(ctx, st, d.handler()) })
}

// runAll runs the page, the acts and their processes until ctx ends or a part fails.
func (d *demo) runAll(ctx context.Context, page func(context.Context) error) (err error) {
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
		parts.Go(func() { p.keepRunning(ctx, d) })
	}
	for _, act := range d.acts {
		parts.Go(func() { act.run(ctx) })
	}
	if d.cfg.Auto {
		err = d.runAuto(ctx)
	} else {
		_ = d.ready(ctx, d.acts...) // the welcome can be late, and need not be whole
		d.welcome(ctx)
		<-ctx.Done()
	}
	d.voice.printf("\nstopping everything …")
	failed := context.Cause(ctx)
	cancel(nil)
	parts.Wait()
	switch {
	case stopped() == nil:
	case d.cfg.Auto:
		return errors.New("stopped before the end")
	default:
		return nil
	}
	return cmp.Or(failed, err)
}

// openPage listens for the page, elsewhere if its address is taken.
func (d *demo) openPage() (Page, error) {
	settings, err := d.pageSettings(d.cfg.Listen)
	if err != nil {
		return nil, err
	}
	p, err := d.cfg.OpenPage(settings, d.cfg.StoreURL, quietLog())
	if errors.Is(err, syscall.EADDRINUSE) {
		d.voice.printf("%s is taken; the page is elsewhere.", d.cfg.Listen)
		if settings, err = d.pageSettings("127.0.0.1:0"); err == nil {
			p, err = d.cfg.OpenPage(settings, d.cfg.StoreURL, quietLog())
		}
	}
	return p, err
}

// makeActs makes the acts, and the processes in them.
func (d *demo) makeActs() error {
	fleet, err := newFleet(d)
	if err != nil {
		return err
	}
	d.fleet, d.procs = fleet, fleet.procs
	d.acts = []act{newRoleAct(d)}
	if d.works {
		monitor := newMonitorAct(d)
		d.acts = append(d.acts, newQueueAct(d), monitor)
		d.procs = append(d.procs, monitor.sensor)
	} else {
		d.voice.printf("The acts with a queue and the monitor are left out: this store keeps none. SQLite and PostgreSQL do.")
	}
	d.acts = append(d.acts, newCacheAct(d))
	if d.cfg.NoShard {
		return nil
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		d.voice.printf("The act with a shard is left out: there is no redis-server. Install it to see that, too (apt install redis-server, brew install redis).")
		return nil
	}
	shard, err := newShardAct(d, program)
	if err != nil {
		return err
	}
	d.acts, d.procs = append(d.acts, shard), append(d.procs, shard.procs...)
	return nil
}
