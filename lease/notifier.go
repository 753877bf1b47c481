package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
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

	mu      sync.Mutex
	subs    map[*Subscription]struct{}
	changed chan struct{} // closed when a subscription comes, goes, or changes its demand
}

// Demand is what a [Subscription] asks of the notifications of a store in which every watcher slows the others down
// ([FewWatcher]). In others any demand is Urgent. Each gets what the process hears anyway.
type Demand int

const (
	Unneeded Demand = iota // renewals show all that matters
	Modest                 // renewals show it, only later: listen while few do
	Urgent                 // listen
)

const (
	// linger is for how long a watch lasts that no subscription asks for any more: the next one may come soon.
	linger = 2 * time.Second
	// crowdedRetry is when a store in which enough others watched is asked again. Each time costs it a connection.
	crowdedRetry = 10 * time.Minute
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
func (h *Notifier) Run(ctx context.Context) error {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	retry := backoff.Backoff{First: first, Most: most}
	for ctx.Err() == nil {
		want, changed := h.demand()
		if want == Unneeded {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		started := h.clock.Now()
		err := h.watch(ctx, want)
		switch {
		case ctx.Err() != nil || err == nil:
		case errors.Is(err, errors.ErrUnsupported):
			<-ctx.Done()
		case errors.Is(err, ErrCrowded):
			h.awaitUrgency(ctx)
		default:
			h.log.Debug("watch broke; polling goes on", "err", err)
			if h.clock.Now()-started > most {
				retry.Reset()
			}
			Sleep(ctx, h.clock, retry.Next())
		}
	}
	return nil
}

// watch watches the store until the demand has been less for a while; then it returns nil.
func (h *Notifier) watch(ctx context.Context, least Demand) error {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		for {
			var expired <-chan time.Time
			stop := func() bool { return true }
			now, changed := h.demand()
			if now < least {
				expired, stop = h.clock.Timer(linger)
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
	if least == Modest {
		return h.few.WatchIfFew(ctx, h.Wake)
	}
	return h.store.Watch(ctx, h.Wake)
}

// awaitUrgency waits for a subscription that asks for more than the last watch gave, or long enough to try that again.
func (h *Notifier) awaitUrgency(ctx context.Context) {
	again, stop := h.clock.Timer(backoff.Pause(1, crowdedRetry, crowdedRetry))
	defer stop()
	for {
		now, changed := h.demand()
		if now == Urgent {
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
func (h *Notifier) demand() (most Demand, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		most = max(most, s.demand)
	}
	if h.few == nil && len(h.subs) > 0 {
		most = Urgent
	}
	return most, h.changed
}

// reconsider says that the demand may have changed. The mutex is held.
func (h *Notifier) reconsider() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Start runs the notifier until ctx ends or stop is called; stop returns when it has
// stopped.
func (h *Notifier) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = h.Run(ctx)
	}()
	return func() { cancel(); <-stopped }
}

// Wake passes a change to the subscribers of its lease, and the zero Change to
// all subscribers.
func (h *Notifier) Wake(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
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
func (h *Notifier) show(o observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select { // only the latest counts
		case <-s.shown:
		default:
		}
		s.shown <- o // only show sends, under the lock: there is room
	}
}

// Subscribe returns a subscription to the given leases, or to all when none is
// given. It must be closed.
func (h *Notifier) Subscribe(ids ...ID) *Subscription { return h.subscribe(Urgent, ids) }

// SubscribeModestly is Subscribe for a caller that learns of changes from renewals, too: its demand is Modest.
func (h *Notifier) SubscribeModestly(ids ...ID) *Subscription { return h.subscribe(Modest, ids) }

func (h *Notifier) subscribe(d Demand, ids []ID) *Subscription {
	s := &Subscription{hub: h, c: make(chan Change, 16), shown: make(chan observation, 1), ids: ids, demand: d}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[s] = struct{}{}
	h.reconsider()
	return s
}

// Subscription is one waiter's view of a [Notifier].
type Subscription struct {
	hub    *Notifier
	c      chan Change
	shown  chan observation
	ids    []ID
	demand Demand // guarded by the hub's mutex
}

// SetDemand changes what the subscription asks for.
func (s *Subscription) SetDemand(d Demand) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.demand != d {
		s.demand = d
		s.hub.reconsider()
	}
}

// C delivers the changes. A reader that falls behind gets one zero Change in
// place of all that it missed.
func (s *Subscription) C() <-chan Change { return s.c }

// Close ends the subscription; C is not closed.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
	s.hub.reconsider()
}

func (s *Subscription) wants(id ID) bool {
	return len(s.ids) == 0 || slices.Contains(s.ids, id)
}

// push never blocks: only the hub sends, under its lock, so that once the
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
