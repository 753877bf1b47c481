package api

import (
	"cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
)

// add adds what is wrong with a subject of a part.
func (v *overviewBuilder) add(h *apitype.Held, found []attention.Need) {
	for _, n := range found {
		if n.Unheld != "" {
			addWrong(h, n.Subject, n.Unheld)
		}
		if !n.Minor {
			v.addNeed(n.Need)
		}
	}
}

func (v *overviewBuilder) addRoles(roles []elect.Role) {
	h := apitype.Held{Part: "role", Total: len(roles), Wrong: []apitype.Wrong{}}
	for _, r := range roles {
		v.add(&h, attention.Role(r))
	}
	v.addHeld(h)
}

func (v *overviewBuilder) addShards(all []apitype.Shard, trouble string) {
	if len(all) == 0 {
		return
	}
	h := apitype.Held{Part: "shard", Total: len(all), Wrong: []apitype.Wrong{}}
	for _, s := range all {
		_, found := attention.Shard(s)
		v.add(&h, found)
	}
	v.addHeld(h)
	v.addError("The shards could not be read", trouble)
}

// addQueues goes through all queues: the page lists the first by name alone, and trouble has any name.
func (v *overviewBuilder) addQueues(seen queueSnapshot, err error) {
	if err != nil {
		v.addError("The queues could not be read", err.Error())
	}
	if len(seen.views) == 0 {
		return
	}
	h := apitype.Held{Part: "queue", Total: len(seen.views), Wrong: []apitype.Wrong{}}
	for _, q := range seen.views {
		q.BlockedKeys, q.RefusedKeys = seen.blocked[q.Queue], seen.refused[q.Queue]
		v.add(&h, attention.Queue(q))
		// Only the first keys are read, of the first queues that have any; without them, one need stands for all.
		v.MoreNeeds += max(0, q.Blocked-int64(max(1, len(q.BlockedKeys))))
	}
	v.addHeld(h)
}

// addJobs adds the jobs that were read.
func (v *overviewBuilder) addJobs(seen jobsSeen, err error) {
	if err != nil {
		v.addError("The jobs could not be read", err.Error())
	}
	if len(seen.jobs) == 0 {
		return
	}
	h := apitype.Held{Part: job.Space, Total: len(seen.jobs), First: seen.more, Wrong: []apitype.Wrong{}}
	for _, j := range seen.jobs {
		v.add(&h, attention.Job(j, seen.now, true)) // only the doctor says where alarms go
	}
	v.addHeld(h)
}

func (v *overviewBuilder) addMonitor(s *apitype.MonitorState) {
	h := apitype.Held{Part: "monitor", Total: monitor.Partitions, Wrong: []apitype.Wrong{}}
	for _, m := range s.Members {
		h.Held += m.Partitions
	}
	h.Held = min(h.Held, h.Total)
	if s.Totals.Checks == 0 {
		h.Held = h.Total // no checks are configured yet
	}
	v.add(&h, attention.Monitor(s.Monitor))
	v.Held = append(v.Held, h)
	for _, a := range s.Alarms {
		n := apitype.Need{Part: "monitor", Subject: a.Check, Item: cmp.Or(a.Source, a.Group), ID: a.ID, Severity: attention.Bad, What: a.Reason}
		if a.Acknowledged != "" {
			n.Severity, n.What = attention.Warn, n.What+", known to "+a.Acknowledged
		}
		v.addNeed(n)
	}
	v.MoreNeeds += max(0, s.Open-int64(len(s.Alarms)))
	v.addError("The monitor could not be read", s.Error)
}

func (v *overviewBuilder) addCache(c apitype.CacheCluster, err error) {
	if err != nil {
		v.addError("The cache's peer does not say how its cluster is", err.Error())
		return
	}
	h := apitype.Held{Part: "cache", Total: len(c.Peers), Held: c.Connected, Wrong: []apitype.Wrong{}}
	v.add(&h, attention.Cache(c))
	v.Held = append(v.Held, h)
}
