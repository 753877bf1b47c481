package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// KeeperConfig tells a [Keeper] what to keep and how.
type KeeperConfig struct {
	// Store to keep the session in. Required.
	Store Store
	// Roster, usually the same store, records what the instance waits for, so that
	// operators can see it. Optional.
	Roster Roster
	// Instance whose session it is. Required: see [NewInstance].
	Instance Instance
	// Timing of the session. Zero fields get their defaults.
	Timing Timing
	// Clock of this host. Default [BootClock].
	Clock Clock
	// HealthCheck, if not nil, runs before each renewal. An error skips the renewal,
	// and the check runs again soon: a session whose subject is unhealthy lapses.
	// ctx ends after [Timing.CallTimeout].
	HealthCheck func(ctx context.Context) error
	// Logger; nil is silent.
	Logger *slog.Logger
	// Jitter returns a random duration in [0, d). Default: the runtime's source.
	Jitter func(d time.Duration) time.Duration
}

// Keeper keeps one session of one instance alive, with one request to the store
// per interval, however many leases point to it. When the session has ended it
// starts another, with a new id.
type Keeper struct {
	cfg      KeeperConfig
	notifier *Notifier
	log      *slog.Logger

	mu         sync.Mutex
	session    *ActiveSession // nil while there is none
	arrived    chan struct{}  // closed when session is set
	contending map[ID]bool    // leases that this process already contends for
	usedTerms  map[ID]int64   // the newest term of each lease that it has held
	stopped    error          // with which Run returned early; nil: it did not
	stats      KeeperStats
	failure    error         // why the store did not accept the last request; nil: it did
	acceptedAt time.Duration // when it last accepted one; before the first, when the keeper was made
}

// NewKeeper checks the configuration. Errors wrap [ErrInvalid] or
// [ErrUnsafeTiming].
func NewKeeper(cfg KeeperConfig) (*Keeper, error) {
	if cfg.Store == nil {
		return nil, fmt.Errorf("%w: a keeper needs a store", ErrInvalid)
	}
	cfg.Timing = cfg.Timing.WithDefaults()
	if err := cfg.Timing.Validate(0); err != nil {
		return nil, err
	}
	if err := cfg.Instance.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = BootClock()
	}
	if cfg.Jitter == nil {
		cfg.Jitter = backoff.Random
	}
	log := orDiscard(cfg.Logger).With("instance", cfg.Instance.Label())
	return &Keeper{
		cfg: cfg, log: log, notifier: NewNotifier(cfg.Store, cfg.Clock, log),
		arrived: make(chan struct{}), contending: map[ID]bool{}, usedTerms: map[ID]int64{}, acceptedAt: cfg.Clock.Now(),
	}, nil
}

// Instance is whose session this is.
func (k *Keeper) Instance() Instance { return k.cfg.Instance }

// Timing is how the session is kept, defaults filled in.
func (k *Keeper) Timing() Timing { return k.cfg.Timing }

// Clock of this host.
func (k *Keeper) Clock() Clock { return k.cfg.Clock }

// Store is where the session is kept.
func (k *Keeper) Store() Store { return k.cfg.Store }

// Roster that shows what the instance waits for; nil if there is none.
func (k *Keeper) Roster() Roster { return k.cfg.Roster }

// Notifier wakes those who wait for changes in the store.
func (k *Keeper) Notifier() *Notifier { return k.notifier }

// Err is the error with which Run returned early; nil: it did not.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopped
}

// Session returns the present session, or waits for one until ctx ends or [Keeper.Run] returns early: then it
// returns the error of that.
func (k *Keeper) Session(ctx context.Context) (*ActiveSession, error) {
	for {
		k.mu.Lock()
		live, arrived, stopped := k.session, k.arrived, k.stopped
		k.mu.Unlock()
		if live != nil || stopped != nil {
			return live, stopped
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-arrived:
		}
	}
}

// Run keeps a session until ctx ends. Then it waits for bound work to stop, as
// long as the session can be renewed meanwhile, ends the session, which releases
// every lease that it holds, and returns nil once everything that it started has
// stopped. It returns early only for an error that no retry can fix: input that
// the store refuses ([ErrInvalid]), a damaged store ([ErrDamaged]), or two hosts
// on a single-host store ([ErrTwoHosts]). Whoever waits for a session or a lease gets that error, too.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.notifier.Start(context.WithoutCancel(ctx))()
	var ending sync.WaitGroup
	defer ending.Wait()
	k.setStopped(nil) // if it runs again

	for ctx.Err() == nil {
		live, first, err := k.startSession(ctx)
		if err != nil {
			k.setStopped(err)
			return err
		}
		if live == nil {
			return nil // ctx ended first
		}
		err = k.renewUntilEnd(ctx, live, first)
		k.setSession(nil)
		if err != nil {
			k.setStopped(err) // before the work learns of the end, to say why; and Run may have to wait for that
		}
		live.end()
		if err != nil || ctx.Err() != nil {
			return err // stopped: the session has been ended
		}
		ending.Go(func() { k.endLost(ctx, live) })
	}
	return nil
}

// endLost ends a session that the store has refused, once the work under it has stopped. Its
// leases are free at once then: a contender that first sees them lapsed would count a whole T.
func (k *Keeper) endLost(ctx context.Context, live *ActiveSession) {
	select {
	case <-ctx.Done():
	case <-live.whenIdle():
		k.endSession(ctx, live, "lapsed")
	}
}

// startSession starts a session, trying until ctx ends.
func (k *Keeper) startSession(ctx context.Context) (*ActiveSession, Renewal, error) {
	for retry := k.retry(); ; {
		s := Session{ID: NewID(), Instance: k.cfg.Instance, Timing: k.cfg.Timing}
		// Read before the request is sent: the store may count the deadline from any
		// moment after, and trust must never outlast it.
		sent := k.cfg.Clock.Now()
		r, err := callStore(ctx, k.cfg.Timing, func(ctx context.Context) (Renewal, error) {
			return k.cfg.Store.StartSession(ctx, s)
		})
		if err == nil {
			live := newActiveSession(s.ID, k.cfg.Timing, k.cfg.Clock, NewTrust(sent, k.cfg.Timing))
			k.log.Debug("session started")
			k.record(nil, func(st *KeeperStats) { st.Sessions++ })
			k.setSession(live)
			return live, r, nil
		}
		if ctx.Err() != nil {
			return nil, Renewal{}, nil
		}
		if isPermanent(err) {
			return nil, Renewal{}, err
		}
		k.record(err, func(*KeeperStats) {})
		k.log.Warn("session could not be started; trying again", "err", err)
		if !Sleep(ctx, k.cfg.Clock, retry.Next()) {
			return nil, Renewal{}, nil
		}
	}
}

// renewUntilEnd renews until the session ends, or ctx has ended and nothing is bound.
func (k *Keeper) renewUntilEnd(ctx context.Context, live *ActiveSession, last Renewal) error {
	clock, timing := k.cfg.Clock, k.cfg.Timing
	running := context.WithoutCancel(ctx) // renewals continue while bound work stops
	next, retry := clock.Now()+timing.Interval, k.retry()
	offset := k.wallOffset()
	stop := ctx.Done()
	var idle <-chan struct{}
	for {
		// A quarter of an interval at a time, so that a jump of the wall clock, or
		// a host that wakes from sleep, is noticed soon.
		c, stopTimer := clock.Timer(min(max(0, next-clock.Now()), timing.Interval/4))
		select {
		case <-stop:
			// Ending the session now would give the leases away while work that is
			// bound to them is still stopping. Renew until none is bound.
			stop, idle = nil, live.whenIdle()
		case <-idle:
			stopTimer()
			k.stopSession(running, live)
			return nil
		case <-c:
		}
		stopTimer()
		// Work that ignores its context must not keep the leases for ever: once trust
		// has ended, its guards have stopped it or nothing here can.
		if idle != nil && !live.Valid() {
			k.stopSession(running, live)
			return nil
		}
		if now := k.wallOffset(); (now - offset).Abs() > timing.Interval/4 {
			k.log.Warn("the wall clock jumped; renewing at once", "by", now-offset)
			// The store's clock may be the one that was stepped: renewing at once shows
			// whether the session still counts there.
			offset, next = now, 0
		}
		if clock.Now() < next {
			continue
		}
		sent, r, err := k.renewSession(running, live)
		switch {
		case err == nil:
			live.extend(NewTrust(sent, timing))
			// From when it was sent, so that slow answers do not stretch the interval.
			next = sent + timing.Interval
			last = k.passOn(r, last, retry.Failures() > 0)
			retry.Reset()
			k.record(nil, func(st *KeeperStats) { st.Renewals++; st.Latency = clock.Now() - sent })
		case errors.Is(err, ErrLapsed):
			// Never renewed again, whatever the store's clock says later: the leases may
			// be another's already. Run starts a new session.
			k.log.Warn("session lost", "reason", live.whyRefused())
			k.record(nil, func(st *KeeperStats) { st.Lost++ }) // it answered
			return nil
		case isPermanent(err):
			return err
		default:
			// Unavailable or unknown: trust is not extended, even if the store applied it.
			// The retry comes sooner than I, so that a second attempt fits into T − I.
			k.log.Warn("renewal failed; trying again", "trusted_for", live.Remaining(), "err", err)
			k.record(err, func(st *KeeperStats) { st.Failures++ })
			next = clock.Now() + retry.Next()
		}
	}
}

// passOn tells the waiters and holders of this process what a renewal has brought since the last one, and returns what to compare
// the next with. The renewal is the poll: a changed count stands in for a notification that was lost.
func (k *Keeper) passOn(r, last Renewal, failed bool) Renewal {
	if len(r.Waits) > 0 {
		k.notifier.show(observation{r.Waits, k.cfg.Clock.Now()})
	}
	changed := r.Changes != last.Changes && r.Changes != 0
	if !changed {
		r.Changes = last.Changes
	}
	// After a failure another copy of the store may answer, and one that counts less is another: the last acquisitions may be
	// missing there, so that another instance can acquire the same leases, and no count of changes shows that. Holders read theirs.
	if changed || failed || r.Seq <= last.Seq {
		k.notifier.Wake(Change{})
	}
	return r
}

// stopSession ends the session. Trust ends first: Valid returns false here before a
// successor can acquire anything in the store.
func (k *Keeper) stopSession(ctx context.Context, live *ActiveSession) {
	if live.isBound() { // a release that has not got through is no fault of the work
		k.log.Error("work under the session still runs after the end of trust; ending the session nevertheless")
	}
	k.setSession(nil)
	live.end()
	k.endSession(ctx, live, "stopped")
}

// endSession closes the session in the store, which releases its leases. It gives up when stop ends.
func (k *Keeper) endSession(stop context.Context, live *ActiveSession, reason string) {
	// T, not one call's deadline: ending a session that holds very many leases takes
	// several statements. After T it has lapsed anyway.
	ctx, cancel := context.WithTimeout(stop, k.cfg.Timing.Timeout)
	defer cancel()
	for retry := k.retry(); ; {
		err := k.cfg.Store.EndSession(ctx, live.ID(), reason)
		if err == nil {
			return
		}
		if ctx.Err() == context.Canceled {
			return // nobody waits for a lost one any more
		}
		if isPermanent(err) || !Sleep(ctx, k.cfg.Clock, retry.Next()) {
			if stop.Err() != nil {
				return // nobody waits for it
			}
			k.log.Warn("session could not be ended; it will lapse", "in", k.cfg.Timing.Timeout, "err", err)
			return
		}
	}
}

func (k *Keeper) setSession(live *ActiveSession) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil && live != nil {
		close(k.arrived)
	}
	if k.session != nil && live == nil {
		k.arrived = make(chan struct{})
	}
	k.session = live
}

// setStopped keeps the error with which Run returns early, and returns it to those who wait for a session; nil: Run starts.
func (k *Keeper) setStopped(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = err
	if err != nil {
		k.failure = err
		close(k.arrived) // open: there is no session
		k.arrived = make(chan struct{})
	}
}

// renewSession renews the session once, if the health check passes, and returns when
// the renewal was sent.
func (k *Keeper) renewSession(ctx context.Context, live *ActiveSession) (sent time.Duration, r Renewal, err error) {
	r, err = callStore(ctx, k.cfg.Timing, func(ctx context.Context) (Renewal, error) {
		if k.cfg.HealthCheck != nil {
			if err := k.cfg.HealthCheck(ctx); err != nil {
				// %v, not %w: an error of the check that wraps ErrLapsed must not end the session.
				return Renewal{}, fmt.Errorf("health check: %v", err)
			}
		}
		// After the check: its duration does not count as trust.
		sent = k.cfg.Clock.Now()
		return k.cfg.Store.RenewSession(ctx, live.ID())
	})
	return sent, r, err
}

// retry is the pauses between attempts.
func (k *Keeper) retry() backoff.Backoff { return retryWithin(k.cfg.Timing, k.cfg.Jitter) }

// retryWithin pauses for I at most, so that a second attempt comes soon enough.
func retryWithin(t Timing, jitter func(time.Duration) time.Duration) backoff.Backoff {
	return backoff.Backoff{First: t.Interval / 8, Most: t.Interval, Jitter: jitter}
}

// wallOffset changes only when the wall clock is stepped.
func (k *Keeper) wallOffset() time.Duration {
	return time.Duration(k.cfg.Clock.Wall().UnixNano()) - k.cfg.Clock.Now()
}

// callStore bounds one request to the store.
func callStore[T any](ctx context.Context, timing Timing, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.CallTimeout())
	defer cancel()
	return f(ctx)
}

// isPermanent reports errors that no retry can fix.
func isPermanent(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTwoHosts) || errors.Is(err, ErrUnsafeTiming) || errors.Is(err, ErrDamaged)
}
