package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// loop is one request that is made again and again. It backs off while the request fails, and logs the
// first failure.
type loop struct {
	w     *Watcher
	doing string
	tries int
	at    time.Duration // of the next request
}

func (w *Watcher) loop(doing string) *loop { return &loop{w: w, doing: doing} }

// due reports whether it is time.
func (l *loop) due() bool { return l.w.clock.Now() >= l.at }

// scheduleNext sets the time of the next after the outcome err.
func (l *loop) scheduleNext(err error, every time.Duration) {
	l.at = l.w.clock.Now() + l.delayAfter(err, every)
}

// delayAfter returns how long to wait after the outcome err: every, or a back-off.
func (l *loop) delayAfter(err error, every time.Duration) time.Duration {
	l.w.health.Record(l.doing, err)
	switch {
	case err == nil:
		if l.tries > 0 {
			l.w.log.Info(lease.StoreAnswers, "doing", l.doing, "after", l.tries)
		}
		l.tries = 0
		return every
	case errors.Is(err, context.Canceled):
		return every // Run stops
	}
	if l.tries++; l.tries == 1 {
		l.w.log.Warn("store request failed; retrying", "doing", l.doing, "err", err)
	}
	l.w.count(func(s *WatchStats) { s.Failures++ })
	return max(every, backoff.Pause(l.tries, 100*time.Millisecond, 2*time.Second))
}

// withinTimeout makes one request to the store, within storeTimeout.
func withinTimeout[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return request(ctx)
}

// request makes one request to the store that only succeeds or fails.
func (w *Watcher) request(ctx context.Context, f func(context.Context) error) error {
	_, err := withinTimeout(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
