package elect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// DefaultStopGrace is how long work may take to stop when nothing else is said.
const DefaultStopGrace = time.Second

// Config describes one campaign.
type Config struct {
	// Keeper of this instance's session; its Run must be running. Required.
	Keeper *lease.Keeper
	// Role to campaign for. Required; see [ValidateRole].
	Role string
	// Holders that the role may have at a time. Default 1. All contenders for a
	// role must say the same.
	Holders int
	// With, when not "", is another role: this one is campaigned for and held
	// only while an instance of the same name holds that one.
	With string
	// StopGrace is how long the work may take to return once its context is
	// cancelled. Default 1 s. The keeper's timing must be T ≥ 3·I + StopGrace.
	StopGrace time.Duration
	// Overrun is called once if the work still runs when trust ends, that is
	// when it ignored its context for StopGrace. Ending the process is then the
	// only way to keep the promise. Default: log an error.
	Overrun func()
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate checks the configuration; errors wrap lease.ErrInvalid or
// lease.ErrUnsafeTiming.
func (c Config) Validate() error {
	if c.Keeper == nil {
		return fmt.Errorf("%w: a campaign needs a keeper", lease.ErrInvalid)
	}
	if err := ValidateRole(c.Role); err != nil {
		return err
	}
	if c.Holders < 0 || c.Holders > MaxHolders {
		return fmt.Errorf("%w: role %q: %d holders; 1 to %d are possible", lease.ErrInvalid, c.Role, c.Holders, MaxHolders)
	}
	if c.With != "" {
		if err := ValidateRole(c.With); err != nil {
			return err
		}
		if c.With == c.Role {
			return fmt.Errorf("%w: role %q cannot be held only with itself", lease.ErrInvalid, c.Role)
		}
	}
	return c.Keeper.Timing().Validate(c.stopGrace())
}

func (c Config) stopGrace() time.Duration {
	if c.StopGrace == 0 {
		return DefaultStopGrace
	}
	return c.StopGrace
}

// Term is a primary's time in office, as its work is told.
type Term struct {
	Role string
	// Instance that is primary.
	Instance lease.Instance
	// Number is the term: the fencing token. Every effect should carry it.
	Number int64
	// Lease is that of the role, or of the place that was taken in it.
	Lease lease.ID
	// Live is the session behind it: ask it whether it may still be believed in.
	Live *lease.Live
}

// Work is what a primary does. It returns soon after ctx is cancelled; the
// cause tells why: lease.ErrLost, lease.ErrResign, [ErrMoved], or the caller's.
type Work func(ctx context.Context, term Term) error

// Campaign waits for the role, runs the work once as its primary, and gives the
// role back when the work has returned. It returns what the work returned, or,
// if the work was stopped before it returned by itself, an error that wraps the
// cause. It returns early, without having been primary, when ctx ends.
func Campaign(ctx context.Context, cfg Config, work Work) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	c := newCampaign(cfg)
	held, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	return c.hold(ctx, held, work)
}

// Run campaigns for the role again whenever it was lost, resigned, or had to be
// left, until the work returns by itself or ctx ends. Having resigned, it lets
// others go first.
func Run(ctx context.Context, cfg Config, work Work) error {
	for {
		err := Campaign(ctx, cfg, work)
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, lease.ErrResign):
			if err := LetOthers(ctx, cfg); err != nil {
				return err
			}
		case errors.Is(err, lease.ErrLost) || errors.Is(err, ErrMoved):
		default:
			return err
		}
	}
}

// LetOthers waits until every place of the role is held, or one T has passed: what an
// instance that resigned does before it campaigns again.
func LetOthers(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Keeper.Timing().Timeout, errNobody)
	defer cancel()
	places := Leases(cfg.Role, max(1, cfg.Holders))
	err := await(ctx, cfg.Keeper, places, cfg.Keeper.Timing().Interval, func(ctx context.Context) (bool, error) {
		for _, id := range places {
			l, err := cfg.Keeper.Store().Get(ctx, id)
			if err != nil || !l.Held() {
				return false, err
			}
		}
		return true, nil
	})
	if errors.Is(err, errNobody) {
		return nil
	}
	return err
}

var errNobody = errors.New("elect: nobody else took the role")

type campaign struct {
	Config
	log *slog.Logger
}

func newCampaign(cfg Config) *campaign {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &campaign{Config: cfg, log: log.With("role", cfg.Role, "name", cfg.Keeper.Instance().Name)}
}

// acquire waits for the role, and for the role that it must be held with.
func (c *campaign) acquire(ctx context.Context) (*lease.Held, error) {
	want := lease.Want{Leases: Leases(c.Role, max(1, c.Holders)), Margin: c.stopGrace()}
	if c.With == "" {
		return c.Keeper.Acquire(ctx, want)
	}
	for {
		if err := await(ctx, c.Keeper, c.near(), c.Keeper.Timing().Interval, c.isNear); err != nil {
			return nil, err
		}
		near, cancel := context.WithCancelCause(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			if err := await(near, c.Keeper, c.near(), c.Keeper.Timing().Interval, c.isFar); err == nil {
				cancel(ErrMoved)
			}
		}()
		held, err := c.Keeper.Acquire(near, want)
		cancel(nil)
		<-stopped
		if err == nil || !errors.Is(err, ErrMoved) {
			return held, err
		}
	}
}

// near is what to watch for the role that this one is held with.
func (c *campaign) near() []lease.ID { return Leases(c.With, 1) }

func (c *campaign) isNear(ctx context.Context) (bool, error) {
	l, err := c.Keeper.Store().Get(ctx, c.near()[0])
	return err == nil && l.Held() && strings.EqualFold(l.Holder.Name, c.Keeper.Instance().Name), err
}

func (c *campaign) isFar(ctx context.Context) (bool, error) {
	near, err := c.isNear(ctx)
	return err == nil && !near, err
}

// hold runs the work under the lease, and gives the lease back.
func (c *campaign) hold(ctx context.Context, held *lease.Held, work Work) error {
	log := c.log.With("term", held.Term)
	cancellable, cancel := context.WithCancelCause(ctx)
	// Bound last: a context derived from a bound one would not ask the clock.
	workCtx, release := held.Live.Bind(cancellable, c.stopGrace())
	watched := make(chan string, 1)
	go func() { watched <- c.watch(workCtx, held, cancel) }()
	overrun := c.guardOverrun(workCtx, held.Live, log)

	var err error
	if workCtx.Err() == nil { // or trust ran out while the answer was under way
		log.Info("primary", "lease", held.ID.String())
		err = work(workCtx, Term{Role: c.Role, Instance: c.Keeper.Instance(), Number: held.Term, Lease: held.ID, Live: held.Live})
	}
	stopped := workCtx.Err() != nil
	cause := context.Cause(workCtx)

	cancel(nil)
	overrun()
	successor := <-watched
	reason := reasonFor(cause, stopped, err)
	if errors.Is(cause, lease.ErrLost) {
		log.Warn("lost the role", "err", err)
	} else {
		log.Info("leaving the role", "reason", reason)
	}
	releaseErr := held.Release(ctx, successor, reason)
	release()
	if stopped {
		if err == nil || errors.Is(err, context.Canceled) {
			err = cause
		} else {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
	}
	if releaseErr != nil {
		log.Warn("the role was not given back", "err", releaseErr)
	}
	return err
}

// reasonFor is what the history says about the end of a term.
func reasonFor(cause error, stopped bool, err error) string {
	switch {
	case !stopped && err != nil:
		return "work failed: " + err.Error()
	case !stopped:
		return "work done"
	case errors.Is(cause, lease.ErrResign):
		return "resigned"
	case errors.Is(cause, lease.ErrLost):
		return "lost"
	case errors.Is(cause, ErrMoved):
		return "moved"
	default:
		return "stopped"
	}
}

// watch cancels the work when the store says that it should end: another holder,
// a request to resign, or the role to be held with gone elsewhere. It returns
// the successor that was asked for.
func (c *campaign) watch(ctx context.Context, held *lease.Held, cancel context.CancelCauseFunc) (successor string) {
	// What concerns the lease itself is told by a wake-up or with a renewal; that
	// the holder of another role lapsed is told by nobody.
	ids, every := []lease.ID{held.ID}, 10*c.Keeper.Timing().Interval
	if c.With != "" {
		ids, every = append(ids, c.near()...), c.Keeper.Timing().Interval
	}
	// The error is the cause of the work's context, which its owner knows.
	_ = await(ctx, c.Keeper, ids, every, func(ctx context.Context) (bool, error) {
		l, err := c.Keeper.Store().Get(ctx, held.ID)
		if err != nil {
			return false, err
		}
		switch {
		case l.Session != held.Session || l.Term != held.Term || l.Ended:
			cancel(lease.ErrLost)
			return true, nil
		case l.Asked:
			successor = l.AskedFor
			cancel(lease.ErrResign)
			return true, nil
		}
		if c.With == "" {
			return false, nil
		}
		far, err := c.isFar(ctx)
		if far {
			cancel(ErrMoved)
		}
		return far, err
	})
	return successor
}

// guardOverrun calls Overrun if the work, having been told to stop, is still
// there when trust ends. The returned function says that the work has returned.
func (c *campaign) guardOverrun(workCtx context.Context, live *lease.Live, log *slog.Logger) (workReturned func()) {
	returned, finished := make(chan struct{}), make(chan struct{})
	clock := c.Keeper.Clock()
	go func() {
		defer close(finished)
		// The end of trust as last told. A session that the store refuses is over
		// at once, but its role was nobody else's before that end.
		end := clock.Now() + c.stopGrace()
		for told := workCtx.Done(); ; {
			until, changed := live.Until()
			if until > 0 {
				end = until
			}
			left := end - clock.Now()
			if told == nil && left <= 0 {
				break
			}
			timer, stop := clock.Timer(max(left, time.Millisecond))
			select {
			case <-returned:
				stop()
				return
			case <-told:
				told = nil
			case <-changed:
			case <-timer:
			}
			stop()
		}
		select {
		case <-returned:
			return
		default:
		}
		log.Error("the work ignored its context until the end of trust", "grace", c.stopGrace())
		if c.Overrun != nil {
			c.Overrun()
		}
	}()
	return func() { close(returned); <-finished }
}
