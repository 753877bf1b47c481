package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// Severities of what needs a person; in the order of their names.
const (
	bad  = "bad"
	warn = "warn"
)

func (v *OverviewView) addRoles(roles []elect.Role) {
	h := HeldView{Part: "role", Total: len(roles), Wrong: []WrongView{}}
	for _, r := range roles {
		switch {
		case len(r.Primary) > 0:
			h.Held++
		case len(r.Standbys) > 0:
			h.wrong(r.Name, fmt.Sprintf("vacant for %v, %d wait", r.VacantFor.Round(time.Second), len(r.Standbys)))
		default:
			h.wrong(r.Name, fmt.Sprintf("vacant for %v, nobody waits", r.VacantFor.Round(time.Second)))
		}
	}
	v.Held = append(v.Held, h)
}

func (v *OverviewView) addShards(s *shardsState) {
	if s == nil || s.Totals.Shards == 0 {
		return
	}
	h := HeldView{Part: "shard", Total: s.Totals.Shards, Held: s.Totals.Shards - s.Totals.NoPrimary, Wrong: []WrongView{}}
	for _, one := range s.List { // those in trouble are first
		if one.Primary == nil {
			h.wrong(one.Shard, whyNone(one.ShardView))
		}
		if n, ok := needOf(one.ShardView); ok {
			v.need(n)
		}
	}
	h.More = s.Totals.NoPrimary - len(h.Wrong)
	v.Held = append(v.Held, h)
	if s.Error != "" {
		v.Errors = append(v.Errors, "The shards could not be read: "+s.Error)
	}
}

// whyNone is why a shard has no primary.
func whyNone(s ShardView) string {
	return strings.TrimPrefix(cmp.Or(s.Why, s.Reason), "shard: no primary: ")
}

// needOf is why a person should look at a shard.
func needOf(s ShardView) (n NeedView, ok bool) {
	n = NeedView{Part: "shard", Subject: s.Shard, Severity: bad}
	switch {
	case s.Blocked != "":
		n.What = "It is not replaced: " + s.Blocked
	case s.Health == shard.Stuck || s.Health == shard.Unattended:
		n.What = s.Reason
	case s.Primary == nil && s.Plan == nil && s.Health != shard.None:
		n.What = "No primary: " + whyNone(s)
	case s.Health == shard.Over && s.Paused != nil:
		n.What = "Paused by " + s.Paused.By + ", and its primary is over: " + s.Reason
	case s.Health == shard.Doubtful:
		n.Severity, n.What = warn, "In doubt whether its primary is over: "+s.Reason
	case s.Paused != nil:
		n.Severity, n.What = warn, "Paused by "+s.Paused.By+": it does not fail over by itself"
	default:
		return n, false
	}
	return n, true
}

func (v *OverviewView) addQueues(s *queuesState) {
	if s == nil || s.Total == 0 {
		return
	}
	h := HeldView{Part: "queue", Total: s.Total, Held: s.Total, Wrong: []WrongView{}}
	for _, q := range s.List {
		if q.Depth > 0 && len(q.Holders) == 0 {
			h.Held--
			what := fmt.Sprintf("%d waiting, and nobody delivers", q.Depth)
			h.wrong(q.Queue, what)
			v.need(NeedView{Part: "queue", Subject: q.Queue, Severity: bad, What: what + ": start an instance that has this queue"})
		}
		for _, k := range q.BlockedKeys {
			v.need(NeedView{Part: "queue", Subject: q.Queue, Item: k.Key, ID: k.Head, Severity: bad,
				What: fmt.Sprintf("Blocked: %s", cmp.Or(k.Reason, "no reason was given"))})
		}
		v.MoreNeeds += max(0, q.Blocked-int64(len(q.BlockedKeys)))
	}
	v.Held = append(v.Held, h)
	if s.Error != "" {
		v.Errors = append(v.Errors, "The queues could not be read: "+s.Error)
	}
}

func (v *OverviewView) addMonitor(s *monitorState) {
	h := HeldView{Part: "monitor", Total: monitor.Partitions, Wrong: []WrongView{}}
	for _, m := range s.Members {
		h.Held += m.Partitions
	}
	h.Held = min(h.Held, h.Total)
	if s.Totals.Events == 0 {
		h.Held = h.Total // nothing is expected of anybody
	}
	if left := h.Total - h.Held; left > 0 {
		h.wrong("", fmt.Sprintf("%d of the %d parts of the sources are looked after by nobody", left, h.Total))
	}
	v.Held = append(v.Held, h)
	if s.ConfigError != "" {
		v.need(NeedView{Part: "monitor", Severity: bad, What: "The configuration was refused: " + s.ConfigError})
	}
	for _, p := range s.Paths {
		if !p.Seeing {
			v.need(NeedView{Part: "monitor", Subject: p.Path, Severity: warn, What: "Nothing proves that beats can come this way: silence is not judged"})
		}
	}
	for _, a := range s.Alarms {
		n := NeedView{Part: "monitor", Subject: a.Event, Item: cmp.Or(a.Source, a.Group), ID: a.ID, Severity: bad, What: string(a.Reason)}
		if a.Acknowledged != "" {
			n.Severity, n.What = warn, n.What+", known to "+a.Acknowledged
		}
		v.need(n)
	}
	v.MoreNeeds += max(0, s.Standing-int64(len(s.Alarms)))
	if s.Error != "" {
		v.Errors = append(v.Errors, "The monitor could not be read: "+s.Error)
	}
}

func (v *OverviewView) addCache(c cache.ClusterView, err error) {
	h := HeldView{Part: "cache", Total: len(c.Peers), Held: c.Connected, Wrong: []WrongView{}}
	switch {
	case err != nil:
		v.failed("The cache's peer does not say how its cluster is", err)
		return
	case !c.Member:
		h.wrong(c.Self, "this peer is not a member: it gives what it has, and does not fetch")
	case c.Partitioned:
		h.wrong(c.Self, fmt.Sprintf("alone: it reaches %d of the %d members that are a majority", c.Connected, c.Majority))
	}
	v.Held = append(v.Held, h)
	if c.Trouble != "" {
		v.need(NeedView{Part: "cache", Subject: c.Self, Severity: warn, What: c.Trouble})
	}
}
