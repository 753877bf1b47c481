package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// ErrBusy: the intake's queue is full, and nothing was recorded. Try again after a moment.
var ErrBusy = errors.New("monitor: the intake queue is full")

// Heartbeat is a sign of life, as its sender sent it.
type Heartbeat struct {
	Check, Source string
	Signal        Signal
	// Code is the exit status of a run, 0 without one.
	Code int
	// Sent is the sender's time, and Seq its number; zero when it did not say.
	Sent time.Time
	Seq  int64
	// Run: see [HeartbeatUpdate].
	Run int64
}

// Outcome is what became of a heartbeat.
type Outcome uint8

// Outcomes.
const (
	Accepted  Outcome = iota // stored
	Unknown                  // its check is not configured, or is fixed and the source is not declared
	Full                     // its check has learned as many sources as it may
	Malformed                // its names or its signal are not valid
)

// IntakeConfig configures an [Intake]. No setting reaches its numbers: they are for tests and for programs.
type IntakeConfig struct {
	// Store to record in. Required.
	Store HeartbeatStore
	// Clock of this host. Default: lease.BootClock.
	Clock lease.Clock
	// MaxQueue is how many heartbeats may wait, including those on their way to the store. Default 50,000.
	MaxQueue int
	// MaxBatch is how many heartbeats go into one flush. Default 5,000; at most MaxBeats.
	MaxBatch int
	// ProbeInterval is how often paths are probed when there is nothing to store. Default 500 ms.
	ProbeInterval time.Duration
	// StopGrace is how long an intake that stops keeps trying to store what it accepted. Default 5 s.
	StopGrace time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// staleAfter × ProbeInterval is how long a path counts as working after a probe, and how long a probe may wait to be
// recorded. Four, so that one slow flush and one lost request in a row make no blind period.
const staleAfter = 4

func (c IntakeConfig) withDefaults() IntakeConfig {
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	c.MaxQueue = cmp.Or(c.MaxQueue, 50_000)
	c.MaxBatch = cmp.Or(c.MaxBatch, 5000)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, 500*time.Millisecond)
	c.StopGrace = cmp.Or(c.StopGrace, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid]. Zero fields count as
// their defaults.
func (c IntakeConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Store == nil:
		return fmt.Errorf("%w: an intake needs a store", lease.ErrInvalid)
	case c.MaxBatch < 1 || c.MaxBatch > MaxBeats:
		return fmt.Errorf("%w: %d beats in a flush; use 1 to %d", lease.ErrInvalid, c.MaxBatch, MaxBeats)
	case c.MaxQueue < c.MaxBatch:
		return fmt.Errorf("%w: a queue of %d beats is smaller than one flush of %d", lease.ErrInvalid, c.MaxQueue, c.MaxBatch)
	case c.ProbeInterval < 0 || c.StopGrace < 0:
		return fmt.Errorf("%w: durations cannot be negative", lease.ErrInvalid)
	}
	return nil
}

// Intake receives heartbeats on this instance and stores them in batches. Heartbeats that arrive while a flush is under
// way go into the next one. Any number of instances do so at once.
//
// One flush is under way at a time. That keeps the heartbeats of a source in order without any other coordination, and costs
// no throughput: the longer a flush takes, the larger is the next.
type Intake struct {
	cfg    IntakeConfig
	queue  queue
	calls  sync.Pool
	runs   atomic.Bool
	cached atomic.Int64

	mu    sync.Mutex
	paths []*IntakePath
	stats IntakeStats

	health *lease.StoreHealth
}

// IntakeStats counts what an [Intake] did since it was made.
type IntakeStats struct {
	Queued int // heartbeats that wait now
	Cached int // IDs of sources in the cache
	// Heartbeats by outcome. Replayed ones are among the accepted, those of a check that is Full among the unknown.
	Accepted, Unknown, Malformed, Replayed int64
	Busy                                   int64 // calls that were refused because the queue was full
	// Flushes that were stored, the updates in them, and how long they took together.
	Flushes, Updates int64
	Latency          time.Duration
	Failures         int64 // requests to the store that failed; each is retried while a caller waits
	// FailingFor is for how long the store has refused what the intake is doing at FailingAt, and Failure why; nil: it
	// refuses nothing.
	FailingFor time.Duration
	FailingAt  string
	Failure    error
	Resolved   int64 // names that were looked up in the store
}

// NewIntake checks the configuration; see [IntakeConfig.Validate].
func NewIntake(cfg IntakeConfig) (*Intake, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	in := &Intake{cfg: cfg.withDefaults()}
	in.health = lease.NewStoreHealth(in.cfg.Clock)
	in.queue.room, in.queue.arrived = in.cfg.MaxQueue, make(chan struct{}, 1)
	in.calls.New = func() any { return &call{done: make(chan error, 1)} }
	return in, nil
}

// PathConfig describes an intake path.
type PathConfig struct {
	// Name of the path. Instances that share a way in use the same name.
	Name string
	// TrustFor is how long after a probe the path counts as working, and MaxGap the longest time allowed between two
	// probes. Both are 4 × ProbeInterval by default, if the path is Synchronous.
	TrustFor, MaxGap time.Duration
	// Synchronous: whatever is sent by this path arrives here at once or not at all,
	// so that each flush proves it, as long as Run runs and refuses nothing. Others are proven by
	// [IntakePath.RecordProbe].
	Synchronous bool
}

// IntakePath is one way in which heartbeats come into an [Intake].
type IntakePath struct {
	in        *Intake
	cfg       PathConfig
	refusedAt atomic.Int64 // when a call was last refused because the queue was full, on this host's clock; 0: never
}

// OpenPath opens a path. One that is open already is returned as it is.
func (in *Intake) OpenPath(cfg PathConfig) *IntakePath {
	if cfg.Synchronous && cfg.TrustFor == 0 {
		cfg.TrustFor = staleAfter * in.cfg.ProbeInterval
	}
	if cfg.Synchronous && cfg.MaxGap == 0 {
		cfg.MaxGap = staleAfter * in.cfg.ProbeInterval
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if i := slices.IndexFunc(in.paths, func(f *IntakePath) bool { return f.cfg.Name == cfg.Name }); i >= 0 {
		return in.paths[i]
	}
	f := &IntakePath{in: in, cfg: cfg}
	in.paths = append(in.paths, f)
	return f
}

func (in *Intake) open() []*IntakePath {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clip(in.paths)
}

// Stats returns the counts so far.
func (in *Intake) Stats() IntakeStats {
	in.mu.Lock()
	s := in.stats
	in.mu.Unlock()
	s.Queued, s.Cached = in.queue.waiting(), int(in.cached.Load())
	s.FailingFor, s.FailingAt, s.Failure = in.health.Failing()
	return s
}

func (in *Intake) count(f func(*IntakeStats)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f(&in.stats)
}

// Record returns when the heartbeats are stored, with the outcome of each. The heartbeats of a source keep their
// order, also among calls if one returned before the next was made. Errors: [ErrBusy] at once, with nothing recorded,
// if the queue has no room; lease.ErrInvalid if it never could have; lease.ErrUnavailable if nothing was stored; and
// lease.ErrUnknown if some may have been, with the cause of ctx if that ended first. Recording a heartbeat twice does no
// harm.
func (f *IntakePath) Record(ctx context.Context, beats []Heartbeat) ([]Outcome, error) {
	if len(beats) == 0 {
		return nil, ctx.Err()
	}
	return f.in.enter(ctx, f, beats)
}

// RecordProbe records that whatever was sent by this path until now has been recorded: call it after Record has returned
// for all of that. Its errors are those of Record; lease.ErrUnavailable also if it waited for longer than
// 4 × ProbeInterval, because the path may have failed since.
func (f *IntakePath) RecordProbe(ctx context.Context) error {
	_, err := f.in.enter(ctx, f, nil)
	return err
}

func (in *Intake) enter(ctx context.Context, f *IntakePath, beats []Heartbeat) ([]Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(beats) > in.cfg.MaxQueue {
		return nil, fmt.Errorf("%w: %d beats at once; at most %d fit into the queue", lease.ErrInvalid, len(beats), in.cfg.MaxQueue)
	}
	c, _ := in.calls.Get().(*call)
	// The caller may leave before the heartbeats are stored, and reuse its slice.
	c.path, c.beats, c.outcomes = f, append(c.beats[:0], beats...), make([]Outcome, len(beats))
	c.left, c.err, c.arrivedAt = len(beats), nil, in.cfg.Clock.Now()
	if err := in.queue.push(c); err != nil {
		if errors.Is(err, ErrBusy) {
			f.refusedAt.Store(int64(in.cfg.Clock.Now()))
			in.count(func(s *IntakeStats) { s.Busy++ })
		}
		return nil, err
	}
	select {
	case err := <-c.done:
		outcomes := c.outcomes
		clear(c.beats) // names are parts of larger texts, which must not be kept alive
		c.outcomes = nil
		in.calls.Put(c)
		if err != nil {
			return nil, err
		}
		return outcomes, nil
	case <-ctx.Done():
		if in.queue.abandon(c) {
			return nil, fmt.Errorf("%w: the heartbeats waited in the queue: %w", lease.ErrUnavailable, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%w: the heartbeats were being stored: %w", lease.ErrUnknown, context.Cause(ctx))
	}
}
