package sabledb

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/understudy-ha/understudy/lease"
)

// StartSession implements [lease.Store].
func (s *Store) StartSession(ctx context.Context, n lease.Session) (out lease.Renewal, err error) {
	if err := validateTiming(n.Timing); err != nil {
		return out, err
	}
	err = s.run(ctx, func(k *call) (err error) {
		k.ahead = precision // what remains is never shown as less than it is
		if out, err = k.memory.StartSession(ctx, n); err == nil {
			k.keepAlive(n.ID, n.Timing)
		}
		return err
	})
	return out, err
}

// RenewSession implements [lease.Store].
func (s *Store) RenewSession(ctx context.Context, id string) (out lease.Renewal, err error) {
	err = s.run(ctx, func(k *call) (err error) {
		k.ahead = precision
		if out, err = k.memory.RenewSession(ctx, id); err == nil {
			n, _ := k.memory.Snapshot().Session(id)
			k.keepAlive(id, n.Timing)
		}
		return err
	})
	return out, err
}

// keepAlive has a session live for T: as long as its key.
func (k *call) keepAlive(id string, t lease.Timing) {
	seconds := (t.Timeout + precision - 1) / precision
	k.extra = append(k.extra, []string{"SET", k.s.key("alive:" + id), "1", "EX", strconv.Itoa(int(seconds))})
}

// EndSession implements [lease.Store].
func (s *Store) EndSession(ctx context.Context, id, reason string) error {
	return s.run(ctx, func(k *call) error { return k.memory.EndSession(ctx, id, reason) })
}

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, e lease.Expectation) (out lease.Lease, err error) {
	err = s.run(ctx, func(k *call) error {
		before, err := k.memory.Get(ctx, e.Lease)
		if err != nil {
			return err
		}
		if out, err = k.memory.Acquire(ctx, e); err != nil || before.Session == out.Session {
			return err
		}
		if kept := k.keptFor(out.Timing.Timeout); kept > 0 {
			return discard{fmt.Errorf("%w: a connection to the server broke, or it became another: it may have been started again and have forgotten who holds what: no lease is given away for another %v",
				lease.ErrUnavailable, kept)}
		}
		return nil
	})
	if err != nil && !errors.Is(err, lease.ErrHeld) {
		return lease.Lease{}, err
	}
	return out, err
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, r lease.ReleaseRequest) error {
	return s.run(ctx, func(k *call) error { return k.memory.Release(ctx, r) })
}

// Get implements [lease.Store].
func (s *Store) Get(ctx context.Context, id lease.ID) (out lease.Lease, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.Get(ctx, id); return err })
	return out, err
}

// List implements [lease.Store].
func (s *Store) List(ctx context.Context, space, after string, limit int) (out []lease.Lease, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.List(ctx, space, after, limit); return err })
	return out, err
}

// Watch implements [lease.Store]: there is nothing to listen to.
func (s *Store) Watch(context.Context, func(lease.Change)) error {
	return fmt.Errorf("sabledb: %w", errors.ErrUnsupported)
}

// Join implements [lease.Roster].
func (s *Store) Join(ctx context.Context, id lease.ID, session string) (out lease.Lease, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.Join(ctx, id, session); return err })
	return out, err
}

// Leave implements [lease.Roster].
func (s *Store) Leave(ctx context.Context, id lease.ID, session string) error {
	return s.run(ctx, func(k *call) error { return k.memory.Leave(ctx, id, session) })
}

// Waiters implements [lease.Roster].
func (s *Store) Waiters(ctx context.Context, space string) (out []lease.Waiter, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.Waiters(ctx, space); return err })
	return out, err
}

// RequestRelease implements [lease.Roster].
func (s *Store) RequestRelease(ctx context.Context, id lease.ID, successor, who string) error {
	return s.run(ctx, func(k *call) error { return k.memory.RequestRelease(ctx, id, successor, who) })
}

// Sessions implements [lease.Roster].
func (s *Store) Sessions(ctx context.Context) (out []lease.Session, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.Sessions(ctx); return err })
	return out, err
}

// Forget implements [lease.Roster].
func (s *Store) Forget(ctx context.Context, f lease.ForgetRequest) error {
	return s.run(ctx, func(k *call) error {
		err := k.memory.Forget(ctx, f)
		if err == nil {
			k.extra = append(k.extra, []string{"DEL", s.stateKey(f.Lease)})
		}
		return err
	})
}

// Spaces implements [lease.Roster].
func (s *Store) Spaces(ctx context.Context) (out []lease.SpaceCount, err error) {
	err = s.run(ctx, func(k *call) (err error) { out, err = k.memory.Spaces(ctx); return err })
	return out, err
}
