package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// record is the node as it is reported.
func (a *Agent) record(now time.Duration) shard.Record {
	n := a.probe.state
	saved := a.folder.state()
	r := shard.Record{
		Shard: a.cfg.Shard, ID: a.id, Address: a.cfg.Private, Announced: a.cfg.Announced,
		Role: n.Role, Txn: n.Txn, Condition: a.probe.condition, Trouble: lease.TruncateReason(a.trouble("")),
		Lineage: n.Lineage, Before: n.Before, Synced: saved.HasAllData(n), Fence: cmp.Or(a.probe.announcedFence, n.Fence), Armed: a.arm.armed,
		Priority: *a.cfg.Priority, Epoch: a.knownEpoch(a.view.Row), Led: saved.Led,
		Results: slices.Clone(a.inbox.results), Instance: a.instance.ID, Agent: a.cfg.AgentAddress, Sentinel: a.cfg.SentinelAddress,
		Interval: a.cfg.Timing.Interval, Timeout: a.cfg.Timing.Timeout,
		Run: n.Run, EngineID: n.NodeID, Replication: n.Replication, Engine: a.cfg.Engines.Name(), Version: n.Version, Keys: n.Keys, Opinion: a.peer.current(now),
		PrimaryLog: saved.PrimaryLog, Unattended: a.peer.currentUnattended(now),
	}
	if r.Armed {
		r.Needs = max(1, a.cfg.MinReplicas)
	}
	since := now - a.probe.answeredAt // what the node said then has aged, whether it answers or not
	if n.Link != nil {
		link := *n.Link
		if link.Input >= 0 {
			link.Input += since
		}
		r.Link = &link
		if n.Role == shard.Replica {
			r.PrimaryID = a.view.idOf(link.Address)
		}
	}
	if n.Role == shard.Primary {
		for _, f := range n.Followers[:min(len(n.Followers), shard.MaxMembers)] {
			f.Lag += since
			if f.ID == "" {
				f.ID = a.view.idOf(f.Address)
			}
			r.Followers = append(r.Followers, f)
		}
	}
	return r
}
