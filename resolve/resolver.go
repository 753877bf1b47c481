package resolve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard/catalog"
)

// Limits of a resolver.
const (
	MaxRoles = 20_000 // roles that it keeps; those with the greatest names are left out
	// A reading may take as long as answers can be believed, within these: what takes longer has failed.
	minReadTimeout, maxReadTimeout = 5 * time.Second, 30 * time.Second
)

// ResolverConfig configures a [Resolver].
type ResolverConfig struct {
	// Store whose roles it reads. Required.
	Store elect.Store
	// Notifier that tells of changes. Default: none, and changes are seen at the next reading.
	Notifier *lease.Notifier
	// Shards, kept fresh elsewhere. Default: none.
	Shards catalog.AgedViews
	// Roles that exist even if no instance ever held them or waits for them. See [Resolver.SetRoles].
	Roles []string
	// MaxAge is how long an answer may be believed at most after the reading on which it
	// rests. Default DefaultMaxAge.
	MaxAge time.Duration
	// Interval between two readings. Default 1 s. It is jittered by an eighth, and kept as far as
	// [catalog.NextReading] lets it.
	Interval time.Duration
	// Clock of this host. Default lease.BootClock.
	Clock lease.Clock
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps lease.ErrInvalid.
func (c ResolverConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Store == nil:
		return fmt.Errorf("%w: a resolver needs a store", lease.ErrInvalid)
	case c.Interval < 0 || c.MaxAge < time.Second || c.MaxAge > time.Hour:
		return fmt.Errorf("%w: answers may be believed for 1s to 1h, not %v; the interval (%v) is positive", lease.ErrInvalid, c.MaxAge, c.Interval)
	case c.MaxAge < 2*c.Interval:
		return fmt.Errorf("%w: answers that are believed for %v need readings more often than every %v", lease.ErrInvalid, c.MaxAge, c.Interval)
	}
	return nil
}

func (c ResolverConfig) withDefaults() ResolverConfig {
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.Interval = cmp.Or(c.Interval, min(time.Second, c.MaxAge/2))
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Resolver keeps the roles of a store for any number of readers, and looks the shards up in
// a catalog that is kept fresh elsewhere.
type Resolver struct {
	cfg  ResolverConfig
	full bool // more roles than it keeps; only Run uses it

	mu     sync.Mutex
	named  []string // ResolverConfig.Roles, or those since
	roles  index[elect.Role]
	read   time.Duration // when the reading began that roles come from
	known  bool          // there was one
	failed error         // of the latest reading
	shards index[string] // names of shards, with their letters' case
	stamp  <-chan struct{}
}

// index finds names whatever the case of their letters.
type index[T any] struct {
	entries map[string][]T      // by the name in lower case
	parents map[string]struct{} // ends of names after each dot: they are no names, but lead to some
}

func newIndex[T any](all []T, name func(T) string) index[T] {
	x := index[T]{entries: make(map[string][]T, len(all)), parents: map[string]struct{}{}}
	for _, e := range all {
		folded := Fold(name(e))
		x.entries[folded] = append(x.entries[folded], e)
		for rest := folded; ; {
			_, after, cut := strings.Cut(rest, ".")
			if !cut {
				break
			}
			x.parents[after] = struct{}{}
			rest = after
		}
	}
	return x
}

// NewResolver makes a resolver, which is empty until [Resolver.Run] runs.
func NewResolver(cfg ResolverConfig) (*Resolver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Resolver{cfg: cfg.withDefaults(), named: cfg.Roles}, nil
}

// SetRoles replaces the Roles of the configuration, from the next reading on.
func (b *Resolver) SetRoles(names []string) {
	b.mu.Lock()
	b.named = names
	b.mu.Unlock()
}

// Fold is the name with ASCII letters in lower case, as DNS compares names.
func Fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// Run reads until ctx ends, and returns nil.
func (b *Resolver) Run(ctx context.Context) error {
	wake := make(<-chan lease.Change)
	if b.cfg.Notifier != nil {
		sub := b.cfg.Notifier.Subscribe()
		defer sub.Close()
		wake = sub.C()
	}
	for {
		started := b.cfg.Clock.Now()
		life, err := b.readRoles(ctx, started)
		b.recordOutcome(err)
		interval := b.cfg.Interval + b.cfg.Interval/8 - rand.N(b.cfg.Interval/4+1)
		least, most := catalog.NextReading(interval, b.cfg.Clock.Now()-started, life)
		if err != nil {
			least, most = interval, interval // a failed read is mostly waiting, no load on the store
		}
		if !b.waitForChange(ctx, wake, least, most) {
			return nil
		}
	}
}

// waitForChange waits for most, or after least for a change of a role; false when ctx ended.
func (b *Resolver) waitForChange(ctx context.Context, wake <-chan lease.Change, least, most time.Duration) bool {
	soon, stopSoon := b.cfg.Clock.Timer(least)
	defer stopSoon()
	late, stopLate := b.cfg.Clock.Timer(most)
	defer stopLate()
	woken, rested := false, false
	for !woken || !rested {
		select {
		case <-ctx.Done():
			return false
		case <-late:
			return true
		case <-soon:
			rested = true
		case c := <-wake:
			woken = woken || c == (lease.Change{}) || c.Lease.Space == elect.Space
		}
	}
	return true
}

// readRoles reads all roles, and returns for how long all of it can be believed, counted from started.
func (b *Resolver) readRoles(ctx context.Context, started time.Duration) (life time.Duration, err error) {
	call, cancel := context.WithTimeout(ctx, min(max(b.cfg.MaxAge, minReadTimeout), maxReadTimeout))
	defer cancel()
	life = b.cfg.MaxAge
	roles, err := elect.Roles(call, b.cfg.Store)
	if ctx.Err() != nil {
		return life, nil
	}
	if err != nil {
		return life, err
	}
	b.mu.Lock()
	named := b.named
	b.mu.Unlock()
	for _, name := range named {
		if !slices.ContainsFunc(roles, func(r elect.Role) bool { return r.Name == name }) {
			roles = append(roles, elect.Role{Name: name})
		}
	}
	full := len(roles) > MaxRoles
	if full && !b.full {
		b.cfg.Logger.Warn("more roles than the resolver keeps; the others cannot be resolved", "limit", MaxRoles)
	}
	b.full = full
	roles = roles[:min(len(roles), MaxRoles)]
	for _, r := range roles {
		for _, p := range r.Primary {
			if p.ExpiresIn > 0 {
				life = min(life, p.ExpiresIn)
			}
		}
	}
	x := newIndex(roles, func(r elect.Role) string { return r.Name })
	b.mu.Lock()
	b.roles, b.read, b.known = x, started, true
	b.mu.Unlock()
	return life, nil
}

func (b *Resolver) recordOutcome(err error) {
	b.mu.Lock()
	before := b.failed
	b.failed = err
	b.mu.Unlock()
	switch {
	case err != nil && before == nil:
		b.cfg.Logger.Warn("roles cannot be read; names are answered for as long as what was known may be believed", "err", err)
	case err == nil && before != nil:
		b.cfg.Logger.Info(lease.StoreAnswers, "reading", "roles")
	}
}

// Answer is what a name stands for now. [ErrUnknown], or [ErrStale].
func (b *Resolver) Answer(n Name) (Answer, error) {
	if err := n.Validate(); err != nil {
		return Answer{Name: n}, err
	}
	all, _, err := b.find(n)
	if err != nil {
		return Answer{Name: n}, err
	}
	for _, find := range all {
		if a, err := find(); a.Name == n {
			return a, err
		}
	}
	return Answer{Name: n}, fmt.Errorf("%w: %s", ErrUnknown, n)
}

// Find is [Resolver.Answer] for who does not tell the case of letters apart. [ErrAmbiguous] when
// more than one name is meant. Of a name that is [ErrUnknown] it reports whether names that
// end in it, after a dot, exist.
func (b *Resolver) Find(n Name) (a Answer, above bool, err error) {
	all, above, err := b.find(n)
	switch {
	case err != nil:
		return Answer{Name: n}, false, err
	case len(all) == 0:
		return Answer{Name: n}, above, fmt.Errorf("%w: %s", ErrUnknown, n)
	case len(all) > 1:
		return Answer{Name: n}, false, fmt.Errorf("%w: %s", ErrAmbiguous, n)
	}
	a, err = all[0]()
	return a, false, err
}

// find returns what has the name, in whatever case.
func (b *Resolver) find(n Name) (all []func() (Answer, error), above bool, err error) {
	folded := Fold(n.Of)
	if n.Kind == Role {
		b.mu.Lock()
		defer b.mu.Unlock()
		age := b.cfg.Clock.Now() - b.read
		if !b.known || age >= b.cfg.MaxAge {
			return nil, false, b.staleError(n, b.known, age, b.failed)
		}
		for _, r := range b.roles.entries[folded] {
			all = append(all, func() (Answer, error) { return OfRole(r, age, b.cfg.MaxAge) })
		}
		_, above = b.roles.parents[folded]
		return all, above, nil
	}
	if b.cfg.Shards == nil {
		return nil, false, nil
	}
	age, failed := b.cfg.Shards.Freshness()
	if age == 0 && failed != nil || age >= b.cfg.MaxAge {
		return nil, false, b.staleError(n, age > 0, age, failed)
	}
	x := b.shardNames()
	for _, name := range x.entries[folded] {
		if v, ok := b.cfg.Shards.Shard(name); ok {
			all = append(all, func() (Answer, error) { return OfShard(v, n.Kind, age, b.cfg.MaxAge) })
		}
	}
	_, above = x.parents[folded]
	return all, above, nil
}

// shardNames is rebuilt after a shard changed.
func (b *Resolver) shardNames() index[string] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stamp != nil {
		select {
		case <-b.stamp:
		default:
			return b.shards
		}
	}
	b.stamp = b.cfg.Shards.Changed()
	names := []string{}
	for _, v := range b.cfg.Shards.Shards() {
		names = append(names, v.Row.Name)
	}
	b.shards = newIndex(names, func(name string) string { return name })
	return b.shards
}

func (b *Resolver) staleError(n Name, known bool, age time.Duration, why error) error {
	err := stale(n, age)
	if !known {
		err = fmt.Errorf("%w: nothing was read yet", ErrStale)
	}
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}
