package intake

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/messagerouter"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// withGrace returns a context that lasts for stopGrace longer than ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(lasting, stopGrace)
		cancel()
	})
	return lasting, func() { stop(); cancel() }
}

// recordHalves stores beats of which one, at least, cannot be, each by itself if need be.
func (r *Router) recordHalves(ctx context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, bool) {
	if len(beats) == 1 {
		return []monitor.Outcome{monitor.Malformed}, true
	}
	half := len(beats) / 2
	first, ok := r.record(ctx, beats[:half])
	if !ok {
		return nil, false
	}
	second, ok := r.record(ctx, beats[half:])
	if !ok {
		return nil, false
	}
	return append(first, second...), true
}

// recordFailure counts a poll that failed, logs the first one, and returns how long to pause.
func (r *Router) recordFailure(err error) time.Duration {
	r.failed++
	wait := backoff.Pause(r.failed, pauseLeast, pauseMost)
	said, after := describe(err)
	if errors.Is(err, messagerouter.ErrTooLarge) {
		r.limit, r.good = max(1, r.limit/2), 0
		r.cfg.Rejected.Add(RejectedInput{At: time.Now(), Path: r.cfg.Name, Cause: Answer, Detail: said})
	} else if errors.Is(err, messagerouter.ErrAnswer) {
		r.cfg.Rejected.Add(RejectedInput{At: time.Now(), Path: r.cfg.Name, Cause: Answer, Detail: said})
	}
	fresh := false
	r.count(func(s *RouterStats) {
		s.Failures++
		s.Limit = r.limit
		fresh = kind(s.Error) != kind(said)
		if s.Error == "" {
			s.Since = time.Now()
		}
		s.Error = said
	})
	if fresh {
		r.cfg.Logger.Warn("poll failed; its path counts as blind", "router", r.cfg.Name, "err", said)
	}
	return max(wait, min(after, 2*pauseMost))
}

func (r *Router) recovered() {
	r.failed = 0
	var since time.Time
	r.count(func(s *RouterStats) { since, s.Error, s.Since = s.Since, "", time.Time{} })
	if !since.IsZero() {
		r.cfg.Logger.Info("poll succeeded again", "router", r.cfg.Name, "after", time.Since(since).Round(time.Millisecond))
	}
}

// grow raises a limit that was lowered, when answers have fitted for a while.
func (r *Router) grow() {
	if r.good++; r.limit < r.cfg.Limit && r.good >= growAfter {
		r.limit, r.good = min(2*r.limit, r.cfg.Limit), 0
		r.count(func(s *RouterStats) { s.Limit = r.limit })
	}
}

// describe says what is wrong with a poll, and when the router wants to be asked again.
func describe(err error) (string, time.Duration) {
	refused, ok := errors.AsType[*messagerouter.Error](err)
	switch {
	case !ok:
		return err.Error(), 0
	case refused.Status == 409:
		return "conflict: another process polls as this consumer; give each instance a consumer id of its own (" + refused.Error() + ")", refused.RetryAfter
	}
	return refused.Error(), refused.RetryAfter
}

// kind is a description without what differs from one poll to the next.
func kind(said string) string { return said[:min(len(said), 40)] }

// sleep waits on the clock of this host, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool { return lease.Sleep(ctx, lease.BootClock(), d) }
