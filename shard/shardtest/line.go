package shardtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Line is the way of one host to the store, which can fail.
type Line struct {
	Registry shard.Registry
	Commands shard.Commands
	Leases   lease.Store

	mu      sync.Mutex
	fail    Failure
	changed chan struct{}
	before  func(call string) error
}

// Failure of a [Line].
type Failure int

// Failures.
const (
	Well    Failure = iota
	Refused         // calls fail at once
	Swallow         // calls get no answer
)

var (
	_ shard.Registry = lineRegistry{}
	_ shard.Commands = lineCommands{}
	_ lease.Store    = lineLeases{}
)

// Set makes the line fail, or work again. Calls under way are broken off.
func (l *Line) Set(f Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
}

// Ports are the store's, through the line.
func (l *Line) Ports() (shard.Registry, shard.Commands, lease.Store) {
	l.Set(Well)
	return lineRegistry{l}, lineCommands{l}, lineLeases{l}
}

// Intercept has before called ahead of each call, with its name; its error fails the call. nil is nothing.
func (l *Line) Intercept(before func(call string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = before
}

func (l *Line) pass(ctx context.Context, call string) (context.Context, context.CancelFunc, error) {
	l.mu.Lock()
	fail, changed, before := l.fail, l.changed, l.before
	l.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			return nil, nil, err
		}
	}
	switch fail {
	case Refused:
		return nil, nil, errors.Join(errors.New("connection refused"), lease.ErrUnavailable)
	case Swallow:
		<-ctx.Done()
		return nil, nil, errors.Join(ctx.Err(), lease.ErrUnknown)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel, nil
}

func through[T any](ctx context.Context, l *Line, call string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel, err := l.pass(ctx, call)
	if err != nil {
		var zero T
		return zero, err
	}
	defer cancel()
	return f(ctx)
}

func throughErr(ctx context.Context, l *Line, call string, f func(context.Context) error) error {
	_, err := through(ctx, l, call, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

type lineRegistry struct{ l *Line }

func (r lineRegistry) Report(ctx context.Context, rec shard.Record, urgent bool) (shard.View, error) {
	return through(ctx, r.l, "report", func(ctx context.Context) (shard.View, error) { return r.l.Registry.Report(ctx, rec, urgent) })
}

func (r lineRegistry) ReadView(ctx context.Context, name string) (shard.View, error) {
	return through(ctx, r.l, "look", func(ctx context.Context) (shard.View, error) { return r.l.Registry.ReadView(ctx, name) })
}

func (r lineRegistry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	return through(ctx, r.l, "decide", func(ctx context.Context) (int64, error) { return r.l.Registry.UpdateRow(ctx, d) })
}

func (r lineRegistry) Lock(ctx context.Context, k shard.Lock) error {
	return throughErr(ctx, r.l, "lock", func(ctx context.Context) error { return r.l.Registry.Lock(ctx, k) })
}

func (r lineRegistry) Unlock(ctx context.Context, k shard.Lock) error {
	return throughErr(ctx, r.l, "unlock", func(ctx context.Context) error { return r.l.Registry.Unlock(ctx, k) })
}

func (r lineRegistry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	return through(ctx, r.l, "list", func(ctx context.Context) ([]shard.View, error) { return r.l.Registry.List(ctx, after, limit) })
}

// Watch breaks with the line.
func (r lineRegistry) Watch(ctx context.Context, name string, wake func(string)) error {
	return throughErr(ctx, r.l, "watch", func(inner context.Context) error {
		err := r.l.Registry.Watch(inner, name, wake)
		if ctx.Err() == nil && inner.Err() != nil {
			return lease.ErrUnavailable
		}
		return err
	})
}

type lineCommands struct{ l *Line }

func (c lineCommands) Send(ctx context.Context, all ...shard.Command) error {
	return throughErr(ctx, c.l, "send", func(ctx context.Context) error { return c.l.Commands.Send(ctx, all...) })
}

func (c lineCommands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	return through(ctx, c.l, "next", func(ctx context.Context) (shard.Command, error) { return c.l.Commands.Next(ctx, node, wait) })
}

type lineLeases struct{ l *Line }

func (s lineLeases) StartSession(ctx context.Context, n lease.Session) (lease.Renewal, error) {
	return through(ctx, s.l, "start", func(ctx context.Context) (lease.Renewal, error) { return s.l.Leases.StartSession(ctx, n) })
}

func (s lineLeases) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	return through(ctx, s.l, "renew", func(ctx context.Context) (lease.Renewal, error) { return s.l.Leases.RenewSession(ctx, id) })
}

func (s lineLeases) EndSession(ctx context.Context, id, reason string) error {
	return throughErr(ctx, s.l, "end", func(ctx context.Context) error { return s.l.Leases.EndSession(ctx, id, reason) })
}

func (s lineLeases) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	return through(ctx, s.l, "acquire", func(ctx context.Context) (lease.Lease, error) { return s.l.Leases.Acquire(ctx, c) })
}

func (s lineLeases) Release(ctx context.Context, h lease.ReleaseRequest) error {
	return throughErr(ctx, s.l, "release", func(ctx context.Context) error { return s.l.Leases.Release(ctx, h) })
}

func (s lineLeases) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	return through(ctx, s.l, "get", func(ctx context.Context) (lease.Lease, error) { return s.l.Leases.Get(ctx, id) })
}

func (s lineLeases) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	return through(ctx, s.l, "list leases", func(ctx context.Context) ([]lease.Lease, error) { return s.l.Leases.List(ctx, space, after, limit) })
}

func (s lineLeases) Watch(ctx context.Context, wake func(lease.Change)) error {
	return throughErr(ctx, s.l, "watch leases", func(inner context.Context) error {
		err := s.l.Leases.Watch(inner, wake)
		if ctx.Err() == nil && inner.Err() != nil {
			return lease.ErrUnavailable
		}
		return err
	})
}
