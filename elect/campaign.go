package elect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// DefaultStopGrace is how long work may take to stop by default.
const DefaultStopGrace = time.Second

// Config describes one campaign.
type Config struct {
	// Keeper of this instance's session; its Run must be running. Required.
	Keeper *lease.Keeper
	// Role to campaign for. Required; see [ValidateRole].
	Role string
	// Holders that the role may have at a time. Default 1. All contenders for a
	// role must say the same: see [ErrHolders].
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
	return cmp.Or(c.StopGrace, DefaultStopGrace)
}

// Term is one tenure of a primary, passed to its work.
type Term struct {
	Role string
	// Instance that is primary.
	Instance lease.Instance
	// Number is the term: the fencing token. Every effect should carry it.
	Number int64
	// Lease of the role, or of the place in it that this instance holds.
	Lease lease.ID
	// Session is the session behind it: Session.Valid says whether it may still be
	// trusted.
	Session *lease.ActiveSession

	held *lease.HeldLease
}

// Place is which place in the role this instance holds: 1, but for a role with several holders.
func (t Term) Place() int { return placeOf(t.Lease.Key) }

// ReadState returns what the last primaries left for this one, or what this one has
// written: see lease.StateStore. Of a role with several holders each place has a state of its own.
func (t Term) ReadState(ctx context.Context) (lease.State, error) { return t.held.ReadState(ctx) }

// WriteState replaces it, up to lease.MaxState bytes. It is lease.ErrNotHeld once the term has ended.
func (t Term) WriteState(ctx context.Context, data []byte) error { return t.held.WriteState(ctx, data) }

// Work is what a primary does. It returns soon after ctx is cancelled; the
// cause tells why: lease.ErrLost, lease.ErrResign, [ErrMoved], or the caller's.
// After a panic that the caller recovers, the role is released an interval later.
type Work func(ctx context.Context, term Term) error

// Campaign waits for the role, runs the work once as its primary, and releases the
// role when the work has returned. It returns what the work returned, or,
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
	return c.runWork(ctx, held, work)
}

// RunWork runs the work once under a lease that the caller has acquired, and releases that when the work has
// returned. It returns what [Campaign] does. The lease need not be that of a role: cfg.Role is only its name in the log.
func RunWork(ctx context.Context, cfg Config, held *lease.HeldLease, work Work) error {
	return newCampaign(cfg).runWork(ctx, held, work)
}

// Run campaigns again whenever the role was lost, resigned or had to move, until the
// work returns by itself, ctx ends, or the keeper cannot continue. After resigning, it lets others go first; after a loss
// under a session that is still valid, it pauses for an interval.
func Run(ctx context.Context, cfg Config, work Work) error {
	for {
		var session *lease.ActiveSession // of the term, if there was one
		err := Campaign(ctx, cfg, func(ctx context.Context, term Term) error {
			session = term.Session
			return work(ctx, term)
		})
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, lease.ErrResign):
			if err := LetOthers(ctx, cfg); err != nil {
				return err
			}
		case errors.Is(err, lease.ErrLost):
			// What ended this term, such as the end of the program's watcher, may end the next one as soon: do not spin.
			if session != nil && session.Valid() && !lease.Sleep(ctx, cfg.Keeper.Clock(), cfg.Keeper.Timing().Interval) {
				return context.Cause(ctx)
			}
		case errors.Is(err, ErrMoved):
		default:
			return err
		}
	}
}

type campaign struct {
	Config
	log *slog.Logger
}

func newCampaign(cfg Config) *campaign {
	log := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &campaign{Config: cfg, log: log.With("role", cfg.Role, "name", cfg.Keeper.Instance().Name)}
}

// acquire waits for the role, and for the role that it must be held with.
func (c *campaign) acquire(ctx context.Context) (*lease.HeldLease, error) {
	reporting, stop := context.WithCancel(ctx)
	defer stop() // and no wait for its end: it may be stuck in a line of the log, and the role may be ours
	var report standbyReport
	go report.run(reporting, c)
	want := lease.AcquireRequest{Leases: Leases(c.Role, max(1, c.Holders)), Margin: c.stopGrace(), Shown: report.show}
	if err := c.checkHolders(ctx); err != nil {
		return nil, err
	}
	if c.With == "" {
		return c.Keeper.Acquire(ctx, want)
	}
	for {
		if err := awaitCondition(ctx, c.Keeper, c.companionLeases(), c.Keeper.Timing().Interval, c.isCompanionHere); err != nil {
			return nil, err
		}
		near, cancel := context.WithCancelCause(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			if err := awaitCondition(near, c.Keeper, c.companionLeases(), c.Keeper.Timing().Interval, c.isCompanionElsewhere); err == nil {
				cancel(ErrMoved)
			}
		}()
		held, err := c.Keeper.Acquire(near, want)
		cancel(nil)
		<-stopped
		if err == nil || !errors.Is(err, ErrMoved) {
			return held, err
		}
		report.clear()
	}
}

// checkHolders refuses to campaign beside an instance that allows another number of holders: both cannot be meant.
func (c *campaign) checkHolders(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, c.Keeper.Timing().CallTimeout())
	defer cancel()
	held, err := heldPlaces(call, c.Keeper.Store(), c.Role)
	if err != nil {
		return nil // acquiring finds out, and waits
	}
	allowed := max(1, c.Holders)
	for _, l := range held {
		if l.Places != 0 && l.Places != allowed {
			return fmt.Errorf("%w: role %q may have %d here, but %s allows %d (stop it, or allow %d here)",
				ErrHolders, c.Role, allowed, l.Holder.Name, l.Places, l.Places)
		}
	}
	return nil
}

// companionLeases is what to watch for the role that this one is held with. Its further places are read each interval.
func (c *campaign) companionLeases() []lease.ID { return Leases(c.With, 1) }

func (c *campaign) isCompanionHere(ctx context.Context) (bool, error) {
	return HeldBeside(ctx, c.Keeper, c.With)
}

func (c *campaign) isCompanionElsewhere(ctx context.Context) (bool, error) {
	near, err := c.isCompanionHere(ctx)
	return err == nil && !near, err
}

// runWork runs the work under the lease, then releases the lease.
func (c *campaign) runWork(ctx context.Context, held *lease.HeldLease, work Work) error {
	log := c.log.With("term", held.Term)
	cancellable, cancel := context.WithCancelCause(ctx)
	// Bound outermost: a context derived from a bound one answers from a flag that a
	// timer sets, and a paused process would believe it.
	workCtx, workReturned := held.Active.Bind(cancellable, c.stopGrace())
	// A keeper that stops must not end the session before the release has named the successor.
	defer held.Active.Retain()()
	watched := make(chan string, 1)
	go func() { watched <- c.watchLease(workCtx, held, cancel) }()
	overrun := c.watchOverrun(workCtx, held.Active, log)

	returned := false
	defer func() {
		if returned {
			return
		}
		// It panicked, or called runtime.Goexit. If nobody recovers that, the process is about to end, and with it what the work
		// has started: until then the role must not be another's. If somebody does, the keeper would hold it for nobody.
		cancel(nil)
		log.Error("the work panicked; the role is released if this process goes on")
		retained := held.Active.Retain()
		go func() {
			defer retained()
			lease.Sleep(context.WithoutCancel(ctx), c.Keeper.Clock(), c.Keeper.Timing().Interval)
			overrun()
			successor := <-watched
			workReturned()
			releaseHeld(ctx, log, held, successor, "work panicked")
		}()
	}()
	var err error
	if workCtx.Err() == nil {
		c.logBriefly(func() { log.Info("primary", "lease", held.ID.String()) })
	}
	// Trust may have run out while the acquisition's answer was on its way, or the log stalled.
	if workCtx.Err() == nil {
		err = work(workCtx, Term{Role: c.Role, Instance: c.Keeper.Instance(), Number: held.Term, Lease: held.ID, Session: held.Active, held: held})
	}
	returned = true
	stopped := workCtx.Err() != nil
	cause := context.Cause(workCtx)

	// The watch must end before the lease is released: after that, "another holder"
	// is no longer a loss.
	cancel(nil)
	overrun()
	successor := <-watched
	reason := reasonFor(cause, stopped, err)
	lost := errors.Is(cause, lease.ErrLost)
	if lost { // now: without the store the release takes two T
		c.logBriefly(func() { log.Warn("lost the role", "err", err) })
	}
	workReturned()
	if released := releaseHeld(ctx, log, held, successor, reason); released && !lost {
		log.Info("released the role", "reason", reason)
	}
	if stopped {
		return c.errorOfStopped(err, cause)
	}
	return err
}

// watchLease cancels the work when the store says that it must end: another holder, a
// request to resign, or the companion role moved elsewhere. It returns the requested
// successor.
func (c *campaign) watchLease(ctx context.Context, held *lease.HeldLease, cancel context.CancelCauseFunc) (successor string) {
	// A change of the lease itself comes with a wake-up or a renewal. A lapse of the
	// companion's holder changes nothing in the store, so it must be polled.
	ids, every := []lease.ID{held.ID}, time.Minute
	if c.With != "" {
		ids, every = append(ids, c.companionLeases()...), c.Keeper.Timing().Interval
	}
	// The error is the cause of the work's context, which its owner knows.
	_ = awaitCondition(ctx, c.Keeper, ids, every, func(ctx context.Context) (bool, error) {
		l, err := c.Keeper.Store().Get(ctx, held.ID)
		if err != nil {
			return false, err
		}
		switch {
		case l.Session != held.Session || l.Term != held.Term || l.Ended:
			cancel(lease.ErrLost)
			return true, nil
		case l.ReleaseRequested:
			successor = l.RequestedSuccessor
			cancel(lease.ErrResign)
			return true, nil
		}
		if c.With == "" {
			return false, nil
		}
		far, err := c.isCompanionElsewhere(ctx)
		if far {
			cancel(ErrMoved)
		}
		return far, err
	})
	return successor
}

// watchOverrun calls Overrun if the work was cancelled and still runs when trust
// ends. Call the returned function when the work has returned.
func (c *campaign) watchOverrun(workCtx context.Context, live *lease.ActiveSession, log *slog.Logger) (workReturned func()) {
	returned, finished := make(chan struct{}), make(chan struct{})
	clock := c.Keeper.Clock()
	go func() {
		defer close(finished)
		// The last known end of trust. A session that the store refuses ends at once,
		// but no other instance could hold its role before that end.
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
		if c.Overrun != nil {
			c.Overrun()
			return
		}
		log.Error("the work ignored its context until the end of trust", "grace", c.stopGrace())
	}()
	return func() { close(returned); <-finished }
}
