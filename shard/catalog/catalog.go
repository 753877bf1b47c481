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

// Limits of a directory.
const (
	MaxShards = 20_000 // shards that it keeps; those with the greatest names are left out
	maxWoken  = 1024   // shards that wait to be looked at; the others wait for the next round
	page      = 200    // shards of one reading, so that a shard that changed need not wait for all
)

// Config is what a directory needs.
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
		return fmt.Errorf("%w: a directory of shards needs a registry", lease.ErrInvalid)
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

// New makes a directory, which is empty until [Catalog.Run] runs.
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
func (d *Catalog) Shard(name string) (shard.View, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.views[name]
	return v, ok
}

// Shards returns all views, by name. They belong to all readers: do not change them.
func (d *Catalog) Shards() []shard.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]shard.View, len(d.names))
	for i, name := range d.names {
		out[i] = d.views[name]
	}
	return out
}

// Changed is closed at the next change that matters to who looks for a node: a row, a
// role, an address, a condition, a node that falls silent or returns. Transaction ids and ages
// change all the time and do not count. Take the channel before the views.
func (d *Catalog) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Freshness tells how long ago the last complete reading began, and why the latest call
// failed, nil if it did not. Before the first reading the error is [shard.ErrNotFound] or why it fails.
func (d *Catalog) Freshness() (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.read {
		if d.failed == nil {
			return 0, fmt.Errorf("%w: the shards have not been read yet", shard.ErrNotFound)
		}
		return 0, d.failed
	}
	return d.cfg.Clock.Now() - d.fresh, d.failed
}

// Run reads until ctx ends, and returns nil when all that it started has stopped.
func (d *Catalog) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(ctx) })
	defer watch.Wait()
	for least, most := time.Duration(0), time.Duration(0); ; {
		if !d.rest(ctx, least, most) {
			return nil
		}
		started := d.cfg.Clock.Now()
		life, err := d.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		d.outcome(started, err)
		interval := d.cfg.Interval + d.cfg.Interval/4 - rand.N(d.cfg.Interval/2+1)
		least, most = NextReading(interval, d.cfg.Clock.Now()-started, life)
		if err != nil {
			least, most = interval, interval // it was waiting, not work
		}
	}
}

// rest waits for most, or for least when everything may have changed, looking at shards that were woken
// meanwhile. It is false when ctx ended.
func (d *Catalog) rest(ctx context.Context, least, most time.Duration) bool {
	began := d.cfg.Clock.Now()
	timer, stop := d.cfg.Clock.Timer(most)
	defer func() { stop() }()
	for soon := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			return true
		case <-d.wake:
			d.mu.Lock()
			all := d.all
			d.mu.Unlock()
			if all && !soon {
				soon = true
				stop()
				timer, stop = d.cfg.Clock.Timer(max(0, least-(d.cfg.Clock.Now()-began)))
			}
			d.look(ctx)
		}
	}
}

// round reads all shards, page by page, and returns for how long all of it can be believed.
func (d *Catalog) round(ctx context.Context) (life time.Duration, err error) {
	life = d.cfg.Most
	d.mu.Lock()
	d.all = false
	d.mu.Unlock()
	for after, n := "", 0; ; {
		views, err := d.list(ctx, after)
		if err != nil {
			return life, err
		}
		if n += len(views); n > MaxShards {
			if !d.full {
				d.cfg.Logger.Warn("more shards than the catalog keeps; the others cannot be found through it", "most", MaxShards)
			}
			d.full = true
			return life, nil
		}
		last := len(views) < page
		if len(views) > 0 && views[0].Row.Name <= after {
			return life, fmt.Errorf("shard: the registry lists %q after %q", views[0].Row.Name, after)
		}
		d.take(after, views, last)
		for _, v := range views {
			life = remainingLife(v, life)
		}
		if last {
			d.full = false
			return life, nil
		}
		after = views[len(views)-1].Row.Name
		d.look(ctx)
	}
}

func (d *Catalog) list(ctx context.Context, after string) ([]shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	return d.cfg.Registry.List(ctx, after, page)
}

// take puts a page in the place of all that was known between after and its end.
func (d *Catalog) take(after string, views []shard.View, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	seen := make(map[string]bool, len(views))
	for _, v := range views {
		seen[v.Row.Name] = true
		changed = d.put(v) || changed
	}
	from, found := slices.BinarySearch(d.names, after)
	if found {
		from++
	}
	to := len(d.names)
	if !last {
		to, _ = slices.BinarySearch(d.names, views[len(views)-1].Row.Name)
	}
	for _, name := range slices.Clone(d.names[from:to]) {
		if !seen[name] {
			d.drop(name)
			changed = true
		}
	}
	d.tell(changed)
}

// look reads the shards that were woken. What fails waits for the next round.
func (d *Catalog) look(ctx context.Context) {
	d.mu.Lock()
	woken := d.woken
	d.woken = map[string]struct{}{}
	d.mu.Unlock()
	for name := range woken {
		v, err := d.lookAt(ctx, name)
		d.mu.Lock()
		switch {
		case err == nil:
			d.tell(d.put(v))
		case errors.Is(err, shard.ErrNotFound):
			d.tell(d.drop(name))
		}
		d.mu.Unlock()
		if err != nil && !errors.Is(err, shard.ErrNotFound) {
			return // the store does not answer; the round will tell
		}
	}
}

func (d *Catalog) lookAt(ctx context.Context, name string) (shard.View, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	return d.cfg.Registry.ReadView(ctx, name)
}

// put keeps a view, with the lock held, and reports whether it brings anything new.
func (d *Catalog) put(v shard.View) bool {
	v.Row.Secret = "" // no reader needs it
	old, known := d.views[v.Row.Name]
	if !known {
		if len(d.names) >= MaxShards {
			return false
		}
		at, _ := slices.BinarySearch(d.names, v.Row.Name)
		d.names = slices.Insert(d.names, at, v.Row.Name)
	}
	d.views[v.Row.Name] = v
	return !known || !alike(old, v)
}

func (d *Catalog) drop(name string) bool {
	at, found := slices.BinarySearch(d.names, name)
	if !found {
		return false
	}
	d.names = slices.Delete(d.names, at, at+1)
	delete(d.views, name)
	return true
}

// tell wakes the readers, with the lock held.
func (d *Catalog) tell(changed bool) {
	if changed {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// outcome of a round.
func (d *Catalog) outcome(started time.Duration, err error) {
	d.mu.Lock()
	before := d.failed
	d.failed = err
	if err == nil {
		d.fresh, d.read = started, true
	}
	d.mu.Unlock()
	switch {
	case err != nil && before == nil:
		d.cfg.Logger.Warn("shards cannot be read; what was known is kept", "err", err)
	case err == nil && before != nil:
		d.cfg.Logger.Info(lease.StoreAnswers, "reading", "shards")
	}
}

// watch lets changes be seen at once. It starts over when the watch breaks.
func (d *Catalog) watch(ctx context.Context) {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	for retry := (backoff.Backoff{First: first, Most: most}); ; {
		started := d.cfg.Clock.Now()
		err := d.cfg.Registry.Watch(ctx, "", d.woke)
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if d.cfg.Clock.Now()-started > most {
			retry.Reset()
		}
		d.cfg.Logger.Debug("watching the shards broke; reading goes on", "err", err)
		if !lease.Sleep(ctx, d.cfg.Clock, retry.Next()) {
			return
		}
	}
}

func (d *Catalog) woke(name string) {
	d.mu.Lock()
	switch {
	case name == "":
		d.all = true
	case len(d.woken) < maxWoken: // the next round sees the others
		d.woken[name] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
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
