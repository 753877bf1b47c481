package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// Severities of what needs an operator; in the order of their names.
const (
	bad  = "bad"
	warn = "warn"
)

func (v *overviewBuilder) addRoles(roles []elect.Role) {
	h := apitype.Held{Part: "role", Total: len(roles), Wrong: []apitype.Wrong{}}
	for _, r := range roles {
		switch {
		case len(r.Primary) > 0:
			h.Held++
		case len(r.Standbys) > 0:
			addWrong(&h, r.Name, fmt.Sprintf("vacant for %s, %d wait", inWords(r.VacantFor), len(r.Standbys)))
		default:
			what := "vacant for " + inWords(r.VacantFor) + ", no standby"
			addWrong(&h, r.Name, what)
			v.addNeed(apitype.Need{Part: "role", Subject: r.Name, Severity: warn, What: what + ": start an instance that campaigns for it"})
		}
	}
	v.Held = append(v.Held, h)
}

// inWords is a duration as the page writes them.
func inWords(d time.Duration) string {
	switch s := int64(max(0, d) / time.Second); {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%d days", s/86400)
	}
}

func (v *overviewBuilder) addShards(s *apitype.ShardsState) {
	if s == nil || s.Totals.Shards == 0 {
		return
	}
	h := apitype.Held{Part: "shard", Total: s.Totals.Shards, Held: s.Totals.Shards - s.Totals.NoPrimary, Wrong: []apitype.Wrong{}}
	for _, one := range s.List { // those in trouble are first
		if one.Primary == nil {
			addWrong(&h, one.Name, whyNone(one.Shard))
		}
		if n, ok := needOf(one.Shard); ok {
			v.addNeed(n)
		}
	}
	h.More = s.Totals.NoPrimary - len(h.Wrong)
	v.Held = append(v.Held, h)
	v.addError("The shards could not be read", s.Error)
}

// whyNone is why a shard has no primary.
func whyNone(s apitype.Shard) string {
	return strings.TrimPrefix(cmp.Or(s.Why, s.Reason), "shard: no primary: ")
}

// needOf is why a shard needs attention.
func needOf(s apitype.Shard) (n apitype.Need, ok bool) {
	n = apitype.Need{Part: "shard", Subject: s.Name, Severity: bad}
	switch {
	case s.Blocked != "":
		n.What = "It is not replaced: " + s.Blocked
	case s.Health == string(shard.Stuck) || s.Health == string(shard.Unattended):
		n.What = s.Reason
	case s.Primary == nil && s.Plan == nil && s.Health != string(shard.None):
		n.What = "No primary: " + whyNone(s)
	case s.Health == string(shard.Replaceable) && s.Paused != nil:
		n.What = "Paused by " + s.Paused.By + ", and its primary is over: " + s.Reason
	case s.Health == string(shard.Doubtful):
		n.Severity, n.What = warn, "In doubt whether its primary is over: "+s.Reason
	case s.Paused != nil:
		n.Severity, n.What = warn, "Paused by "+s.Paused.By+": it does not fail over by itself"
	default:
		return n, false
	}
	return n, true
}

// addQueues goes through all queues: the page lists the first by name alone, and trouble has any name.
func (v *overviewBuilder) addQueues(seen queueSnapshot, err error) {
	if err != nil {
		v.addError("The queues could not be read", err.Error())
	}
	if len(seen.views) == 0 {
		return
	}
	h := apitype.Held{Part: "queue", Total: len(seen.views), Held: len(seen.views), Wrong: []apitype.Wrong{}}
	for _, q := range seen.views {
		if q.Depth > 0 && len(q.Holders) == 0 {
			h.Held--
			what := fmt.Sprintf("%d waiting, no instance delivers", q.Depth)
			addWrong(&h, q.Queue, what)
			v.addNeed(queueNeed(q, apitype.Key{}, bad, what+": start an instance that has this queue"))
		}
		v.addBlocked(q, seen.blocked[q.Queue])
		if q.DeadLetters > 0 {
			v.addNeed(queueNeed(q, apitype.Key{}, warn,
				fmt.Sprintf("%d dead-lettered (invalid or failed): list them by their state, and retry them, until they are pruned", q.DeadLetters)))
		}
		for _, k := range seen.refused[q.Queue] {
			v.addNeed(queueNeed(q, k, bad, "Its target refuses it: "+k.Reason))
		}
	}
	v.Held = append(v.Held, h)
}

// addBlocked adds the first blocked keys of a queue, and counts the others.
func (v *overviewBuilder) addBlocked(q apitype.Queue, first []apitype.Key) {
	listed := int64(len(first))
	for _, k := range first {
		v.addNeed(queueNeed(q, k, bad, "Blocked: "+cmp.Or(k.Reason, "no reason was given")))
	}
	if q.Blocked > 0 && listed == 0 { // only those of the first queues that have any are read
		listed = 1
		v.addNeed(queueNeed(q, apitype.Key{}, bad, fmt.Sprintf("Blocked keys: %d", q.Blocked)))
	}
	v.MoreNeeds += max(0, q.Blocked-listed)
}

// queueNeed is what a key of a queue needs; without a key, the queue itself.
func queueNeed(q apitype.Queue, k apitype.Key, severity, what string) apitype.Need {
	return apitype.Need{Part: "queue", Subject: q.Queue, Item: k.Key, ID: k.Head, Severity: severity, What: what}
}

func (v *overviewBuilder) addMonitor(s *apitype.MonitorState) {
	h := apitype.Held{Part: "monitor", Total: monitor.Partitions, Wrong: []apitype.Wrong{}}
	for _, m := range s.Members {
		h.Held += m.Partitions
	}
	h.Held = min(h.Held, h.Total)
	if s.Totals.Checks == 0 {
		h.Held = h.Total // nothing is expected of anybody
	}
	if left := h.Total - h.Held; left > 0 {
		addWrong(&h, "", fmt.Sprintf("no instance watches %d of the %d partitions of sources", left, h.Total))
	}
	v.Held = append(v.Held, h)
	if s.ConfigError != "" {
		v.addNeed(apitype.Need{Part: "monitor", Severity: bad, What: "The configuration was refused: " + s.ConfigError})
	}
	for _, p := range s.Paths {
		if !p.Seeing {
			v.addNeed(apitype.Need{Part: "monitor", Subject: p.Path, Severity: warn, What: "Nothing proves that beats can come this way: silence is not judged"})
		}
	}
	for _, a := range s.Alarms {
		n := apitype.Need{Part: "monitor", Subject: a.Check, Item: cmp.Or(a.Source, a.Group), ID: a.ID, Severity: bad, What: a.Reason}
		if a.Acknowledged != "" {
			n.Severity, n.What = warn, n.What+", known to "+a.Acknowledged
		}
		v.addNeed(n)
	}
	v.MoreNeeds += max(0, s.Standing-int64(len(s.Alarms)))
	v.addError("The monitor could not be read", s.Error)
}

func (v *overviewBuilder) addCache(c cache.ClusterView, err error) {
	h := apitype.Held{Part: "cache", Total: len(c.Peers), Held: c.Connected, Wrong: []apitype.Wrong{}}
	switch {
	case err != nil:
		v.addError("The cache's peer does not say how its cluster is", err.Error())
		return
	case !c.Member:
		addWrong(&h, c.Self, "this peer is not a member: it gives what it has, and does not fetch")
	case c.Partitioned:
		addWrong(&h, c.Self, fmt.Sprintf("alone: it reaches %d of the %d members that are a majority", c.Connected, c.Majority))
	}
	v.Held = append(v.Held, h)
	if c.Trouble != "" {
		v.addNeed(apitype.Need{Part: "cache", Subject: c.Self, Severity: warn, What: c.Trouble})
	}
}
