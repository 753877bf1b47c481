package dispatch

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
)

// Config of a [Dispatcher]. MaxKeys, Streak, PollInterval, StopGrace and Jitter are for Go programs: no setting reaches them.
type Config struct {
	// Name of the queue. Required.
	Name string
	// Keeper of this instance's session, whose timing is that of Windows.
	// Required, as are Claims and Queue, which are of the keeper's store.
	Keeper *lease.Keeper
	Claims claim.KeyTable
	Queue  Queue
	// Target of the messages. Required.
	Target Target
	// Windows that keep keys from others. Default 30 s and 3 min.
	Windows claim.Windows
	// SubmitTimeout is the deadline of one submission. Default 15 s. The second
	// window must be longer.
	SubmitTimeout time.Duration
	// Concurrency is how many submissions of this instance may be in flight at once; what the target has and has not
	// decided does not count. While the target answers quickly, up to as many more are started and wait for a sender. Keys
	// whose results are not recorded yet are in a step, too, and do not count. Default 64, at most 1000.
	Concurrency int
	// Rate is how many submissions this instance may start per second. A key whose message turns out to be at the target
	// already counts as one. 0: no limit.
	Rate float64
	// MaxKeys is how many keys this instance claims at once. Default 16 for each
	// submission at once, and at least 1024.
	MaxKeys int
	// Streak is how many messages of one key are sent one after the other before
	// another key's turn. Default 8.
	Streak int
	// PollInterval is the scale of the pauses between status queries of a pending message. The first query about a message comes
	// after the time in which most of the messages before it were decided: 0.3 of the interval at the start, at most all of it. The
	// others come after 0.25, 0.5, 1, 2 … times the interval, at most 30 s, or the interval if that is longer. At most two queries
	// that name many messages are sent in one interval. Default 1 s.
	PollInterval time.Duration
	// UndecidedAfter is how long the target may have a message without deciding before operators see its key as blocked.
	// Default: what the target declares, or an hour.
	UndecidedAfter time.Duration
	// Admin of the same store. If not nil, keys that stay blocked are logged once a minute, whoever blocked them.
	Admin Admin
	// OnFailure and Retry: see their types.
	OnFailure OnFailure
	Retry     RetryPolicy
	// KeepFor is how long finished messages are kept. Default 7 days; negative: for
	// ever.
	KeepFor time.Duration
	// StopGrace is how long submissions in flight may continue when the dispatcher is
	// stopped; everything else is released at once. Default 5 s.
	StopGrace time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
	// Jitter returns a number in [0, 1). Several goroutines call it at a time. Default: the runtime's source.
	Jitter func() float64
}

func (c Config) withDefaults() Config {
	c.Windows = c.Windows.WithDefaults()
	c.SubmitTimeout = cmp.Or(c.SubmitTimeout, 15*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	if c.Target != nil {
		c.UndecidedAfter = cmp.Or(c.UndecidedAfter, c.Target.Semantics().Decides, time.Hour)
	}
	c.KeepFor = cmp.Or(c.KeepFor, 7*24*time.Hour)
	c.StopGrace = cmp.Or(c.StopGrace, 5*time.Second)
	c.Retry = c.Retry.WithDefaults()
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.MaxKeys = cmp.Or(c.MaxKeys, max(1024, 16*c.Concurrency))
	c.Streak = cmp.Or(c.Streak, 8)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid] or
// [lease.ErrUnsafeTiming]. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := ValidateQueue(c.Name); err != nil {
		return err
	}
	switch {
	case c.Keeper == nil || c.Claims == nil || c.Queue == nil || c.Target == nil:
		return fmt.Errorf("%w: a dispatcher needs a keeper, claims, a queue and a target", lease.ErrInvalid)
	case c.Concurrency < 1 || c.Concurrency > claim.MaxKeys:
		return fmt.Errorf("%w: %d submissions at once; use 1 to %d", lease.ErrInvalid, c.Concurrency, claim.MaxKeys)
	case !(c.Rate >= 0) || math.IsInf(c.Rate, 1) || c.MaxKeys < 1 || c.Streak < 1 || c.SubmitTimeout <= 0 || c.PollInterval <= 0 || c.UndecidedAfter < 0 || c.StopGrace < 0:
		return fmt.Errorf("%w: rate, max keys, streak, submit timeout, poll interval, undecided after and stop grace must be numbers, and cannot be negative", lease.ErrInvalid)
	case c.OnFailure != OnFailureDefault && c.OnFailure != OnFailureBlock && c.OnFailure != OnFailureSkip && c.OnFailure != OnFailureRetry:
		return fmt.Errorf("%w: on failure %q: use block, skip or retry", lease.ErrInvalid, c.OnFailure)
	case c.OnFailure == OnFailureRetry && c.Retry.MaxAge > 0:
		return fmt.Errorf("%w: a maximum age of %v: with on failure %q no message is given up", lease.ErrInvalid, c.Retry.MaxAge, c.OnFailure)
	case c.Keeper.Timing() != c.Windows.Timing():
		return fmt.Errorf("%w: the keeper's session has timing %v, and the windows need %v", lease.ErrInvalid, c.Keeper.Timing(), c.Windows.Timing())
	case c.Target.Semantics().Deduplicates && !c.Target.Semantics().Resend:
		return fmt.Errorf("%w: target %s deduplicates, so it must also declare Resend", lease.ErrInvalid, c.Target.Name())
	case c.Target.Semantics().HasStatus && c.Target.Semantics().StatusLimit < 1:
		return fmt.Errorf("%w: target %s can be asked about %d messages at once", lease.ErrInvalid, c.Target.Name(), c.Target.Semantics().StatusLimit)
	}
	if err := c.Retry.Validate(); err != nil {
		return err
	}
	return c.Windows.Validate(c.SubmitTimeout + StartSlack)
}

// StartSlack, 2 s, is what may pass between the start of a step in the store and the moment
// at which its submission is sent.
const StartSlack = 2 * time.Second

func (c Config) rule() Rule {
	return Rule{Semantics: c.Target.Semantics(), OnFailure: c.OnFailure, Retry: c.Retry}
}
