package gocron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// Elector is a [gocron.Elector]: the scheduler of the instance that holds a role runs all jobs. Run its candidate beside the
// scheduler, and jobs that want a context and a term with RunIfPrimary.
type Elector struct{ *elect.Candidate }

var _ gocron.Elector = Elector{}

// IsLeader implements [gocron.Elector]. Its error wraps elect.ErrStandby and says why.
func (e Elector) IsLeader(context.Context) error {
	return e.RunIfPrimary(func(context.Context, elect.Term) error { return nil })
}

// Locker is a [gocron.Locker]. Jobs need names that are unique in the store: see gocron.WithName.
type Locker struct {
	cfg elect.OnceConfig
	log *slog.Logger

	mu   sync.Mutex
	held map[string]*lock
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker checks the configuration, all but its Job, which is gocron's. Every should be longer than the clocks of the hosts may
// differ, and shorter than the shortest time between two runs.
func NewLocker(cfg elect.OnceConfig) (*Locker, error) {
	cfg.Job, cfg.NoWait = "job", true
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Locker{cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), held: map[string]*lock{}}, nil
}

// lock is one run of a job.
type lock struct {
	ctx  context.Context
	term elect.Term

	unlock   chan struct{} // closed by Unlock
	released chan error    // gets what the lock's end returned
	once     sync.Once
}

// Lock implements [gocron.Locker]. An error that wraps elect.ErrNotDue says that another instance runs the job.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	cfg := l.cfg
	cfg.Job = key
	k := &lock{unlock: make(chan struct{}), released: make(chan error, 1)}
	locked := make(chan struct{})
	go func() {
		k.released <- elect.Once(ctx, cfg, func(ctx context.Context, term elect.Term) error {
			k.ctx, k.term = ctx, term
			l.set(key, k)
			defer l.set(key, nil)
			close(locked)
			<-k.unlock // not before: until then the job runs, whatever has become of the lock
			return nil
		})
	}()
	select {
	case <-locked:
		return k, nil
	case err := <-k.released:
		if err == nil { // lost before the work could start
			err = lease.ErrLost
		}
		if !errors.Is(err, elect.ErrNotDue) {
			l.log.Warn("the job was not started", "job", key, "err", err) // gocron does not log it
		}
		return nil, err
	}
}

// Unlock implements [gocron.Lock]. It reports a lock that was lost while the job ran.
func (k *lock) Unlock(context.Context) error {
	k.once.Do(func() { close(k.unlock) })
	err := <-k.released
	k.released <- err
	return err
}

func (l *Locker) set(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] = k; k == nil {
		delete(l.held, key)
	}
}

// RunLocked runs the work of the job that has just been started under its lock: ctx ends before another instance can have the lock.
// It is lease.ErrNotHeld without one.
func (l *Locker) RunLocked(key string, work elect.Work) error {
	l.mu.Lock()
	k := l.held[key]
	l.mu.Unlock()
	if k == nil {
		return fmt.Errorf("%w: the lock of job %q", lease.ErrNotHeld, key)
	}
	return work(k.ctx, k.term)
}
