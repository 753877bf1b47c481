package monitor

import (
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

// ErrBusy: the inlet's queue is full, and nothing was taken. Try again after a
// moment.
var ErrBusy = errors.New("monitor: too many beats wait to be stored")

// Beat is a sign of life, as a sender told it.
type Beat struct {
	Event, Source string
	Signal        Signal
	// Code is the exit status of a run, 0 without one.
	Code int
	// Sent is the sender's time, and Seq its number; zero when it did not say.
	Sent time.Time
	Seq  int64
}

// Outcome is what became of a beat.
type Outcome uint8

// Outcomes.
const (
	Accepted  Outcome = iota // stored
	Unknown                  // its event is not configured, or is fixed and the source is not declared
	Malformed                // its names cannot be names, or its signal is none
)

// InletConfig tells an [Inlet] where to store beats.
type InletConfig struct {
	// Intake of the store. Required.
	Intake Intake
	// Clock of this host. Default: lease.BootClock.
	Clock lease.Clock
	// MaxQueue is how many beats may wait, those on their way to the store
	// included. Default 50,000.
	MaxQueue int
	// MaxBatch is how many beats go into one flush. Default 5,000; at most
	// MaxBeats.
	MaxBatch int
	// Every is how often paths are proven when nothing is to be stored. Default 500 ms.
	Every time.Duration
	// StopGrace is how long an inlet that stops goes on trying to store what it
	// has taken. Default 5 s.
	StopGrace time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// staleAfter is how many times Every a path counts as working after it was proven, and
// how many a proof may wait to be recorded.
const staleAfter = 4

func (c InletConfig) withDefaults() InletConfig {
	if c.Clock == nil {
		c.Clock = lease.BootClock()
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 50_000
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = 5000
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	if c.StopGrace == 0 {
		c.StopGrace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid]. Zero fields count as
// their defaults.
func (c InletConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Intake == nil:
		return fmt.Errorf("%w: an inlet needs a store", lease.ErrInvalid)
	case c.MaxBatch < 1 || c.MaxBatch > MaxBeats:
		return fmt.Errorf("%w: %d beats in a flush; use 1 to %d", lease.ErrInvalid, c.MaxBatch, MaxBeats)
	case c.MaxQueue < c.MaxBatch:
		return fmt.Errorf("%w: a queue of %d beats is smaller than one flush of %d", lease.ErrInvalid, c.MaxQueue, c.MaxBatch)
	case c.Every < 0 || c.StopGrace < 0:
		return fmt.Errorf("%w: durations cannot be negative", lease.ErrInvalid)
	}
	return nil
}

// Inlet takes beats in on this instance: those that come while a flush is under
// way go into the next one. Any number of instances do so at once.
//
// One flush is under way at a time. That keeps the beats of a source in order
// without asking what another flush does, and loses nothing: the next flush is as
// large as the last one took long.
type Inlet struct {
	cfg    InletConfig
	queue  queue
	calls  sync.Pool
	runs   atomic.Bool
	cached atomic.Int64

	mu    sync.Mutex
	paths []*Inflow
	stats InletStats
}

// InletStats counts what an [Inlet] did since it was made.
type InletStats struct {
	Queued int // beats that wait now
	Cached int // ids of sources that are known by heart
	// Beats by what became of them. Replayed ones are among the accepted.
	Accepted, Unknown, Malformed, Replayed int64
	Busy                                   int64 // calls that were refused because the queue was full
	// Flushes that were stored, the stamps in them, and how long they took together.
	Flushes, Stamps int64
	Latency         time.Duration
	Failures        int64 // requests to the store that failed; each was tried again while somebody waited
	Resolved        int64 // names that the store was asked about
}

// NewInlet checks the configuration; see [InletConfig.Validate].
func NewInlet(cfg InletConfig) (*Inlet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("inlet: %w", err)
	}
	in := &Inlet{cfg: cfg.withDefaults()}
	in.queue.room, in.queue.arrived = in.cfg.MaxQueue, make(chan struct{}, 1)
	in.calls.New = func() any { return &call{done: make(chan error, 1)} }
	return in, nil
}

// PathConfig describes a way that beats take.
type PathConfig struct {
	// Name of the path. Instances that have a way in common give it the same.
	Name string
	// Trust is how long after a proof it counts as working, and Gap the longest
	// that may lie between two proofs. Both are 4 × Every by default, if it is Steady.
	Trust, Gap time.Duration
	// Steady: whatever is sent by this path arrives here at once or not at all,
	// so that each flush proves it, as long as Run runs. Others are proven by
	// [Inflow.Prove].
	Steady bool
}

// Inflow is a path by which beats come into an [Inlet].
type Inflow struct {
	in  *Inlet
	cfg PathConfig
}

// Path opens a path. One that is open already is returned as it is.
func (in *Inlet) Path(cfg PathConfig) *Inflow {
	if cfg.Steady && cfg.Trust == 0 {
		cfg.Trust = staleAfter * in.cfg.Every
	}
	if cfg.Steady && cfg.Gap == 0 {
		cfg.Gap = staleAfter * in.cfg.Every
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if i := slices.IndexFunc(in.paths, func(f *Inflow) bool { return f.cfg.Name == cfg.Name }); i >= 0 {
		return in.paths[i]
	}
	f := &Inflow{in: in, cfg: cfg}
	in.paths = append(in.paths, f)
	return f
}

func (in *Inlet) open() []*Inflow {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clip(in.paths)
}

// Stats returns the counts so far.
func (in *Inlet) Stats() InletStats {
	in.mu.Lock()
	s := in.stats
	in.mu.Unlock()
	s.Queued, s.Cached = in.queue.waiting(), int(in.cached.Load())
	return s
}

func (in *Inlet) count(f func(*InletStats)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f(&in.stats)
}

// Take returns when the beats are stored, and tells for each what became of it.
// The order of one source is kept, among calls too if one returned before the next was
// made. It returns [ErrBusy] at once, and takes nothing, when the queue has no
// room; lease.ErrInvalid when it never could have; lease.ErrUnavailable when nothing was stored; and
// lease.ErrUnknown when some may have been, together with the cause of ctx if that ended first.
// To take beats twice does no harm.
func (f *Inflow) Take(ctx context.Context, beats []Beat) ([]Outcome, error) {
	if len(beats) == 0 {
		return nil, ctx.Err()
	}
	return f.in.enter(ctx, f, beats)
}

// Prove says that whatever was sent by this path until now has been taken. It
// returns when that is recorded; its errors are those of Take. It must be called
// after Take has returned for what came before. What waited for longer than 4 × Every
// proves nothing, and neither does what nobody waits for: lease.ErrUnavailable.
func (f *Inflow) Prove(ctx context.Context) error {
	_, err := f.in.enter(ctx, f, nil)
	return err
}

func (in *Inlet) enter(ctx context.Context, f *Inflow, beats []Beat) ([]Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(beats) > in.cfg.MaxQueue {
		return nil, fmt.Errorf("%w: %d beats at once; at most %d fit into the queue", lease.ErrInvalid, len(beats), in.cfg.MaxQueue)
	}
	c, _ := in.calls.Get().(*call)
	// The caller may leave before the beats are stored, and use the slice again.
	c.path, c.beats, c.outcomes = f, append(c.beats[:0], beats...), make([]Outcome, len(beats))
	c.left, c.err, c.came = len(beats), nil, in.cfg.Clock.Now()
	if err := in.queue.push(c); err != nil {
		if errors.Is(err, ErrBusy) {
			in.count(func(s *InletStats) { s.Busy++ })
		}
		return nil, err
	}
	select {
	case err := <-c.done:
		outcomes := c.outcomes
		clear(c.beats) // names are parts of larger texts, which need not be kept
		c.outcomes = nil
		in.calls.Put(c)
		if err != nil {
			return nil, err
		}
		return outcomes, nil
	case <-ctx.Done():
		if in.queue.leave(c) {
			return nil, fmt.Errorf("%w: the beats waited in the queue: %w", lease.ErrUnavailable, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%w: the beats were on their way: %w", lease.ErrUnknown, context.Cause(ctx))
	}
}
