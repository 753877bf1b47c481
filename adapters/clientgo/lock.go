package clientgo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// Store is what a lock needs; every store of Understudy is one.
type Store interface {
	lease.Store
	lease.StateStore
}

// Config describes a lock. The durations must be those of the LeaderElectionConfig; their defaults are client-go's.
type Config struct {
	// Store that all candidates share. Required.
	Store Store
	// Role whose lease is the lock. Required: see elect.ValidateRole.
	Role string
	// Identity of this candidate, 1 to 200 bytes, and where clients reach it; the latter may be "".
	Identity, Address string
	// LeaseDuration, in whole seconds, is longer than RenewDeadline + 2·RetryPeriod. What it is longer by is how long the store may take
	// to answer. Default 15 s, 10 s and 2 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Clock of this host. Default lease.BootClock.
	Clock lease.Clock
}

// Lock is a [resourcelock.Interface] for one LeaderElector at a time.
type Lock struct {
	cfg      Config
	id       lease.ID
	instance lease.Instance
	timing   lease.Timing
	goesOn   time.Duration // for so long client-go leads after its last success
	answers  time.Duration // for so long an answer is worth something

	policy  lease.TakeoverPolicy
	failing bool // the last renewal failed
	tenure  atomic.Pointer[tenure]
}

var _ resourcelock.Interface = (*Lock)(nil)

// tenure is from an acquisition until client-go stops leading, even if it is lost or released before: then its trust is zero.
type tenure struct {
	session string
	term    int64
	trust   lease.Trust
}

// NewLock checks the configuration. Errors wrap lease.ErrInvalid or lease.ErrUnsafeTiming.
func NewLock(cfg Config) (*Lock, error) {
	cfg.LeaseDuration = cmp.Or(cfg.LeaseDuration, 15*time.Second)
	cfg.RenewDeadline = cmp.Or(cfg.RenewDeadline, 10*time.Second)
	cfg.RetryPeriod = cmp.Or(cfg.RetryPeriod, 2*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = lease.BootClock()
	}
	l := &Lock{
		cfg: cfg, instance: lease.NewInstance(cfg.Identity, cfg.Address), id: lease.ID{Space: elect.Space, Key: cfg.Role},
		timing: lease.Timing{Interval: cfg.RetryPeriod, Timeout: cfg.LeaseDuration},
		goesOn: cfg.RetryPeriod + cfg.RenewDeadline, // it pauses, then tries
	}
	l.answers = cfg.LeaseDuration - cfg.RetryPeriod - l.goesOn // of which trust takes the first RetryPeriod
	switch {
	case cfg.Store == nil:
		return nil, fmt.Errorf("%w: a lock needs a store", lease.ErrInvalid)
	case cfg.LeaseDuration%time.Second != 0:
		return nil, fmt.Errorf("%w: LeaseDuration is %v; client-go keeps whole seconds", lease.ErrInvalid, cfg.LeaseDuration)
	case cfg.RenewDeadline <= 0 || l.answers <= 0:
		return nil, fmt.Errorf("%w: LeaseDuration is %v; with RenewDeadline %v and RetryPeriod %v it must be longer than %v, or two could lead",
			lease.ErrUnsafeTiming, cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, l.goesOn+cfg.RetryPeriod)
	}
	return l, errors.Join(elect.ValidateRole(cfg.Role), l.instance.Validate(), l.timing.Validate(0))
}

// Term is the term under which this process leads, greater than all before; 0 when it does not.
func (l *Lock) Term() int64 {
	t := l.tenure.Load()
	if t == nil || t.trust.Remaining(l.cfg.Clock.Now()) == 0 {
		return 0
	}
	return t.term
}

// Identity implements [resourcelock.Interface].
func (l *Lock) Identity() string { return l.cfg.Identity }

// Describe implements [resourcelock.Interface].
func (l *Lock) Describe() string { return "role " + l.cfg.Role }

// RecordEvent implements [resourcelock.Interface]: client-go says here that it has stopped leading. Only then another term can begin.
func (l *Lock) RecordEvent(event string) {
	if event != "became leader" {
		l.tenure.Store(nil)
		l.failing = false
	}
}

// bound gives a call its deadline: at the latest when trust ends, so that client-go never leads on while it waits for an answer.
func (l *Lock) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	limit := l.answers
	if t := l.tenure.Load(); t != nil {
		if limit = min(limit, t.trust.Remaining(l.cfg.Clock.Now())); limit <= 0 {
			return nil, nil, l.lost(t)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, cancel, nil
}

// Get implements [resourcelock.Interface].
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel, err := l.bound(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	now, err := l.cfg.Store.Get(ctx, l.id)
	if err != nil {
		return nil, nil, err
	}
	state, err := l.cfg.Store.ReadState(ctx, l.id)
	if err != nil {
		return nil, nil, err
	}
	var record resourcelock.LeaderElectionRecord
	_ = json.Unmarshal(state.Data, &record) // if the role's last holder kept something else there, the record begins anew
	record.LeaseDurationSeconds = int(l.cfg.LeaseDuration / time.Second)
	received := l.cfg.Clock.Now()
	l.policy.Observe(now, received, now.Reserved > 0 && !l.instance.IsNamed(now.Successor), l.cfg.LeaseDuration)
	record.HolderIdentity = now.Holder.Name
	switch t := l.tenure.Load(); {
	case t != nil && now.Session == t.session:
	case l.policy.Due() <= received:
		record.HolderIdentity = "" // for client-go: acquire it now
	case now.Session == "":
		record.HolderIdentity = now.Successor
	case record.HolderIdentity == l.cfg.Identity:
		record.HolderIdentity += " (another process)" // client-go would believe that it leads
	}
	return &record, fmt.Appendf(nil, "%s %d %d", state.Data, now.Term, now.Seq), nil
}

// Create implements [resourcelock.Interface].
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update implements [resourcelock.Interface]: it acquires, renews or releases.
func (l *Lock) Update(parent context.Context, record resourcelock.LeaderElectionRecord) error {
	before := l.tenure.Load()
	t := before
	deadline, ok := parent.Deadline()
	switch {
	case record.HolderIdentity == "":
		return l.release(parent, t)
	case record.LeaseDurationSeconds != int(l.cfg.LeaseDuration/time.Second), ok && t != nil && time.Until(deadline) > l.cfg.RenewDeadline:
		return fmt.Errorf("%w: the LeaderElectionConfig has other durations than the lock of %s (give both the same)", lease.ErrInvalid, l.Describe())
	}
	ctx, cancel, err := l.bound(parent)
	if err != nil {
		return err
	}
	defer cancel()
	// Read before the request is sent: the store counts from any moment after.
	trust := lease.NewTrust(l.cfg.Clock.Now(), l.timing)
	acquiring := t == nil
	if acquiring {
		t, err = l.acquire(ctx)
	} else {
		_, err = l.cfg.Store.RenewSession(ctx, t.session)
	}
	if err == nil {
		data, _ := json.Marshal(record) // it has no type that could fail
		err = l.cfg.Store.WriteState(ctx, l.id, t.term, data)
	}
	if err == nil && trust.Remaining(l.cfg.Clock.Now()) <= l.goesOn {
		err = fmt.Errorf("%w: %s: the store took longer than %v to answer", lease.ErrUnknown, l.Describe(), l.answers)
	}
	if err == nil && !l.tenure.CompareAndSwap(before, &tenure{t.session, t.term, trust}) {
		err = l.lost(t) // it ended while the store answered, and the work was told so
	}
	switch {
	case err == nil:
		l.failing = false
		return nil
	case acquiring && t != nil:
		_ = l.end(parent, t.session, "not acquired in time") // or it lapses
	case errors.Is(err, lease.ErrLapsed) || errors.Is(err, lease.ErrNotHeld):
		l.tenure.Store(&tenure{session: t.session, term: t.term})
	}
	// That the caller has ended its context is not a failure: it may release then.
	l.failing = l.failing || !acquiring && !errors.Is(parent.Err(), context.Canceled)
	return err
}

// acquire starts a session and acquires the lease as Get has shown it. The result has no trust yet; with an error, it is a session that
// may hold the lease all the same.
func (l *Lock) acquire(ctx context.Context) (*tenure, error) {
	now := l.cfg.Clock.Now()
	if l.policy.Due() > now {
		return nil, fmt.Errorf("%w: %s", lease.ErrHeld, l.Describe())
	}
	seen, waited := l.policy.Expectation(now)
	t := &tenure{session: lease.NewID()}
	if _, err := l.cfg.Store.StartSession(ctx, lease.Session{ID: t.session, Instance: l.instance, Timing: l.timing}); err != nil {
		return t, err
	}
	got, err := l.cfg.Store.Acquire(ctx, lease.Expectation{Lease: l.id, Session: t.session, Seen: seen, Waited: waited, Places: 1})
	t.term = got.Term
	return t, err
}

// release ends the session, and the lease with it. After a failed renewal client-go calls it before it has told the work to
// stop: then the lease must lapse.
func (l *Lock) release(parent context.Context, t *tenure) error {
	switch {
	case t == nil:
		return nil
	case l.failing:
		return fmt.Errorf("%s is not released, because the last renewal failed: it lapses", l.Describe())
	}
	l.tenure.Store(&tenure{session: t.session, term: t.term})
	return l.end(parent, t.session, "released")
}

func (l *Lock) end(parent context.Context, session, reason string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), l.answers)
	defer cancel()
	return l.cfg.Store.EndSession(ctx, session, reason)
}
