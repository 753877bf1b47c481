package memory

import (
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/shard"
)

// copyRecord shares nothing with the record that anybody may change.
func copyRecord(r shard.Record) shard.Record {
	r.Link, r.Opinion = copyOf(r.Link), copyOf(r.Opinion)
	r.Followers, r.Results, r.Unattended = slices.Clone(r.Followers), slices.Clone(r.Results), slices.Clone(r.Unattended)
	for i := range r.Unattended {
		r.Unattended[i].Link = copyOf(r.Unattended[i].Link)
	}
	return r
}

// copyRow shares nothing with the row that anybody may change.
func copyRow(r shard.Row) shard.Row {
	r = r.Copy()
	r.Request, r.Paused, r.Last = copyOf(r.Request), copyOf(r.Paused), copyOf(r.Last)
	if r.Last != nil {
		r.Last.Tried, r.Last.Steps = slices.Clone(r.Last.Tried), slices.Clone(r.Last.Steps)
	}
	return r
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// copy is what a backup would hold: neither those who watch nor those who wait.
func (all *shards) copy() shards {
	c := newShards()
	for name, of := range all.byName {
		c.byName[name] = &shardState{row: of.row, nodes: maps.Clone(of.nodes)}
	}
	c.home, c.locks = maps.Clone(all.home), maps.Clone(all.locks)
	for address, ids := range all.addresses {
		c.addresses[address] = maps.Clone(ids)
	}
	for node, q := range all.queues {
		c.queues[node] = slices.Clone(q)
	}
	return c
}

// restore puts everything back to a copy, but for those who watch and wait.
func (all *shards) restore(from shards) {
	c := from.copy()
	c.coming, c.watchers, c.nextW = all.coming, all.watchers, all.nextW
	*all = c
}
