package monitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

// DefaultWindow is both windows of a watcher's claims. A longer second window would have no effect, because
// evaluating sources has no steps.
const DefaultWindow = 5 * time.Second

// WatcherConfig configures a [Watcher].
type WatcherConfig struct {
	// Keeper of this instance's session, whose timing is that of Windows; Claims and Store, of the same
	// store. Required.
	Keeper *lease.Keeper
	Claims claim.KeyTable
	Store  Store
	// Windows that keep sources from other instances. Default 5 s and 5 s.
	Windows claim.Windows
	// Poll is how often the store is scanned for due sources. Default 100 ms; no setting reaches it.
	Poll time.Duration
	// KeepAlarms is how long alarms that have ended are kept. Default 90 days.
	KeepAlarms time.Duration
	// PublicURL is the URL under which people reach the server: alarms then have a link that acknowledges them.
	PublicURL string
	// Self is what others are shown of this instance: Process, Host, Service and
	// Sinks. The rest of it is filled in.
	Self Member
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c WatcherConfig) withDefaults() WatcherConfig {
	c.Windows.First = cmp.Or(c.Windows.First, DefaultWindow)
	c.Windows.Second = cmp.Or(c.Windows.Second, c.Windows.First)
	c.Poll = cmp.Or(c.Poll, 100*time.Millisecond)
	c.KeepAlarms = cmp.Or(c.KeepAlarms, 90*24*time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid] or
// [lease.ErrUnsafeTiming]. Zero fields count as their defaults.
func (c WatcherConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Keeper == nil || c.Claims == nil || c.Store == nil:
		return fmt.Errorf("%w: a watcher needs a keeper, claims and a store", lease.ErrInvalid)
	case c.Keeper.Timing() != c.Windows.Timing():
		return fmt.Errorf("%w: the keeper's session has timing %v, and the windows need %v", lease.ErrInvalid, c.Keeper.Timing(), c.Windows.Timing())
	case c.Poll < 0 || c.KeepAlarms < 0:
		return fmt.Errorf("%w: durations cannot be negative", lease.ErrInvalid)
	}
	for _, s := range c.Self.Sinks {
		if err := ValidateSink(s); err != nil {
			return err
		}
	}
	return c.Windows.Validate(0)
}

// Watcher finds sources whose state must change, and changes them. Any number of instances each run
// one: they divide the sources by claims.
//
// Claims only keep instances from doing the same work twice. Whether a change is made depends on what was
// evaluated ([SourceChange]), not on who evaluated it: two watchers of the same source raise one alarm.
type Watcher struct {
	cfg   WatcherConfig
	clock lease.Clock
	log   *slog.Logger
	runs  bool

	// Wakes its loop when something below changed.
	wakeDetect, wakeHousekeeping chan struct{}
	configured                   chan struct{} // see Configured

	mu        sync.Mutex
	parts     []int // partitions that it watches
	sweeper   bool
	active    bool
	settings  settingsCache
	hasChecks bool // configured is closed
	stats     WatchStats
	health    *lease.StoreHealth
	seen      time.Time     // the store's wall clock
	seenAt    time.Duration // and this host's own, then
}

// WatchStats counts what a [Watcher] did since it was made.
type WatchStats struct {
	Partitions int   // that it watches now
	Sweeper    bool  // it runs the jobs of the single sweeper
	Generation int64 // of the configuration that it uses
	// Scans that found something, sources that were evaluated, and changes that the store refused because
	// the source had changed meanwhile.
	Scans, Evaluated, Conflicts int64
	Transitions                 map[Transition]int64 // changes that were made
	// Delay is how long after they happened the ONSETs were found, together.
	Delay    time.Duration
	Failures int64         // requests to the store that failed; what they were for is tried again
	Latency  time.Duration // of the last scan for due sources
	// FailingFor is for how long the store has refused what the watcher is doing at FailingAt, and Failure why; nil: it
	// refuses nothing.
	FailingFor time.Duration
	FailingAt  string
	Failure    error
}

// NewWatcher checks the configuration; see [WatcherConfig.Validate].
func NewWatcher(cfg WatcherConfig) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Watcher{
		cfg: cfg, clock: cfg.Keeper.Clock(),
		log:        cfg.Logger.With("instance", cfg.Keeper.Instance().Label()),
		wakeDetect: make(chan struct{}, 1), wakeHousekeeping: make(chan struct{}, 1), configured: make(chan struct{}),
		stats:  WatchStats{Transitions: map[Transition]int64{}},
		health: lease.NewStoreHealth(cfg.Keeper.Clock()),
	}, nil
}

// WorstTakeover is the longest time for which the sources of an instance that died are not watched, while
// another instance is healthy: unless the store's clock was set back, then up to a minute more (offerKeys).
func (w *Watcher) WorstTakeover() time.Duration {
	idle, _ := w.cfg.Windows.WorstTakeover()
	return idle + w.cfg.Poll
}

// Stats returns the counts so far.
func (w *Watcher) Stats() WatchStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Transitions = maps.Clone(s.Transitions)
	s.FailingFor, s.FailingAt, s.Failure = w.health.Failing()
	s.Partitions, s.Sweeper, s.Generation = len(w.parts), w.sweeper, w.settings.generation
	return s
}

func (w *Watcher) count(f func(*WatchStats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.stats)
}

// SetSinks publishes which sinks this instance delivers to from now on.
func (w *Watcher) SetSinks(sinks []string) {
	w.mu.Lock()
	w.cfg.Self.Sinks = sinks
	w.mu.Unlock()
	wake(w.wakeHousekeeping)
}

// Register registers this instance and its sinks now: alarms that are raised after it has returned nil are stored for
// them, whichever instance raises them. For an alarm that was already open, a new sink gets only reminders and the end.
func (w *Watcher) Register(ctx context.Context) error {
	live, err := w.cfg.Keeper.Session(ctx)
	if err != nil {
		return err
	}
	self, _, _ := w.self(live.ID())
	return w.request(ctx, func(ctx context.Context) error { return w.cfg.Store.RegisterMember(ctx, self) })
}

// SetActive publishes whether this instance is the one that fetches the configuration.
func (w *Watcher) SetActive(active bool) {
	w.mu.Lock()
	w.active = active
	w.mu.Unlock()
	wake(w.wakeHousekeeping)
}

func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

// Run watches a fair share of the sources until ctx ends, and returns nil when they are given back. An alarm
// is stored for the sinks that are registered, so Run evaluates nothing before its own sinks are. The keeper
// must run until Run has returned.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	again := w.runs
	w.runs = true
	w.mu.Unlock()
	if again {
		return fmt.Errorf("%w: a watcher runs once", lease.ErrInvalid)
	}
	var started sync.WaitGroup
	defer started.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	registered := make(chan struct{})
	started.Go(func() { w.runHousekeeping(ctx, registered) })
	started.Go(func() {
		select {
		case <-ctx.Done():
		case <-registered:
			w.detect(ctx)
		}
	})
	offered := make(chan struct{})
	started.Go(func() { w.offerKeys(ctx, offered) })
	select {
	case <-ctx.Done():
		return nil
	case <-offered:
	}
	return claim.Hold(ctx, claim.HoldConfig{
		Space: ClaimSpace, Keeper: w.cfg.Keeper, Table: w.cfg.Claims, Windows: w.cfg.Windows, Logger: w.cfg.Logger,
	}, w.setClaims)
}

// offerKeys offers all keys of claims, as every instance does, and closes offered when that was done first. It repeats that: after a
// step back of the store's clock, ready times lie in the future and no instance could claim the keys of one that dies. An offer
// makes them ready now, and changes no other.
func (w *Watcher) offerKeys(ctx context.Context, offered chan<- struct{}) {
	offer := w.loop("offering claims")
	for ctx.Err() == nil {
		pause := time.Duration(0)
		err := w.request(ctx, func(ctx context.Context) error { return w.cfg.Claims.Offer(ctx, ClaimSpace, ClaimKeys(), 0) })
		if err == nil {
			pause = sweepEvery
			if offered != nil {
				close(offered)
				offered = nil
			}
		}
		lease.Sleep(ctx, w.clock, offer.delayAfter(err, pause))
	}
}

// setClaims records what this instance holds.
func (w *Watcher) setClaims(_ string, claims []claim.Claim) {
	var parts []int
	sweeper := false
	for _, c := range claims {
		var p int
		if c.Key == SweepKey {
			sweeper = true
		} else if _, err := fmt.Sscanf(c.Key, "%d", &p); err == nil && p >= 0 && p < Partitions {
			parts = append(parts, p)
		}
	}
	w.mu.Lock()
	w.parts, w.sweeper = parts, sweeper
	w.mu.Unlock()
	wake(w.wakeDetect)
	wake(w.wakeHousekeeping)
}
