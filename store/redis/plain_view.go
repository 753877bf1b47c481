package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// viewPeek asks what must be known before a shard can be looked at: its nodes, its
// primary and its lease's session.
type viewPeek struct {
	name               string
	row, nodes         *command
	leaseDoc, leaseFor *command
}

func (s *plain) peekView(name string) viewPeek {
	p := viewPeek{name: name, row: ask("HMGET", s.shardKey(name), "primary"), nodes: ask("SMEMBERS", s.shardNodesKey(name))}
	p.leaseDoc, p.leaseFor = s.peek(shard.LeaseID(name))
	return p
}

func (p viewPeek) commands() []*command {
	return []*command{p.row, p.nodes, p.leaseDoc, p.leaseFor}
}

// viewLook asks for all of a shard; its commands are to be carried out at one moment.
type viewLook struct {
	name, primary        string
	row, members, locked *command
	ids                  []string
	records, ages        []*command
	lease                leaseLook
}

// lookView looks after a peek, with nodes that are about to be there.
func (s *plain) lookView(p viewPeek, more ...string) (viewLook, error) {
	l := viewLook{name: p.name, primary: p.row.texts()[0], row: ask("HMGET", s.shardKey(p.name), "rev", "primary", "doc"), members: ask("SMEMBERS", s.shardNodesKey(p.name))}
	if l.primary != "" {
		l.locked = ask("GET", s.lockKey(l.primary))
	}
	l.ids = append(p.nodes.texts(), more...)
	slices.Sort(l.ids)
	l.ids = slices.Compact(l.ids)
	for _, id := range l.ids {
		l.records = append(l.records, ask("HGETALL", s.nodeKey(id)))
		l.ages = append(l.ages, ask("TTL", s.recordAgeKey(id)))
	}
	var err error
	l.lease, err = s.lookAt(shard.LeaseID(p.name), p.leaseDoc, p.leaseFor)
	return l, err
}

func (l viewLook) commands() []*command {
	out := slices.Concat([]*command{l.row, l.members}, l.records, l.ages, l.lease.commands())
	if l.locked != nil {
		out = append(out, l.locked)
	}
	return out
}

// show reads the answers. It is errAgain when the shard has other nodes, another
// primary or another lease than the peek saw, and ErrNotFound when there is nothing.
func (l viewLook) show(now time.Time) (shard.View, error) {
	row := l.row.texts()
	ids := l.members.texts()
	slices.Sort(ids)
	if row[1] != l.primary || !slices.Equal(ids, l.ids) {
		return shard.View{}, errAgain
	}
	rev, _ := strconv.ParseInt(row[0], 10, 64)
	if rev == 0 && len(ids) == 0 {
		return shard.View{}, shard.ErrNotFound
	}
	v := shard.View{Now: now}
	var err error
	if v.Row, err = rowOfShard(l.name, rev, row[2]); err != nil {
		return v, err
	}
	if l.locked != nil {
		v.Lock = l.locked.text()
	}
	for i := range l.ids {
		r, err := recordOf(l.records[i].fields(), 0)
		if err != nil {
			return v, err
		}
		r.Age = ageOf(l.ages[i])
		v.Nodes = append(v.Nodes, r)
	}
	v.Lease, _, err = l.lease.show()
	return v, err
}

// views shows shards as they stand, all at one moment, without those that are not
// there.
func (s *plain) views(ctx context.Context, names ...string) (out []shard.View, err error) {
	err = s.transact(ctx, s.rest, reads, func(t *tx) error {
		out = nil
		peeks := make([]viewPeek, len(names))
		var all []*command
		for i, name := range names {
			peeks[i] = s.peekView(name)
			all = append(all, peeks[i].commands()...)
		}
		if err := t.read(all...); err != nil {
			return err
		}
		looks, once := make([]viewLook, len(names)), &tx{w: t.w}
		for i, p := range peeks {
			var err error
			if looks[i], err = s.lookView(p); err != nil {
				return err
			}
			once.queue(looks[i].commands()...)
		}
		if _, err := once.commit(); err != nil {
			return err
		}
		now := s.now()
		for _, l := range looks {
			v, err := l.show(now)
			switch {
			case err == nil:
				out = append(out, v)
			case !errors.Is(err, shard.ErrNotFound):
				return err
			}
		}
		return nil
	})
	return out, err
}
