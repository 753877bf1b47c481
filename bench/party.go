package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// understudyParty is an instance of Understudy with a store of its own.
type understudyParty struct {
	store  store.Store
	keeper *lease.Keeper
	stop   context.CancelFunc
	done   chan struct{}
}

func newParty(ctx context.Context, w *worker, name string) (*understudyParty, error) {
	st, err := open.Open(ctx, w.opt.url, open.Options{})
	if err != nil {
		return nil, err
	}
	seen := observed{Store: st, w: w}
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: seen, Roster: seen, Instance: lease.NewInstance(name, ""), Timing: w.opt.timing,
	})
	if err != nil {
		return nil, err
	}
	p := &understudyParty{store: st, keeper: k, done: make(chan struct{})}
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

// observed counts the calls to a store, and says those that are asked for.
type observed struct {
	store.Store
	w *worker
}

func (o observed) count(method string, id lease.ID) {
	o.w.calls.add(method)
	if id.Key != "" && id.Key == o.w.opt.watched {
		o.w.say(saidCall, o.w.clock.Now(), method)
	}
}

func (o observed) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	o.count("start", lease.ID{})
	accepted := o.w.beat()
	r, err := o.Store.StartSession(ctx, s)
	if err == nil {
		accepted()
	}
	return r, err
}

func (o observed) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	o.count("renew", lease.ID{})
	accepted := o.w.beat()
	r, err := o.Store.RenewSession(ctx, id)
	if err == nil {
		accepted()
	}
	return r, err
}

func (o observed) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	o.count("acquire", c.Lease)
	return o.Store.Acquire(ctx, c)
}

func (o observed) Release(ctx context.Context, h lease.ReleaseRequest) error {
	o.count("release", h.Lease)
	return o.Store.Release(ctx, h)
}

func (o observed) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	o.count("get", id)
	return o.Store.Get(ctx, id)
}

func (o observed) Join(ctx context.Context, id lease.ID, session string) error {
	o.count("join", id)
	return o.Store.Join(ctx, id, session)
}

func (o observed) Leave(ctx context.Context, id lease.ID, session string) error {
	o.count("leave", id)
	return o.Store.Leave(ctx, id, session)
}

// counts is how often each method was called.
type counts struct {
	mu sync.Mutex
	n  map[string]int64
}

func (c *counts) add(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[method]++
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words []string
	for method, n := range c.n {
		words = append(words, fmt.Sprintf("%s=%d", method, n))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
