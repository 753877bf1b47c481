package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// oldBatch is how long the oldest batch of a queue may wait before that is worth a line.
const oldBatch = 5 * time.Minute

// checkRoles finds roles that nobody holds.
func checkRoles(ctx context.Context, st store.Store, t lease.Timing) (out []Finding, err error) {
	roles, err := elect.Roles(ctx, st)
	if err != nil || len(roles) == 0 {
		return nil, err
	}
	held := 0
	for _, r := range roles {
		switch {
		case len(r.Primary) > 0:
			held++
		case len(r.Standbys) == 0:
			out = append(out, warn("role", "%s is vacant for %s and has no standby", r.Name, termtext.Brief(r.VacantFor)).
				withAdvice("docs/runbook.md#understudyrolevacant", "start an instance that campaigns for it"))
		case r.VacantFor > t.WorstTakeover():
			out = append(out, bad("role", "%s is vacant for %s, though %d wait for it", r.Name, termtext.Brief(r.VacantFor), len(r.Standbys)).
				withAdvice("docs/runbook.md#understudyrolevacant", "read the log of %s: does it reach the store, and is the role that it is held with held there?", r.Standbys[0].Name))
		default:
			out = append(out, warn("role", "%s changes hands: vacant for %s", r.Name, termtext.Brief(r.VacantFor)).
				withAdvice("docs/runbook.md#understudyrolevacant", "ask again in %v", t.WorstTakeover()))
		}
	}
	return append([]Finding{well("roles", "%d of %d are held", held, len(roles))}, out...), nil
}

// checkQueues finds queues that do not.
func checkQueues(ctx context.Context, desk dispatch.Admin) (out []Finding, err error) {
	queues, err := desk.Queues(ctx)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	var depth int64
	for _, q := range queues {
		depth += q.Depth
		if q.Blocked > 0 {
			out = append(out, bad("queue", "%s: %s blocked until an operator decides", q.Queue, termtext.Count(int64(q.Blocked), "key")).
				withAdvice("docs/runbook.md#understudyqueueblocked", "run: understudy queue keys %s --blocked; then queue retry or queue skip", q.Queue))
		}
		if q.DeadLetters > 0 {
			out = append(out, warn("queue", "%s: %s dead-lettered", q.Queue, termtext.Count(q.DeadLetters, "message")).
				withAdvice("docs/dispatch.md#operating", "run: understudy queue list %[1]s --state failed, or --state invalid; then queue retry --state failed %[1]s", q.Queue))
		}
		if q.Delayed > 0 {
			keys, err := desk.Keys(ctx, dispatch.KeyQuery{Queue: q.Queue, Limit: 100})
			if err != nil {
				return out, err
			}
			if i := slices.IndexFunc(keys, dispatch.KeyRecord.IsRefused); i >= 0 {
				out = append(out, bad("queue", "%s: the target refuses the message of %s: %s", q.Queue, keys[i].Key, keys[i].Reason).
					withAdvice("docs/runbook.md#understudyqueueblocked", "fix the target; or give the message up: understudy queue skip %s --queue %s", keys[i].Head, q.Queue))
			}
		}
		switch {
		case (q.Keys > q.Blocked || q.Keys == 0 && q.Scheduled > 0 && q.Oldest > time.Second) && len(q.Holders) == 0: // the latter: a scheduled one is overdue
			out = append(out, bad("queue", "%s: no instance delivers it; its depth is %d", q.Queue, q.Depth).
				withAdvice("docs/runbook.md#understudyqueueundelivered", "start an instance with this queue: understudy queue run %s …, or queues: in the server's file", q.Queue))
		case q.Oldest > oldBatch && q.Blocked == 0:
			out = append(out, warn("queue", "%s: the oldest message waits for %s", q.Queue, termtext.Brief(q.Oldest)).
				withAdvice("docs/runbook.md#understudyqueueslow", "run: understudy queue keys %s; it tells what each waits for", q.Queue))
		}
	}
	return append([]Finding{well("queues", "%s, with a depth of %d in all", termtext.Count(int64(len(queues)), "queue"), depth)}, out...), nil
}

// checkMonitor finds what keeps the monitor from noticing silence, or from telling anybody.
func checkMonitor(ctx context.Context, table monitor.Store) (out []Finding, err error) {
	o, err := table.Overview(ctx)
	if err != nil || len(o.Checks) == 0 && len(o.Members) == 0 {
		return nil, err
	}
	owned, told := 0, map[string]bool{}
	for _, m := range o.Members {
		owned += m.Partitions
		for _, s := range m.Sinks {
			told[s] = true
		}
	}
	if owned < monitor.Partitions {
		out = append(out, bad("monitor", "%d of %d partitions have no owner: silence in them is not noticed", monitor.Partitions-owned, monitor.Partitions).
			withAdvice("docs/runbook.md#understudymonitorunwatched", "start an instance with the monitor; after a start or a crash ask again in a few seconds"))
	}
	for _, p := range o.Paths {
		if !p.Working {
			out = append(out, bad("monitor", "the path %s is blind for %s: sources that beat by it cannot be alarmed", p.Name, termtext.Brief(p.Quiet)).
				withAdvice("docs/runbook.md#understudymonitorblind", "see to it, or give it up: understudy monitor path drop %s", p.Name))
		}
	}
	if o.Error != "" {
		out = append(out, bad("monitor", "the last configuration was refused: %s", o.Error).
			withAdvice("docs/runbook.md#understudymonitorconfigrefused", "fix it, and check it with: understudy monitor config check FILE"))
	}
	untold := slices.DeleteFunc(slices.Clone(o.Sinks), func(s string) bool { return told[s] })
	switch {
	case len(o.Sinks) == 0:
		out = append(out, warn("monitor", "there is no sink: alarms are shown, but sent to no one").
			withAdvice("docs/sinks.md", "add sinks: to the server's file, or --webhook and the like to monitor run"))
	case len(untold) > 0:
		out = append(out, bad("monitor", "no instance delivers to %s", strings.Join(untold, ", ")).
			withAdvice("docs/runbook.md#understudyalarmsnottold", "configure it on an instance, or give it up: understudy monitor sink drop %s", untold[0]))
	}
	var sources int64
	for _, e := range o.Checks {
		sources += e.Up + e.Down + e.Paused
	}
	return append([]Finding{well("monitor", "%s of %s, %s open", termtext.Count(sources, "source"), termtext.Count(int64(len(o.Checks)), "check"), termtext.Count(o.Standing, "alarm"))}, out...), nil
}
