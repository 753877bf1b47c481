package api

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func addTotals(t *apitype.SourceTotals, e apitype.CheckCount) {
	t.Checks++
	t.Up += e.Up
	t.Down += e.Down
	t.Paused += e.PausedSources
	t.Retired += e.Retired
	t.Unseen += e.Unseen
}

// state reads what the page shows; failed is the error of the poll before it.
func (b *poller) state(ctx context.Context, failed error) apitype.State {
	out := apitype.State{Server: apitype.ServerInfo{Version: b.s.cfg.Version}, Parts: []string{"roles"}}
	if len(b.s.cfg.Keepers) > 0 {
		out.Server.Instance = new(viewInstance(b.s.cfg.Keepers[0].Instance()))
	}
	if failed == nil {
		failed = b.readState(ctx, &out)
	}
	if b.s.jobs != nil {
		out.Parts = append(out.Parts, "jobs")
	}
	if b.hasQueues || len(b.s.cfg.Dispatchers) > 0 {
		out.Parts = append(out.Parts, "queues")
	}
	if out.Monitor != nil && out.Monitor.Error == "" {
		b.hasMonitor = b.s.monitor.isUsed(out.Monitor)
	}
	// The catalog keeps its last knowledge while the store does not answer.
	if out.Shards = b.s.shards.state(); out.Shards != nil {
		b.hasShards = out.Shards.Totals.Shards > 0 || b.hasShards && out.Shards.Error != ""
	}
	if b.hasShards {
		out.Parts = append(out.Parts, "shards")
	}
	if b.hasMonitor {
		out.Parts = append(out.Parts, "monitor")
	} else {
		out.Monitor = nil
	}
	if b.s.cfg.Demo != nil {
		out.Parts = append(out.Parts, "demo")
	}
	if b.s.cfg.Cache != nil {
		out.Parts = append(out.Parts, "cache")
	}
	latency, _ := b.readiness()
	out.Store = viewStore(b.info)
	if failed == nil {
		failed = b.s.writeFailure()
	}
	out.Store.Up, out.Store.LatencyMS = failed == nil, float64(latency.Microseconds())/1000
	if failed != nil {
		out.Store.Error = lease.TruncateReason(failed.Error())
	}
	if !b.inspected.IsZero() {
		out.Store.Now = b.info.Now.Add(time.Since(b.inspected))
	}
	return out
}

func viewStore(i store.Info) apitype.StoreInfo {
	return apitype.StoreInfo{
		Kind: i.Kind, Location: i.Location, Server: i.Server, Schema: i.Schema, Wanted: i.Wanted, Now: i.Now,
		Notifies: i.Notifies, Warnings: i.Warnings,
	}
}

func (b *poller) readState(ctx context.Context, out *apitype.State) error {
	if time.Since(b.inspected) > inspectInterval {
		info, err := b.s.cfg.Store.Inspect(ctx)
		if err != nil {
			return err
		}
		b.info, b.inspected = info, time.Now()
	}
	roles, err := elect.Roles(ctx, b.s.cfg.Store)
	if err != nil {
		return err
	}
	sessions, err := b.s.cfg.Store.Sessions(ctx)
	if err != nil {
		return err
	}
	timeouts := map[string]time.Duration{}
	shown := &apitype.Shown[apitype.Session]{Total: len(sessions), List: []apitype.Session{}}
	for _, n := range sessions {
		timeouts[n.Instance.ID] = max(timeouts[n.Instance.ID], n.Timing.Timeout)
		if len(shown.List) < maxShown {
			shown.List = append(shown.List, viewSession(n))
		}
	}
	out.Sessions = shown
	out.Roles = &apitype.Shown[apitype.Role]{Total: len(roles), List: []apitype.Role{}}
	for _, r := range roles {
		if len(r.Primary) == 0 {
			out.VacantRoles++
		}
		if len(out.Roles.List) == maxShown {
			continue
		}
		j := viewRole(r)
		for i := range j.Primaries {
			j.Primaries[i].TimeoutMS = timeouts[j.Primaries[i].ID].Milliseconds()
		}
		out.Roles.List = append(out.Roles.List, j)
	}
	if out.Queues, out.BlockedKeys = b.s.queues.state(ctx); out.Queues != nil {
		b.hasQueues = out.Queues.Total > 0
	}
	out.Monitor = b.s.monitor.state(ctx)
	return nil
}
