package api

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// stateJSON is all that the page shows but the history. While the store does not
// answer, what was read from it is missing: the page keeps what it has.
type stateJSON struct {
	Server serverJSON     `json:"server"`
	Store  storeStateJSON `json:"store"`
	// Parts that are configured: the sections of the page.
	Parts    []string      `json:"parts"`
	Roles    *rolesState   `json:"roles,omitempty"`
	Sessions *sessionState `json:"sessions,omitempty"`
	Queues   *queuesState  `json:"queues,omitempty"`
	Monitor  *monitorState `json:"monitor,omitempty"`
	Shards   *shardsState  `json:"shards,omitempty"`
}

type serverJSON struct {
	Instance *lease.Instance `json:"instance,omitempty"`
	Version  string          `json:"version"`
}

type storeStateJSON struct {
	store.Info
	Up        bool    `json:"up"`
	Error     string  `json:"error,omitempty"`
	LatencyMS float64 `json:"latency_ms"`
}

// rolesState, queuesState and sessionState list at most maxShown, and tell how many there are.
type rolesState struct {
	Total int        `json:"total"`
	List  []RoleView `json:"list"`
}

type queuesState struct {
	Total int         `json:"total"`
	List  []QueueView `json:"list"`
	// Error of the last look: then what is shown is older than that.
	Error string `json:"error,omitempty"`
}

// monitorState is the monitor, with the newest of its alarms that stand. It lists
// at most maxShown event names; the totals are of all.
type monitorState struct {
	MonitorView
	Totals monitorTotals   `json:"totals"`
	Alarms []AlarmView     `json:"alarms"`
	Own    *ownMonitorView `json:"instance,omitempty"`
	// Error of the last look: then what is shown is older than that.
	Error string `json:"error,omitempty"`
}

// monitorTotals are the states of all sources.
type monitorTotals struct {
	Events  int   `json:"events"`
	Up      int64 `json:"up"`
	Down    int64 `json:"down"`
	Paused  int64 `json:"paused"`
	Retired int64 `json:"retired"`
	Unseen  int64 `json:"unseen"`
}

func (t *monitorTotals) add(e EventCountView) {
	t.Events++
	t.Up += e.Up
	t.Down += e.Down
	t.Paused += e.PausedSources
	t.Retired += e.Retired
	t.Unseen += e.Unseen
}

type sessionState struct {
	Total int           `json:"total"`
	List  []sessionJSON `json:"list"`
}

// state reads what the page shows; failed is what the look before it met.
func (b *board) state(ctx context.Context, failed error) stateJSON {
	out := stateJSON{Server: serverJSON{Version: b.cfg.Version}, Parts: []string{"roles"}}
	if len(b.cfg.Keepers) > 0 {
		i := b.cfg.Keepers[0].Instance()
		out.Server.Instance = &i
	}
	if failed == nil {
		failed = b.read(ctx, &out)
	}
	if b.hasQueues || len(b.cfg.Dispatchers) > 0 {
		out.Parts = append(out.Parts, "queues")
	}
	if out.Monitor != nil && out.Monitor.Error == "" {
		b.hasMonitor = out.Monitor.used(b.monitor.own)
	}
	// The directory has what it had while the store does not answer.
	if out.Shards = b.shards.state(); out.Shards != nil {
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
	if b.cfg.Cache != nil {
		out.Parts = append(out.Parts, "cache")
	}
	latency, _ := b.ready()
	out.Store = storeStateJSON{Info: b.info, Up: failed == nil, LatencyMS: float64(latency.Microseconds()) / 1000}
	if failed != nil {
		out.Store.Error = lease.CutReason(failed.Error())
	}
	if !b.inspected.IsZero() {
		out.Store.Now = b.info.Now.Add(time.Since(b.inspected))
	}
	return out
}

func (b *board) read(ctx context.Context, out *stateJSON) error {
	if time.Since(b.inspected) > inspectEvery {
		info, err := b.cfg.Store.Inspect(ctx)
		if err != nil {
			return err
		}
		b.info, b.inspected = info, time.Now()
	}
	roles, err := elect.Roles(ctx, b.cfg.Store)
	if err != nil {
		return err
	}
	sessions, err := b.cfg.Store.Sessions(ctx)
	if err != nil {
		return err
	}
	timeouts := map[string]time.Duration{}
	shown := &sessionState{Total: len(sessions), List: []sessionJSON{}}
	for _, n := range sessions {
		timeouts[n.Instance.ID] = max(timeouts[n.Instance.ID], n.Timing.Timeout)
		if len(shown.List) < maxShown {
			shown.List = append(shown.List, sessionToJSON(n))
		}
	}
	out.Sessions = shown
	out.Roles = &rolesState{Total: len(roles), List: []RoleView{}}
	for _, r := range roles[:min(len(roles), maxShown)] {
		j := ViewRole(r)
		for i := range j.Primaries {
			j.Primaries[i].TimeoutMS = timeouts[j.Primaries[i].ID].Milliseconds()
		}
		out.Roles.List = append(out.Roles.List, j)
	}
	if out.Queues = b.queues.state(ctx); out.Queues != nil {
		b.hasQueues = out.Queues.Total > 0
	}
	out.Monitor = b.monitor.state(ctx)
	return nil
}
