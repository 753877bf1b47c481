package server

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
)

// forgetInterval is how often vacant roles are looked for.
const forgetInterval = time.Hour

// forgetVacant deletes roles and leases that nobody has any more. Each server does: the others find nothing to delete.
func (s *served) forgetVacant(ctx context.Context) error {
	if s.cfg.ForgetAfter < 0 {
		return nil
	}
	by := fmt.Sprintf("%s: vacant for %s", s.cfg.Name, termtext.Duration(s.cfg.ForgetAfter))
	each(ctx, min(forgetInterval, s.cfg.ForgetAfter), func() {
		n, err := elect.ForgetVacant(ctx, boundedStore{s.store}, lease.BootClock(), s.cfg.ForgetAfter, by)
		if err != nil && ctx.Err() == nil {
			s.host.Log.Warn("vacant roles could not be forgotten", "err", err)
		} else if n > 0 {
			s.host.Log.Info("vacant roles and leases forgotten", "leases", n)
		}
	})
	return nil
}

// boundedStore gives each call by which vacant leases are found and forgotten a deadline of its own. All of them together have none:
// before a lease is forgotten, its holder's timeout may have to be waited for.
type boundedStore struct{ elect.Store }

func (s boundedStore) Spaces(ctx context.Context) ([]lease.SpaceCount, error) {
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	return s.Store.Spaces(call)
}

func (s boundedStore) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	return s.Store.List(call, space, after, limit)
}

func (s boundedStore) Forget(ctx context.Context, f lease.ForgetRequest) error {
	call, cancel := context.WithTimeout(ctx, instance.CallTimeout)
	defer cancel()
	return s.Store.Forget(call, f)
}
