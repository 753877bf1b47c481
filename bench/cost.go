package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// costRounds is how often each operation is timed, for each number of leases.
	costRounds = 800
	// updateBound is how much more than an update of a row anything may cost.
	updateBound = 1.3
	// turns is how many leases are acquired and released in rotation.
	turns = 100
)

// leasesHeld are the numbers of leases that a session holds while its cost is measured.
var leasesHeld = []int{1, 1000, 100_000}

// subject is one session in one store, and a row beside it.
type subject struct {
	kind string
	// renew the session; acquire and release a lease of a given number.
	renew            func(context.Context) error
	acquire, release func(context.Context, int) error
	// fill lets the session hold the leases numbered from to to−1.
	fill func(ctx context.Context, from, to int) error
	// bare updates a row of a table that has nothing to do with leases.
	bare     func(context.Context) error
	bareName string
}

// cost measures what it costs to keep and to take leases, by one caller after the
// other, against what an update costs. All take turns in random order, so that
// none is always the one after a slow one.
func cost(ctx context.Context, b *bed, o options, r *Report) {
	for _, p := range startAll(b, o.kinds) {
		s, err := newSubject(ctx, b, p)
		b.check(err, "%s", p.kind)
		held := 0
		for _, n := range leasesHeld {
			b.check(s.fillAlive(ctx, held, n), "%s: acquiring %d leases", p.kind, n)
			held = n
			times, err := s.measure(ctx)
			b.check(err, "%s with %d leases", p.kind, n)
			s.figures(r, n, times)
		}
	}
}

func (s *subject) figures(r *Report, held int, times map[string]sample) {
	bare := micros(times["bare"].median())
	for _, op := range []string{"renew", "acquire", "release"} {
		f := Figure{Section: "cost", Subject: s.kind, Name: fmt.Sprintf("%s, %d held, median", op, held),
			Value: micros(times[op].median()), Unit: "µs", Peer: bare, Versus: s.bareName, Count: len(times[op])}
		if s.kind != peerKind && op != "release" {
			f.Bound = updateBound * bare
		}
		r.add(f)
	}
}

func (s *subject) measure(ctx context.Context) (map[string]sample, error) {
	times := map[string]sample{}
	timed := func(name string, warm bool, f func() error) error {
		began := time.Now()
		err := f()
		if took := time.Since(began); warm {
			times[name] = append(times[name], took)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	const warmUp = turns
	for i := range costRounds + warmUp {
		warm := i >= warmUp
		ops := []func() error{
			func() error { return timed("bare", warm, func() error { return s.bare(ctx) }) },
			func() error { return timed("bare", warm, func() error { return s.bare(ctx) }) },
			func() error { return timed("renew", warm, func() error { return s.renew(ctx) }) },
			func() error {
				return errors.Join(
					timed("acquire", warm, func() error { return s.acquire(ctx, i%turns) }),
					timed("release", warm, func() error { return s.release(ctx, i%turns) }))
			},
		}
		rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		for _, op := range ops {
			if err := op(); err != nil {
				return nil, err
			}
		}
	}
	return times, nil
}

func newSubject(ctx context.Context, b *bed, p place) (*subject, error) {
	switch p.kind {
	case peerKind:
		return etcdSubject(ctx, b, p)
	case "postgres":
		return postgresSubject(ctx, b, p)
	case "redis":
		return redisSubject(ctx, b, p)
	case "sqlite":
		return sqliteSubject(ctx, b, p)
	}
	return nil, fmt.Errorf("nothing is known about the costs of %q", p.kind)
}

// storeSubject is the part that all stores share.
func storeSubject(ctx context.Context, kind string, st store.Store) (*subject, string, error) {
	session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("bench", ""), Timing: lease.Timing{}.WithDefaults()}
	if _, err := st.StartSession(ctx, session); err != nil {
		return nil, "", err
	}
	seen := make([]lease.Lease, turns)
	take := func(ctx context.Context, id lease.ID, last lease.Lease) (lease.Lease, error) {
		return st.Acquire(ctx, lease.Expectation{Lease: id, Session: session.ID, Seen: last.Seen()})
	}
	s := &subject{kind: kind}
	s.renew = func(ctx context.Context) error {
		_, err := st.RenewSession(ctx, session.ID)
		return err
	}
	s.acquire = func(ctx context.Context, i int) error {
		l, err := take(ctx, turnID(i), seen[i])
		seen[i] = l
		return err
	}
	s.release = func(ctx context.Context, i int) error {
		err := st.Release(ctx, lease.ReleaseRequest{Lease: turnID(i), Session: session.ID, Term: seen[i].Term, Reason: "bench"})
		seen[i].Session, seen[i].Seq = "", 0
		return err
	}
	s.fill = func(ctx context.Context, from, to int) error {
		return parallel(ctx, from, to, func(ctx context.Context, i int) error {
			_, err := take(ctx, heldID(i), lease.Lease{})
			// A Redis that has just been started gives nothing away for a while.
			for began := time.Now(); errors.Is(err, lease.ErrUnavailable) && time.Since(began) < 2*session.Timing.Timeout; {
				time.Sleep(session.Timing.Interval)
				_, err = take(ctx, heldID(i), lease.Lease{})
			}
			return err
		})
	}
	return s, session.ID, nil
}

// fillAlive renews the session while it fills; afterwards the measurements do.
func (s *subject) fillAlive(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(lease.DefaultInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				failed <- nil
				return
			case <-tick.C:
			}
			if err := s.renew(ctx); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
		}
	}()
	err := s.fill(ctx, from, to)
	cancel()
	return errors.Join(err, <-failed)
}

func turnID(i int) lease.ID { return lease.ID{Space: "bench", Key: fmt.Sprintf("turn-%d", i)} }
func heldID(i int) lease.ID { return lease.ID{Space: "bench", Key: fmt.Sprintf("held-%06d", i)} }

// parallel calls f for each number, many at a time.
func parallel(ctx context.Context, from, to int, f func(context.Context, int) error) error {
	const many = 64
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan int)
	go func() {
		defer close(next)
		for i := from; i < to; i++ {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	failed := make(chan error, many)
	for range many {
		go func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel()
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var first error
	for range many {
		if err := <-failed; first == nil {
			first = err
		}
	}
	return first
}

func pathOf(url string) string { return strings.TrimPrefix(url, "sqlite:") }
