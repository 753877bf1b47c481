package main

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// understudyParty is an instance of Understudy.
type understudyParty struct {
	store  store.Store // of its own
	keeper *lease.Keeper
	stop   context.CancelFunc
	done   chan struct{}
}

func newParty(ctx context.Context, w *worker, name string) (*understudyParty, error) {
	p := &understudyParty{done: make(chan struct{})}
	st, err := open.Open(ctx, w.opt.URL, open.Options{})
	if err != nil {
		return nil, err
	}
	p.store = st
	seen := observed{Store: st, w: w}
	var kept lease.Store = seen
	if few, ok := st.(lease.FewWatcher); ok {
		kept = observedFew{seen, few}
	}
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: kept, Roster: seen, Instance: lease.NewInstance(name, ""), Timing: w.opt.Timing,
	})
	if err != nil {
		return nil, err
	}
	p.keeper = k
	var running context.Context
	running, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { defer close(p.done); _ = k.Run(running) }()
	if _, err := k.Session(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *understudyParty) campaign(ctx context.Context, role string, work func(context.Context)) error {
	cfg := elect.Config{Keeper: p.keeper, Role: role, StopGrace: stopGrace}
	err := elect.Campaign(ctx, cfg, func(ctx context.Context, _ elect.Term) error {
		work(ctx)
		return nil
	})
	if err == nil && ctx.Err() == nil {
		err = elect.LetOthers(ctx, cfg)
	}
	return err
}

// stopGrace is what the work here needs at most; it stops at once.
const stopGrace = 100 * time.Millisecond

func (p *understudyParty) close() {
	p.stop()
	<-p.done
	_ = p.store.Close()
}

// observed says when the session of a party is renewed, and counts what else it asks for.
type observed struct {
	store.Store
	w *worker
}

type observedFew struct {
	observed
	lease.FewWatcher
}

func (o observed) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	o.w.attempts.Add(1)
	return o.Store.Acquire(ctx, e)
}

func (o observed) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	o.w.reads.Add(1)
	return o.Store.Join(ctx, id, session)
}

func (o observed) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	o.w.reads.Add(1)
	return o.Store.Get(ctx, id)
}

func (o observed) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	accepted := o.w.beat()
	r, err := o.Store.StartSession(ctx, s)
	if err == nil {
		accepted()
	}
	return r, err
}

func (o observed) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	accepted := o.w.beat()
	r, err := o.Store.RenewSession(ctx, id)
	if err == nil {
		accepted()
	}
	return r, err
}
