package doctor

import (
	"context"
	"slices"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// checkRoles finds roles without a holder.
func checkRoles(ctx context.Context, st store.Store) (out []Finding, err error) {
	roles, err := elect.Roles(ctx, st)
	if err != nil || len(roles) == 0 {
		return nil, err
	}
	held := 0
	for _, r := range roles {
		if len(r.Primary) > 0 {
			held++
		}
		out = append(out, findings(attention.Role(r))...)
	}
	return append([]Finding{well("roles", "%d of %d are held", held, len(roles))}, out...), nil
}

// checkQueues finds queues that are not delivered, or not well.
func checkQueues(ctx context.Context, desk dispatch.Admin) (out []Finding, err error) {
	queues, err := desk.Queues(ctx)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	var depth int64
	for _, q := range queues {
		depth += q.Depth
		view := api.ViewQueue(q)
		if q.Delayed > 0 {
			keys, err := desk.Keys(ctx, dispatch.KeyQuery{Queue: q.Queue, Limit: 100})
			if err != nil {
				return out, err
			}
			if i := slices.IndexFunc(keys, dispatch.KeyRecord.IsRefused); i >= 0 {
				view.RefusedKeys = []apitype.Key{api.ViewKey(keys[i])}
			}
		}
		out = append(out, findings(attention.Queue(view))...)
	}
	return append([]Finding{well("queues", "%s, with a depth of %d in all", termtext.Count(int64(len(queues)), "queue"), depth)}, out...), nil
}

// checkMonitor finds what keeps the monitor from noticing silence, or from telling anyone.
func checkMonitor(ctx context.Context, table monitor.Store) (out []Finding, err error) {
	o, err := table.Overview(ctx)
	if err != nil || len(o.Checks) == 0 && len(o.Members) == 0 {
		return nil, err
	}
	var sources int64
	for _, e := range o.Checks {
		sources += e.Up + e.Down + e.Paused
	}
	summary := well("monitor", "%s of %s, %s open", termtext.Count(sources, "source"), termtext.Count(int64(len(o.Checks)), "check"), termtext.Count(o.Standing, "alarm"))
	return append([]Finding{summary}, findings(attention.Monitor(api.ViewMonitor(o)))...), nil
}
