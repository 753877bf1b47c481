package elect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Primary is the holder of a role.
type Primary struct {
	Role    string    `json:"role"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Term    int64     `json:"term"`
	Since   time.Time `json:"since"` // by the store's clock
	// ExpiresIn is what is left before the holder lapses unless it renews.
	ExpiresIn time.Duration `json:"-"`
}

// Standby is an instance that waits for a role.
type Standby struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Role is the present state of a role: its holders (one, unless it has several
// places) and its standbys in the order in which they came.
type Role struct {
	Name     string
	Primary  []Primary
	Standbys []Standby
	// Term of the first place, and how long it has been vacant if it is.
	Term      int64
	VacantFor time.Duration
	// Takeover is within which time its standbys take over if it is vacant and the store answers, counted from the later of two
	// times: when it became vacant, and when the standby that started first did, StandbyFor ago by the store's clock.
	Takeover, StandbyFor time.Duration
}

// Resolve returns the primary of a role; of a role with several holders, the
// one in the first place that is held. [ErrVacant] when there is none.
func Resolve(ctx context.Context, store lease.Store, role string) (Primary, error) {
	holders, err := Holders(ctx, store, role)
	if err != nil {
		return Primary{}, err
	}
	return holders[0], nil
}

// Holders returns all holders of a role, in the order of their places; [ErrVacant] when there is none.
func Holders(ctx context.Context, store lease.Store, role string) ([]Primary, error) {
	if err := ValidateRole(role); err != nil {
		return nil, err
	}
	held, err := heldPlaces(ctx, store, role)
	if err != nil {
		return nil, err
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrVacant, role)
	}
	out := make([]Primary, len(held))
	for i, l := range held {
		out[i] = primaryOf(l)
	}
	return out, nil
}

// heldPlaces returns the leases of a role that have a live holder, in the order of their places.
func heldPlaces(ctx context.Context, store lease.Store, role string) ([]lease.Lease, error) {
	all, err := places(ctx, store, role)
	return slices.DeleteFunc(all, func(l lease.Lease) bool { return !l.HasLiveHolder() }), err
}

// places are the leases of a role's places that were ever held, and the first in any case.
func places(ctx context.Context, store lease.Store, role string) ([]lease.Lease, error) {
	first, err := store.Get(ctx, Leases(role, 1)[0])
	if err != nil {
		return nil, err
	}
	out := []lease.Lease{first}
	more, err := store.List(ctx, Space, role+slotMark, MaxHolders)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(more, func(a, b lease.Lease) int { // the store's order puts place 10 before place 2
		return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), cmp.Compare(a.Key, b.Key))
	})
	for _, l := range more {
		if roleOf(l.Key) == role {
			out = append(out, l)
		}
	}
	return out, nil
}

func primaryOf(l lease.Lease) Primary {
	return Primary{
		Role: roleOf(l.Key), ID: l.Holder.ID, Name: l.Holder.Name, Address: l.Holder.Address,
		Term: l.Term, Since: l.Since, ExpiresIn: l.Remaining,
	}
}

// Store is the port that listing and resigning need.
type Store interface {
	lease.Store
	lease.Roster
}

// Roles returns every role that was ever held or has standbys, by name.
func Roles(ctx context.Context, store Store) ([]Role, error) {
	byName := map[string]*Role{}
	at := func(name string) *Role {
		if byName[name] == nil {
			byName[name] = &Role{Name: name}
		}
		return byName[name]
	}
	var now time.Time // by the store's clock
	for after := ""; ; {
		page, err := store.List(ctx, Space, after, lease.MaxList)
		if err != nil {
			return nil, err
		}
		for _, l := range page {
			after, now = l.Key, l.Since.Add(l.Age)
			r := at(roleOf(l.Key))
			if l.HasLiveHolder() {
				r.Primary = append(r.Primary, primaryOf(l))
			}
			if l.Key == r.Name {
				r.Term = l.Term
				r.VacantFor = vacantFor(l)
			}
		}
		if len(page) < lease.MaxList {
			break
		}
	}
	waiters, err := store.Waiters(ctx, Space)
	if err != nil {
		return nil, err
	}
	for _, w := range waiters {
		if w.Lease.Key != roleOf(w.Lease.Key) {
			continue // who waits for a further place waits for the first one, too
		}
		r := at(w.Lease.Key)
		i := w.Session.Instance
		r.Standbys = append(r.Standbys, Standby{ID: i.ID, Name: i.Name, Address: i.Address})
		r.Takeover = max(r.Takeover, w.Session.Timing.WorstTakeover())
		r.StandbyFor = max(r.StandbyFor, now.Sub(w.Session.Started))
	}
	out := make([]Role, 0, len(byName))
	for _, r := range byName {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Role) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func vacantFor(l lease.Lease) time.Duration {
	switch {
	case l.HasLiveHolder():
		return 0
	case l.Session == "":
		return max(0, l.Age)
	default:
		return max(0, -l.Remaining)
	}
}

// WatchConfig describes a watch on a role.
type WatchConfig struct {
	Store lease.Store
	Role  string
	// Interval between two reads when no notification comes. Default 1 s.
	Interval time.Duration
	// Clock of this host. Default lease.BootClock.
	Clock lease.Clock
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Watch calls fn with the holders of a role, at once and then whenever they or
// their terms change, until ctx ends or fn returns an error, which it returns.
// An empty slice is a vacant role. A store that does not answer is asked again;
// changes that came and went in between are in the history.
func Watch(ctx context.Context, cfg WatchConfig, fn func([]Primary) error) error {
	if err := ValidateRole(cfg.Role); err != nil {
		return err
	}
	if cfg.Interval <= 0 {
		cfg.Interval = lease.DefaultInterval
	}
	if cfg.Clock == nil {
		cfg.Clock = lease.BootClock()
	}
	notifier := lease.NewNotifier(cfg.Store, cfg.Clock, cfg.Logger)
	defer notifier.Start(ctx)()
	sub := notifier.Subscribe(Leases(cfg.Role, MaxHolders)...)
	defer sub.Close()

	var last []Primary
	for first := true; ; {
		call, cancel := context.WithTimeout(ctx, 2*cfg.Interval)
		now, err := Holders(call, cfg.Store, cfg.Role)
		cancel()
		if err == nil || errors.Is(err, ErrVacant) {
			if first || !sameTerms(last, now) {
				if err := fn(now); err != nil {
					return err
				}
			}
			first, last = false, now
		}
		wait := cfg.Interval
		// A lapse sends no notification: read again when the holder could lapse.
		for _, p := range now {
			wait = min(wait, p.ExpiresIn+time.Millisecond)
		}
		timer, stopTimer := cfg.Clock.Timer(wait)
		select {
		case <-ctx.Done():
			stopTimer()
			return context.Cause(ctx)
		case <-sub.C():
		case <-timer:
		}
		stopTimer()
	}
}

func sameTerms(a, b []Primary) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Term != b[i].Term {
			return false
		}
	}
	return true
}
