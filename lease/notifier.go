package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// Notifier lets any number of waiters in a process share one [Store.Watch].
// Its wake-ups make waiters fast; correctness never depends on them, because
// waiters also poll.
type Notifier struct {
	store Store
	few   FewWatcher // the store, if it is one
	clock Clock
	log   *slog.Logger
	deaf  atomic.Bool // see IsDeaf

	mu      sync.Mutex
	subs    map[*Subscription]struct{}
	changed chan struct{} // closed when a subscription comes, goes, or changes its demand
}

// Demand is what a [Subscription] asks of the notifications of a store in which every watcher slows the others down
// ([FewWatcher]). In others any demand is WatchAlways. Each gets what the process hears anyway.
type Demand int

const (
	NoWatch     Demand = iota // renewals show all that matters
	WatchIfFew                // renewals show it, only later: listen while few do
	WatchAlways               // listen
)

const (
	// linger is for how long a watch lasts that no subscription asks for any more: the next one may come soon.
	linger = 2 * time.Second
	// crowdedRetry is when a store in which enough others watched is asked again. Each time costs it a connection.
	crowdedRetry = 10 * time.Minute
	// UnsupportedRetry is when a store that said [errors.ErrUnsupported] is asked again: its address may lead past the pooler by then.
	UnsupportedRetry = time.Minute
)

// NewNotifier makes a notifier; nothing is woken until [Notifier.Run] runs. A nil clock is
// [BootClock], a nil logger is silent.
func NewNotifier(store Store, clock Clock, log *slog.Logger) *Notifier {
	if clock == nil {
		clock = BootClock()
	}
	few, _ := store.(FewWatcher)
	return &Notifier{
		store: store, few: few, clock: clock, log: orDiscard(log), subs: map[*Subscription]struct{}{}, changed: make(chan struct{}),
	}
}

// Run watches the store while there are subscriptions, until ctx ends, and again when
// the watch breaks, after 50 ms to 5 s. It returns nil.
func (n *Notifier) Run(ctx context.Context) error {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	retry := backoff.Backoff{First: first, Most: most}
	for ctx.Err() == nil {
		want, changed := n.demand()
		if want == NoWatch {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		started := n.clock.Now()
		err := n.watch(ctx, want)
		switch {
		case ctx.Err() != nil || err == nil:
		case errors.Is(err, errors.ErrUnsupported):
			n.deaf.Store(true)
			Sleep(ctx, n.clock, UnsupportedRetry)
		case errors.Is(err, ErrCrowded):
			n.awaitUrgency(ctx)
		default:
			n.log.Debug("watch broke; polling goes on", "err", err)
			if n.clock.Now()-started > most {
				retry.Reset()
			}
			Sleep(ctx, n.clock, retry.Next())
		}
	}
	return nil
}

// watch watches the store until the demand has been less for a while; then it returns nil.
func (n *Notifier) watch(ctx context.Context, least Demand) error {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		for {
			var expired <-chan time.Time
			stop := func() bool { return true }
			now, changed := n.demand()
			if now < least {
				expired, stop = n.clock.Timer(linger)
			}
			select {
			case <-ctx.Done():
				stop()
				return
			case <-expired:
				return
			case <-changed:
				stop()
			}
		}
	}()
	defer func() { cancel(); <-over }()
	wake := func(c Change) {
		n.deaf.Store(false)
		n.Wake(c)
	}
	if least == WatchIfFew {
		return n.few.WatchIfFew(ctx, wake)
	}
	return n.store.Watch(ctx, wake)
}

// IsDeaf reports that the store has no notifications, as behind a pooler. Whoever learns of changes otherwise passes them to
// [Notifier.Wake] then; of a store that has them, that would only make waiters read again.
func (n *Notifier) IsDeaf() bool { return n.deaf.Load() }

// awaitUrgency waits for a subscription that asks for more than the last watch gave, or long enough to try that again.
func (n *Notifier) awaitUrgency(ctx context.Context) {
	again, stop := n.clock.Timer(backoff.Pause(1, crowdedRetry, crowdedRetry))
	defer stop()
	for {
		now, changed := n.demand()
		if now == WatchAlways {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			return
		case <-changed:
		}
	}
}

// demand is what the subscriptions ask for, until changed is closed.
func (n *Notifier) demand() (most Demand, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.subs {
		most = max(most, s.demand)
	}
	if n.few == nil && len(n.subs) > 0 {
		most = WatchAlways
	}
	return most, n.changed
}

// reconsider says that the demand may have changed. The mutex is held.
func (n *Notifier) reconsider() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Start runs the notifier until ctx ends or stop is called; stop returns when it has
// stopped.
func (n *Notifier) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = n.Run(ctx)
	}()
	return func() { cancel(); <-stopped }
}

// Wake passes a change to the subscribers of its lease, and the zero Change to
// all subscribers.
func (n *Notifier) Wake(c Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.subs {
		if c == (Change{}) || s.wants(c.Lease) {
			s.push(c)
		}
	}
}

// observation is leases as a reply showed them, and the reading of the clock when it had arrived.
type observation struct {
	leases   []Lease
	received time.Duration
}

// show passes on what a renewal showed.
func (n *Notifier) show(o observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.subs {
		select { // only the latest counts
		case <-s.shown:
		default:
		}
		s.shown <- o // only show sends, under the lock: there is room
	}
}

// Subscribe returns a subscription to the given leases, or to all when none is
// given. It must be closed.
func (n *Notifier) Subscribe(ids ...ID) *Subscription { return n.subscribe(WatchAlways, ids) }

// SubscribeIfFew is Subscribe for a caller that learns of changes from renewals, too: its demand is WatchIfFew.
func (n *Notifier) SubscribeIfFew(ids ...ID) *Subscription { return n.subscribe(WatchIfFew, ids) }

func (n *Notifier) subscribe(d Demand, ids []ID) *Subscription {
	s := &Subscription{notifier: n, c: make(chan Change, 16), shown: make(chan observation, 1), ids: ids, demand: d}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[s] = struct{}{}
	n.reconsider()
	return s
}

// Subscription is one waiter's view of a [Notifier].
type Subscription struct {
	notifier *Notifier
	c        chan Change
	shown    chan observation
	ids      []ID
	demand   Demand // guarded by the notifier's mutex
}

// SetDemand changes what the subscription asks for.
func (s *Subscription) SetDemand(d Demand) {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	if s.demand != d {
		s.demand = d
		s.notifier.reconsider()
	}
}

// C delivers the changes. A reader that falls behind gets one zero Change in
// place of all that it missed.
func (s *Subscription) C() <-chan Change { return s.c }

// Close ends the subscription; C is not closed.
func (s *Subscription) Close() {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	delete(s.notifier.subs, s)
	s.notifier.reconsider()
}

func (s *Subscription) wants(id ID) bool {
	return len(s.ids) == 0 || slices.Contains(s.ids, id)
}

// push never blocks: only the notifier sends, under its lock, so that once the
// channel is drained there is room.
func (s *Subscription) push(c Change) {
	select {
	case s.c <- c:
		return
	default:
	}
	for {
		select {
		case <-s.c:
			continue
		default:
		}
		break
	}
	s.c <- Change{}
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
