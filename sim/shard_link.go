package sim

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// shardLink is a host's way to the store: calls are slow, get lost, or are carried out and
// their answer is lost.
type shardLink struct{ h *shardHost }

var (
	_ shard.Registry = shardLink{}
	_ shard.Commands = shardLink{}
)

// pass sends one short call. What is on its way is carried out even if nobody waits for it any more.
func pass[T any](ctx context.Context, l shardLink, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var zero T
	w := l.h.w
	line, _ := l.h.lineNow()
	switch {
	case ctx.Err() != nil:
		return zero, errors.Join(ctx.Err(), lease.ErrUnavailable)
	case line == lineRefused:
		return zero, errors.Join(errors.New("connection refused"), lease.ErrUnavailable)
	}
	got := make(chan answer, 1)
	there, back, lost, mute := l.h.dice.upTo(w.setup.Delay), l.h.dice.upTo(w.setup.Delay), l.h.dice.hit(w.setup.Lose), l.h.dice.hit(w.setup.Mute)
	if !w.faulty() {
		there, back, lost, mute = time.Millisecond, time.Millisecond, false, false
	}
	w.flying.Go(func() {
		pause(there)
		if line, _ := l.h.lineNow(); line == lineMute || lost {
			return
		}
		w.store.wait()
		v, err := call(context.Background())
		pause(back)
		if line, _ := l.h.lineNow(); line == lineMute || mute {
			return
		}
		got <- answer{v, err}
	})
	select {
	case a := <-got:
		return a.v, a.err
	case <-ctx.Done():
		return zero, errors.Join(context.Cause(ctx), lease.ErrUnknown)
	}
}

func passErr(ctx context.Context, l shardLink, call func(context.Context) error) error {
	_, err := pass(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// linger makes one long call, which breaks with the line.
func linger[T any](ctx context.Context, l shardLink, call func(context.Context) (T, error)) (T, error) {
	var zero T
	line, moved := l.h.lineNow()
	switch line {
	case lineRefused:
		return zero, errors.Join(errors.New("connection refused"), lease.ErrUnavailable)
	case lineMute:
		select {
		case <-moved:
		case <-ctx.Done():
		}
		return zero, errors.Join(errors.New("connection broke"), lease.ErrUnknown)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	l.h.w.flying.Go(func() {
		select {
		case <-moved:
			cancel()
		case <-inner.Done():
		}
	})
	v, err := call(inner)
	if ctx.Err() == nil && inner.Err() != nil {
		return zero, errors.Join(errors.New("connection broke"), lease.ErrUnknown)
	}
	return v, err
}

func (l shardLink) registry() shard.Registry { return l.h.w.base.Load().Registry() }
func (l shardLink) commands() shard.Commands { return l.h.w.base.Load().Commands() }

func (l shardLink) Report(ctx context.Context, r shard.Record, urgent bool) (shard.View, error) {
	return l.show(pass(ctx, l, func(ctx context.Context) (shard.View, error) {
		v, err := l.registry().Report(ctx, r, urgent)
		if err == nil {
			l.h.w.judge.reported(r)
		}
		return v, err
	}))
}

func (l shardLink) ReadView(ctx context.Context, name string) (shard.View, error) {
	return l.show(pass(ctx, l, func(ctx context.Context) (shard.View, error) { return l.registry().ReadView(ctx, name) }))
}

// show lets the judge see what the host is shown.
func (l shardLink) show(v shard.View, err error) (shard.View, error) {
	if err == nil {
		l.h.w.judge.show(l.h, v)
	}
	return v, err
}

func (l shardLink) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	known := l.h.w.judge.knows(l.h)
	rev, err := pass(ctx, l, func(ctx context.Context) (int64, error) { return l.h.w.judge.decide(ctx, d, known) })
	l.h.perish(d, err)
	return rev, err
}

func (l shardLink) Lock(ctx context.Context, k shard.Lock) error {
	return passErr(ctx, l, func(ctx context.Context) error { return l.registry().Lock(ctx, k) })
}

func (l shardLink) Unlock(ctx context.Context, k shard.Lock) error {
	return passErr(ctx, l, func(ctx context.Context) error { return l.registry().Unlock(ctx, k) })
}

func (l shardLink) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	return pass(ctx, l, func(ctx context.Context) ([]shard.View, error) { return l.registry().List(ctx, after, limit) })
}

func (l shardLink) Watch(ctx context.Context, name string, wake func(string)) error {
	_, err := linger(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, l.registry().Watch(ctx, name, wake) })
	return err
}

func (l shardLink) Send(ctx context.Context, c ...shard.Command) error {
	return passErr(ctx, l, func(ctx context.Context) error { return l.commands().Send(ctx, c...) })
}

// Next loses commands now and then, and keeps some back.
func (l shardLink) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	c, err := linger(ctx, l, func(ctx context.Context) (shard.Command, error) { return l.commands().Next(ctx, node, wait) })
	if w := l.h.w; err == nil && w.faulty() {
		switch {
		case w.dice.hit(w.setup.Lose):
			return shard.Command{}, lease.ErrUnknown
		case w.dice.hit(0.03):
			pause(w.dice.upTo(w.setup.Timing.Timeout))
		}
	}
	return c, err
}

// shardLeases are the leases of the store, over the same way.
type shardLeases struct{ l shardLink }

var _ lease.Store = shardLeases{}

func (s shardLeases) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	return pass(ctx, s.l, func(ctx context.Context) (lease.Renewal, error) { return s.l.h.w.base.Load().StartSession(ctx, n) })
}

func (s shardLeases) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return pass(ctx, s.l, func(ctx context.Context) (lease.Renewal, error) { return s.l.h.w.base.Load().RenewSession(ctx, id) })
}

func (s shardLeases) EndSession(ctx context.Context, id, reason string) error {
	return passErr(ctx, s.l, func(ctx context.Context) error { return s.l.h.w.base.Load().EndSession(ctx, id, reason) })
}

func (s shardLeases) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	return pass(ctx, s.l, func(ctx context.Context) (lease.Lease, error) { return s.l.h.w.base.Load().Acquire(ctx, c) })
}

func (s shardLeases) Release(ctx context.Context, b lease.ReleaseRequest) error {
	return passErr(ctx, s.l, func(ctx context.Context) error { return s.l.h.w.base.Load().Release(ctx, b) })
}

func (s shardLeases) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	return pass(ctx, s.l, func(ctx context.Context) (lease.Lease, error) { return s.l.h.w.base.Load().Get(ctx, id) })
}

func (s shardLeases) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	return pass(ctx, s.l, func(ctx context.Context) ([]lease.Lease, error) {
		return s.l.h.w.base.Load().List(ctx, space, after, limit)
	})
}

func (s shardLeases) Watch(ctx context.Context, wake func(lease.Change)) error {
	_, err := linger(ctx, s.l, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.l.h.w.base.Load().Watch(ctx, wake) })
	return err
}
