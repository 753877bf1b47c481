package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

// DefaultWindow is both windows of a watcher's claims: a second one that is longer
// would keep nothing from anybody, because looking after sources has no steps.
const DefaultWindow = 5 * time.Second

// WatcherConfig tells a [Watcher] what to look after.
type WatcherConfig struct {
	// Keeper of this instance's session, whose timing is that of Windows; Claims
	// and Table, of the same store. Required.
	Keeper *lease.Keeper
	Claims claim.Table
	Table  Table
	// Windows that keep sources from other instances. Default 5 s and 5 s.
	Windows claim.Windows
	// Poll is how often sources that are due are asked for. Default 100 ms.
	Poll time.Duration
	// Batch is how many are judged at once. Default and most: MaxSources.
	Batch int
	// KeepAlarms is how long alarms that have ended are kept. Default 90 days.
	KeepAlarms time.Duration
	// Self is what others are shown of this instance: Process, Host, Service and
	// Sinks. The rest of it is filled in.
	Self Member
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c WatcherConfig) withDefaults() WatcherConfig {
	if c.Windows.First == 0 {
		c.Windows.First = DefaultWindow
	}
	if c.Windows.Second == 0 {
		c.Windows.Second = c.Windows.First
	}
	if c.Poll == 0 {
		c.Poll = 100 * time.Millisecond
	}
	if c.Batch == 0 {
		c.Batch = MaxSources
	}
	if c.KeepAlarms == 0 {
		c.KeepAlarms = 90 * 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid] or
// [lease.ErrUnsafeTiming]. Zero fields count as their defaults.
func (c WatcherConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Keeper == nil || c.Claims == nil || c.Table == nil:
		return fmt.Errorf("%w: a watcher needs a keeper, claims and a table", lease.ErrInvalid)
	case c.Keeper.Timing() != c.Windows.Timing():
		return fmt.Errorf("%w: the keeper's session has timing %v, and the windows need %v", lease.ErrInvalid, c.Keeper.Timing(), c.Windows.Timing())
	case c.Poll < 0 || c.KeepAlarms < 0:
		return fmt.Errorf("%w: durations cannot be negative", lease.ErrInvalid)
	case c.Batch < 1 || c.Batch > MaxSources:
		return fmt.Errorf("%w: %d sources at once; use 1 to %d", lease.ErrInvalid, c.Batch, MaxSources)
	}
	for _, s := range c.Self.Sinks {
		if err := ValidateSink(s); err != nil {
			return err
		}
	}
	return c.Windows.Validate(0)
}

// Watcher looks for sources that have to turn. Any number of instances each run
// one: they divide the sources by claims.
//
// Claims only keep instances from doing the same work twice. Whether a change is
// made is decided by what was judged ([Change]), not by who judged it: two that
// look after the same source for a moment raise one alarm.
type Watcher struct {
	cfg   WatcherConfig
	clock lease.Clock
	log   *slog.Logger
	runs  bool

	// Wakes its loop when something below changed.
	wakeDetect, wakeChores chan struct{}

	mu      sync.Mutex
	parts   []int // partitions that are looked after
	sweeper bool
	active  bool
	book    book
	stats   WatchStats
	seen    time.Time     // the store's wall clock
	seenAt  time.Duration // and this host's own, then
}

// WatchStats counts what a [Watcher] did since it was made.
type WatchStats struct {
	Partitions int   // that it looks after now
	Sweeper    bool  // it does what is done once
	Generation int64 // of the configuration that it goes by
	// Looks that found something, sources that were judged, and changes that were
	// undone by what happened meanwhile.
	Looks, Judged, Undone int64
	Turns                 map[Turn]int64 // changes that were made
	// Delay is how long after they happened the ONSETs were found, together.
	Delay    time.Duration
	Failures int64         // requests to the store that failed; what they were for is tried again
	Latency  time.Duration // of the last look at what is due
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
		wakeDetect: make(chan struct{}, 1), wakeChores: make(chan struct{}, 1),
		stats: WatchStats{Turns: map[Turn]int64{}},
	}, nil
}

// WorstTakeover is the longest that the sources of an instance that died are not
// looked after, while another is well.
func (w *Watcher) WorstTakeover() time.Duration {
	idle, _ := w.cfg.Windows.WorstTakeover()
	return idle + w.cfg.Poll
}

// Stats returns the counts so far.
func (w *Watcher) Stats() WatchStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Turns = maps.Clone(s.Turns)
	s.Partitions, s.Sweeper, s.Generation = len(w.parts), w.sweeper, w.book.generation
	return s
}

func (w *Watcher) count(f func(*WatchStats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.stats)
}

// SetActive tells others that this instance is the one that fetches the
// configuration, or is not.
func (w *Watcher) SetActive(active bool) {
	w.mu.Lock()
	w.active = active
	w.mu.Unlock()
	wake(w.wakeChores)
}

func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

// Run looks after a fair share of the sources until ctx ends, and returns nil when
// they are given back. Whoever raises an alarm tells the sinks that are registered: Run looks
// at nothing before its own are. The keeper must run, and go on running until Run has returned.
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
	enlisted := make(chan struct{})
	started.Go(func() { w.chores(ctx, enlisted) })
	started.Go(func() {
		select {
		case <-ctx.Done():
		case <-enlisted:
			w.detect(ctx)
		}
	})
	// Every instance offers all keys: offering what is there does nothing.
	offer := w.loop("offering the keys")
	for ctx.Err() == nil {
		err := w.request(ctx, func(ctx context.Context) error { return w.cfg.Claims.Offer(ctx, Space, Keys(), 0) })
		if pause := offer.told(err, 0); err != nil {
			lease.Sleep(ctx, w.clock, pause)
			continue
		}
		break
	}
	return claim.Hold(ctx, claim.HoldConfig{
		Space: Space, Keeper: w.cfg.Keeper, Table: w.cfg.Claims, Windows: w.cfg.Windows, Logger: w.cfg.Logger,
	}, w.held)
}

// held takes note of what this instance holds.
func (w *Watcher) held(_ string, claims []claim.Claim) {
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
	wake(w.wakeChores)
}

// request bounds one request to the store.
func (w *Watcher) request(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return f(ctx)
}

// loop is one thing that is done over and over: it backs off while that fails, and
// says so once.
type loop struct {
	w     *Watcher
	doing string
	tries int
	at    time.Duration // when it is done again
}

// due tells whether it is time.
func (l *loop) due() bool { return l.w.clock.Now() >= l.at }

// again sets the time of the next after the outcome err.
func (l *loop) again(err error, every time.Duration) {
	l.at = l.w.clock.Now() + l.told(err, every)
}

func (w *Watcher) loop(doing string) *loop { return &loop{w: w, doing: doing} }

// told returns how long to wait after the outcome err: every, or a back-off.
func (l *loop) told(err error, every time.Duration) time.Duration {
	switch {
	case err == nil:
		if l.tries > 0 {
			l.w.log.Info("the store answers again", "doing", l.doing, "after", l.tries)
		}
		l.tries = 0
		return every
	case errors.Is(err, context.Canceled):
		return every // Run stops
	}
	if l.tries++; l.tries == 1 {
		l.w.log.Warn("the store did not do it; trying again", "doing", l.doing, "err", err)
	}
	l.w.count(func(s *WatchStats) { s.Failures++ })
	return max(every, backoff(l.tries, 100*time.Millisecond, 2*time.Second))
}

// book is the configuration that this instance goes by.
type book struct {
	generation int64
	read       bool
	events     map[int64]*Expected
	byName     map[string]*Expected
	sinks      []string
	// grouped is the shortest group wait, 0 when no event is grouped.
	grouped time.Duration
}

// current returns the configuration of a generation, or of a later one.
func (w *Watcher) current(ctx context.Context, generation int64) (book, error) {
	w.mu.Lock()
	b := w.book
	w.mu.Unlock()
	if b.read && b.generation == generation {
		return b, nil
	}
	return w.reread(ctx)
}

// forgetBook has the configuration read anew with the next look.
func (w *Watcher) forgetBook() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.read = false
}

// saw notes what time it is in the store.
func (w *Watcher) saw(l Look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.seenAt = l.Wall, w.clock.Now()
}

func (w *Watcher) reread(ctx context.Context) (book, error) {
	var s Settings
	err := w.request(ctx, func(ctx context.Context) (err error) {
		s, err = w.cfg.Table.Settings(ctx)
		return err
	})
	if err != nil {
		return book{}, err
	}
	b := book{generation: s.Generation, read: true, events: map[int64]*Expected{}, byName: map[string]*Expected{}, sinks: s.Sinks}
	for i := range s.Events {
		e := &s.Events[i]
		b.events[e.ID] = e
		if old := b.byName[e.Name]; old == nil || old.Removed {
			b.byName[e.Name] = e
		}
		if e.GroupBy != "" && (b.grouped == 0 || e.GroupWait < b.grouped) {
			b.grouped = e.GroupWait
		}
	}
	w.mu.Lock()
	changed := b.generation != w.book.generation
	w.book = b
	w.mu.Unlock()
	if changed {
		wake(w.wakeChores)
	}
	return b, nil
}
