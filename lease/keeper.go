package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// KeeperConfig tells a [Keeper] what to keep and how.
type KeeperConfig struct {
	// Store to keep the session in. Required.
	Store Store
	// Roster, usually the same store, is told what the instance waits for, so
	// that people can see it. Optional.
	Roster Roster
	// Instance whose session it is. Required: see [NewInstance].
	Instance Instance
	// Timing of the session. Zero fields get their defaults.
	Timing Timing
	// Clock of this host. Default [BootClock].
	Clock Clock
	// Vouch, if not nil, is asked before each renewal whether what the session stands for
	// is well; its error keeps the session from being renewed, and it is asked again
	// soon. ctx ends after [Timing.CallTimeout].
	Vouch func(ctx context.Context) error
	// Logger; nil is silent.
	Logger *slog.Logger
	// Jitter returns a random duration in [0, d). Default: the runtime's source.
	Jitter func(d time.Duration) time.Duration
}

// Keeper keeps one session of one instance alive, whatever number of leases
// point to it: one request to the store per interval. When the session is over
// it starts another, with a new id.
type Keeper struct {
	cfg KeeperConfig
	hub *Hub
	log *slog.Logger

	mu       sync.Mutex
	live     *Live         // nil while there is none
	arrived  chan struct{} // closed when live is set
	contends map[ID]bool   // leases that this process already contends for
	used     map[ID]int64  // the newest term of each lease that it has held
	stats    KeeperStats
}

// KeeperStats counts what a [Keeper] did since it was made.
type KeeperStats struct {
	Sessions int64         // started
	Renewals int64         // accepted
	Failures int64         // renewals without an answer
	Lost     int64         // sessions that lapsed
	Latency  time.Duration // of the last accepted renewal
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
		cfg.Jitter = func(d time.Duration) time.Duration { return rand.N(max(1, d)) }
	}
	log := orDiscard(cfg.Logger).With("instance", cfg.Instance.Label())
	return &Keeper{
		cfg: cfg, log: log, hub: NewHub(cfg.Store, cfg.Clock, log),
		arrived: make(chan struct{}), contends: map[ID]bool{}, used: map[ID]int64{},
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

// Hub wakes those who wait for changes in the store.
func (k *Keeper) Hub() *Hub { return k.hub }

// Stats returns the counts so far.
func (k *Keeper) Stats() KeeperStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Session returns the session that lives now, or waits for one until ctx ends.
func (k *Keeper) Session(ctx context.Context) (*Live, error) {
	for {
		k.mu.Lock()
		live, arrived := k.live, k.arrived
		k.mu.Unlock()
		if live != nil {
			return live, nil
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
// whatever it holds, and returns nil once everything it started has stopped. It
// returns early only for an error that no retry can mend: input that the store
// refuses, or two hosts on a single-host store.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.hub.Start(context.WithoutCancel(ctx))()

	for ctx.Err() == nil {
		live, changes, err := k.start(ctx)
		if err != nil {
			return err
		}
		if live == nil {
			return nil // ctx ended first
		}
		err = k.keep(ctx, live, changes)
		k.set(nil)
		live.finish()
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts a session, trying until ctx ends.
func (k *Keeper) start(ctx context.Context) (*Live, int64, error) {
	for pause := k.firstPause(); ; pause = min(2*pause, k.cfg.Timing.Interval) {
		s := Session{ID: NewID(), Instance: k.cfg.Instance, Timing: k.cfg.Timing}
		sent := k.cfg.Clock.Now()
		r, err := call(ctx, k.cfg.Timing, func(ctx context.Context) (Renewal, error) {
			return k.cfg.Store.StartSession(ctx, s)
		})
		if err == nil {
			live := newLive(s.ID, k.cfg.Timing, k.cfg.Clock, NewTrust(sent, k.cfg.Timing))
			k.log.Debug("session started", "session", s.ID)
			k.count(func(st *KeeperStats) { st.Sessions++ })
			k.set(live)
			return live, r.Changes, nil
		}
		if ctx.Err() != nil {
			return nil, 0, nil
		}
		if permanent(err) {
			return nil, 0, err
		}
		k.log.Warn("session could not be started; trying again", "err", err)
		if !Sleep(ctx, k.cfg.Clock, pause/2+k.cfg.Jitter(pause)) {
			return nil, 0, nil
		}
	}
}

// keep renews until the session is over or ctx ends and nothing is bound.
func (k *Keeper) keep(ctx context.Context, live *Live, changes int64) error {
	clock, timing := k.cfg.Clock, k.cfg.Timing
	running := context.WithoutCancel(ctx) // renewals go on while work stops
	next, pause := clock.Now()+timing.Interval, k.firstPause()
	offset := k.wallOffset()
	stop := ctx.Done()
	var idle <-chan struct{}
	for {
		// A quarter of an interval at a time, so that a jump of the wall clock, or
		// a host that wakes from sleep, is noticed soon.
		c, stopTimer := clock.Timer(min(max(0, next-clock.Now()), timing.Interval/4))
		select {
		case <-stop:
			stop, idle = nil, live.whenIdle()
		case <-idle:
			stopTimer()
			k.end(running, live)
			return nil
		case <-c:
		}
		stopTimer()
		if idle != nil && !live.Valid() {
			k.log.Error("the session is still in use after the end of trust; ending it nevertheless", "session", live.ID())
			k.end(running, live)
			return nil
		}
		if now := k.wallOffset(); (now - offset).Abs() > timing.Interval/4 {
			k.log.Warn("the wall clock jumped; renewing at once", "by", now-offset)
			offset, next = now, 0
		}
		if clock.Now() < next {
			continue
		}
		sent, r, err := k.renew(running, live)
		switch {
		case err == nil:
			live.renewed(NewTrust(sent, timing))
			next, pause = sent+timing.Interval, k.firstPause()
			if r.Changes != changes {
				changes = r.Changes
				k.hub.Wake(Change{})
			}
			k.count(func(st *KeeperStats) { st.Renewals++; st.Latency = clock.Now() - sent })
		case errors.Is(err, ErrLapsed):
			k.log.Warn("session lost", "session", live.ID())
			k.count(func(st *KeeperStats) { st.Lost++ })
			return nil
		case permanent(err):
			return err
		default:
			k.log.Warn("renewal failed; trying again", "session", live.ID(), "trusted_for", live.Remaining(), "err", err)
			k.count(func(st *KeeperStats) { st.Failures++ })
			next = clock.Now() + pause/2 + k.cfg.Jitter(pause)
			pause = min(2*pause, timing.Interval)
		}
	}
}

// end closes the session in the store. Trust ends first: whoever asks Valid from
// here on hears no, before a successor can be told yes.
func (k *Keeper) end(ctx context.Context, live *Live) {
	k.set(nil)
	live.finish()
	// A session that holds very many leases takes its time.
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Timing.Timeout)
	defer cancel()
	for pause := k.firstPause(); ; pause = min(2*pause, k.cfg.Timing.Interval) {
		err := k.cfg.Store.EndSession(ctx, live.ID(), "stopped")
		if err == nil {
			return
		}
		if permanent(err) || !Sleep(ctx, k.cfg.Clock, pause/2+k.cfg.Jitter(pause)) {
			k.log.Warn("session could not be ended; it will lapse", "session", live.ID(), "in", k.cfg.Timing.Timeout, "err", err)
			return
		}
	}
}

func (k *Keeper) set(live *Live) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live == nil && live != nil {
		close(k.arrived)
	}
	if k.live != nil && live == nil {
		k.arrived = make(chan struct{})
	}
	k.live = live
}

func (k *Keeper) count(f func(*KeeperStats)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.stats)
}

// renew renews the session once, if whoever vouches for it does, and tells when it asked.
func (k *Keeper) renew(ctx context.Context, live *Live) (sent time.Duration, r Renewal, err error) {
	r, err = call(ctx, k.cfg.Timing, func(ctx context.Context) (Renewal, error) {
		if k.cfg.Vouch != nil {
			if err := k.cfg.Vouch(ctx); err != nil {
				return Renewal{}, fmt.Errorf("not vouched for: %v", err) // its errors mean nothing here
			}
		}
		sent = k.cfg.Clock.Now()
		return k.cfg.Store.RenewSession(ctx, live.ID())
	})
	return sent, r, err
}

func (k *Keeper) firstPause() time.Duration { return k.cfg.Timing.Interval / 8 }

// wallOffset changes only when the wall clock is stepped.
func (k *Keeper) wallOffset() time.Duration {
	return time.Duration(k.cfg.Clock.Wall().UnixNano()) - k.cfg.Clock.Now()
}

// call bounds one request to the store.
func call[T any](ctx context.Context, timing Timing, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.CallTimeout())
	defer cancel()
	return f(ctx)
}

// permanent tells errors that trying again cannot mend.
func permanent(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTwoHosts) || errors.Is(err, ErrUnsafeTiming)
}
