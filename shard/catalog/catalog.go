package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Limits of a catalog.
const (
	MaxShards = 20_000 // shards that it keeps; those with the greatest names are left out
	maxWoken  = 1024   // shards that wait to be looked at; the others wait for the next round
	page      = 200    // shards of one reading, so that a shard that changed need not wait for all
)

// Config is what a catalog needs.
type Config struct {
	// Registry that it reads. Required.
	Registry shard.Registry
	// Interval between two readings of all shards. Default 1 s. It is jittered by a quarter, longer where a
	// reading takes more than a tenth of it, and shorter where what was read would end: see [NextReading]. What
	// others wait for is seen at once, where the store notifies.
	Interval time.Duration
	// Most is how long readers believe a reading at most. Default 5 s.
	Most time.Duration
	// Timeout of one call to the registry. Default 5 s.
	Timeout time.Duration
	// Clock of this host; nil is lease.BootClock.
	Clock lease.Clock
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps lease.ErrInvalid.
func (c Config) Validate() error {
	switch {
	case c.Registry == nil:
		return fmt.Errorf("%w: a catalog of shards needs a registry", lease.ErrInvalid)
	case c.Interval < 0 || c.Most < 0 || c.Timeout < 0:
		return fmt.Errorf("%w: intervals and time-outs cannot be negative", lease.ErrInvalid)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.Most = cmp.Or(c.Most, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Catalog keeps the views of all shards of a registry for any number of readers, who
// cost the store nothing. While the store is down it keeps what it had: ages in it are those of the
// reading, and [Catalog.Freshness] tells how long ago that was.
type Catalog struct {
	cfg  Config
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	names   []string // sorted
	views   map[string]shard.View
	changed chan struct{}
	fresh   time.Duration // when the last complete round began
	read    bool          // there was one
	failed  error         // of the latest call; nil if it succeeded
	woken   map[string]struct{}
	all     bool // everything may have changed

	full bool // the latest complete round found more than MaxShards; Run's alone
}

// New makes a catalog, which is empty until [Catalog.Run] runs.
func New(cfg Config) (*Catalog, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Catalog{
		cfg: cfg.withDefaults(), wake: make(chan struct{}, 1),
		views: map[string]shard.View{}, changed: make(chan struct{}), woken: map[string]struct{}{},
	}, nil
}

// Shard returns the view of a shard as it was read last. It belongs to all readers:
// do not change it.
func (c *Catalog) Shard(name string) (shard.View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.views[name]
	return v, ok
}

// Shards returns all views, by name. They belong to all readers: do not change them.
func (c *Catalog) Shards() []shard.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]shard.View, len(c.names))
	for i, name := range c.names {
		out[i] = c.views[name]
	}
	return out
}

// Changed is closed at the next change that matters to who looks for a node: a row, a
// role, an address, a condition, a node that falls silent or returns. Transaction ids and ages
// change all the time and do not count. Take the channel before the views.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Freshness tells how long ago the last complete reading began, and why the latest call
// failed, nil if it did not. Before the first reading the error is [shard.ErrNotFound] or why it fails.
func (c *Catalog) Freshness() (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		if c.failed == nil {
			return 0, fmt.Errorf("%w: the shards have not been read yet", shard.ErrNotFound)
		}
		return 0, c.failed
	}
	return c.cfg.Clock.Now() - c.fresh, c.failed
}

// Run reads until ctx ends, and returns nil when all that it started has stopped.
func (c *Catalog) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	watch.Go(func() { c.watch(ctx) })
	defer watch.Wait()
	for least, most := time.Duration(0), time.Duration(0); ; {
		if !c.rest(ctx, least, most) {
			return nil
		}
		started := c.cfg.Clock.Now()
		life, err := c.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.endRound(started, err)
		interval := c.cfg.Interval + c.cfg.Interval/4 - rand.N(c.cfg.Interval/2+1)
		least, most = NextReading(interval, c.cfg.Clock.Now()-started, life)
		if err != nil {
			least, most = interval, interval // it was waiting, not work
		}
	}
}

// rest waits for most, or for least when everything may have changed, looking at shards that were woken
// meanwhile. It is false when ctx ended.
func (c *Catalog) rest(ctx context.Context, least, most time.Duration) bool {
	began := c.cfg.Clock.Now()
	timer, stop := c.cfg.Clock.Timer(most)
	defer func() { stop() }()
	for soon := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			return true
		case <-c.wake:
			c.mu.Lock()
			all := c.all
			c.mu.Unlock()
			if all && !soon {
				soon = true
				stop()
				timer, stop = c.cfg.Clock.Timer(max(0, least-(c.cfg.Clock.Now()-began)))
			}
			c.readWoken(ctx)
		}
	}
}

// round reads all shards, page by page, and returns for how long all of it can be believed.
func (c *Catalog) round(ctx context.Context) (life time.Duration, err error) {
	life = c.cfg.Most
	c.mu.Lock()
	c.all = false
	c.mu.Unlock()
	for after, n := "", 0; ; {
		views, err := c.list(ctx, after)
		if err != nil {
			return life, err
		}
		if n += len(views); n > MaxShards {
			if !c.full {
				c.cfg.Logger.Warn("more shards than the catalog keeps; the others cannot be found through it", "limit", MaxShards)
			}
			c.full = true
			return life, nil
		}
		last := len(views) < page
		if len(views) > 0 && views[0].Row.Name <= after {
			return life, fmt.Errorf("shard: the registry lists %q after %q", views[0].Row.Name, after)
		}
		c.replacePage(after, views, last)
		for _, v := range views {
			life = remainingLife(v, life)
		}
		if last {
			c.full = false
			return life, nil
		}
		after = views[len(views)-1].Row.Name
		c.readWoken(ctx)
	}
}

func (c *Catalog) list(ctx context.Context, after string) ([]shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.cfg.Registry.List(ctx, after, page)
}

// replacePage puts a page in the place of all that was known between after and its end.
func (c *Catalog) replacePage(after string, views []shard.View, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	seen := make(map[string]bool, len(views))
	for _, v := range views {
		seen[v.Row.Name] = true
		changed = c.put(v) || changed
	}
	from, found := slices.BinarySearch(c.names, after)
	if found {
		from++
	}
	to := len(c.names)
	if !last {
		to, _ = slices.BinarySearch(c.names, views[len(views)-1].Row.Name)
	}
	for _, name := range slices.Clone(c.names[from:to]) {
		if !seen[name] {
			c.drop(name)
			changed = true
		}
	}
	c.wakeReaders(changed)
}

// readWoken reads the shards that were woken. What fails waits for the next round.
func (c *Catalog) readWoken(ctx context.Context) {
	c.mu.Lock()
	woken := c.woken
	c.woken = map[string]struct{}{}
	c.mu.Unlock()
	for name := range woken {
		v, err := c.readOne(ctx, name)
		c.mu.Lock()
		switch {
		case err == nil:
			c.wakeReaders(c.put(v))
		case errors.Is(err, shard.ErrNotFound):
			c.wakeReaders(c.drop(name))
		}
		c.mu.Unlock()
		if err != nil && !errors.Is(err, shard.ErrNotFound) {
			return // the store does not answer; the round will tell
		}
	}
}

func (c *Catalog) readOne(ctx context.Context, name string) (shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.cfg.Registry.ReadView(ctx, name)
}

// put keeps a view, with the lock held, and reports whether it brings anything new.
func (c *Catalog) put(v shard.View) bool {
	v.Row.Secret = "" // no reader needs it
	old, known := c.views[v.Row.Name]
	if !known {
		if len(c.names) >= MaxShards {
			return false
		}
		at, _ := slices.BinarySearch(c.names, v.Row.Name)
		c.names = slices.Insert(c.names, at, v.Row.Name)
	}
	c.views[v.Row.Name] = v
	return !known || !alike(old, v)
}

func (c *Catalog) drop(name string) bool {
	at, found := slices.BinarySearch(c.names, name)
	if !found {
		return false
	}
	c.names = slices.Delete(c.names, at, at+1)
	delete(c.views, name)
	return true
}

// wakeReaders tells them of a change, with the lock held.
func (c *Catalog) wakeReaders(changed bool) {
	if changed {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// endRound keeps the outcome of a round.
func (c *Catalog) endRound(started time.Duration, err error) {
	c.mu.Lock()
	before := c.failed
	c.failed = err
	if err == nil {
		c.fresh, c.read = started, true
	}
	c.mu.Unlock()
	switch {
	case err != nil && before == nil:
		c.cfg.Logger.Warn("shards cannot be read; what was known is kept", "err", err)
	case err == nil && before != nil:
		c.cfg.Logger.Info(lease.StoreAnswers, "reading", "shards")
	}
}

// watch lets changes be seen at once. It starts over when the watch breaks.
func (c *Catalog) watch(ctx context.Context) {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	for retry := (backoff.Backoff{First: first, Most: most}); ; {
		started := c.cfg.Clock.Now()
		err := c.cfg.Registry.Watch(ctx, "", c.noteChange)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errors.ErrUnsupported):
			lease.Sleep(ctx, c.cfg.Clock, lease.UnsupportedRetry)
			continue
		}
		if c.cfg.Clock.Now()-started > most {
			retry.Reset()
		}
		c.cfg.Logger.Debug("watching the shards broke; reading goes on", "err", err)
		if !lease.Sleep(ctx, c.cfg.Clock, retry.Next()) {
			return
		}
	}
}

// noteChange remembers what is to be read again: a shard, or with "" everything.
func (c *Catalog) noteChange(name string) {
	c.mu.Lock()
	switch {
	case name == "":
		c.all = true
	case len(c.woken) < maxWoken: // the next round sees the others
		c.woken[name] = struct{}{}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// alike reports whether two views say the same of where nodes are and what they do.
func alike(a, b shard.View) bool {
	return a.Row.Rev == b.Row.Rev && a.Row.Epoch == b.Row.Epoch && a.Row.Primary == b.Row.Primary &&
		a.Lease.Term == b.Lease.Term && a.Lease.Session == b.Lease.Session && a.Lease.Held() == b.Lease.Held() &&
		slices.EqualFunc(a.Nodes, b.Nodes, func(a, b shard.Record) bool {
			return a.ID == b.ID && a.Address == b.Address && a.Announced == b.Announced && a.Agent == b.Agent &&
				a.Role == b.Role && a.Condition == b.Condition && a.Fence == b.Fence && a.Synced == b.Synced &&
				a.PrimaryID == b.PrimaryID && a.Live() == b.Live() && a.Run == b.Run && a.Instance == b.Instance &&
				linked(a) == linked(b)
		})
}

func linked(r shard.Record) bool { return r.Link != nil && r.Link.Up }
