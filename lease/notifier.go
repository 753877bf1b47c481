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
	clock Clock
	log   *slog.Logger

	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// NewNotifier makes a notifier; nothing is woken until [Notifier.Run] runs. A nil clock is
// [BootClock], a nil logger is silent.
func NewNotifier(store Store, clock Clock, log *slog.Logger) *Notifier {
	if clock == nil {
		clock = BootClock()
	}
	return &Notifier{store: store, clock: clock, log: orDiscard(log), subs: map[*Subscription]struct{}{}}
}

// Run watches the store until ctx ends, and again when the watch breaks,
// after 50 ms to 5 s. It returns nil.
func (h *Notifier) Run(ctx context.Context) error {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	for retry := (backoff.Backoff{First: first, Most: most}); ; {
		started := h.clock.Now()
		err := h.store.Watch(ctx, h.Wake)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errors.ErrUnsupported) {
			<-ctx.Done()
			return nil
		}
		h.log.Debug("watch broke; polling goes on", "err", err)
		if h.clock.Now()-started > most {
			retry.Reset()
		}
		if !Sleep(ctx, h.clock, retry.Next()) {
			return nil
		}
	}
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

// Subscribe returns a subscription to the given leases, or to all when none is
// given. It must be closed.
func (h *Notifier) Subscribe(ids ...ID) *Subscription {
	s := &Subscription{hub: h, c: make(chan Change, 16), ids: ids}
	h.mu.Lock()
	h.subs[s] = struct{}{}
	h.mu.Unlock()
	return s
}

// Subscription is one waiter's view of a [Notifier].
type Subscription struct {
	hub *Notifier
	c   chan Change
	ids []ID
}

// C delivers the changes. A reader that falls behind gets one zero Change in
// place of all that it missed.
func (s *Subscription) C() <-chan Change { return s.c }

// Close ends the subscription; C is not closed.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	delete(s.hub.subs, s)
	s.hub.mu.Unlock()
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
