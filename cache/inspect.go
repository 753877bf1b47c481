package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// KeyQuery says which keys to list.
type KeyQuery struct {
	Prefix string // of the keys
	After  string // the last key of the page before
	Limit  int    // keys of a page, at most 1,000; 0: 100
}

// maxPage bounds a page of keys.
const maxPage = 1000

// Keys lists keys in their order: those of which a copy is here, and those of which
// one is wanted. It looks at every key, about 30 ns for each.
func (p *Peer) Keys(ctx context.Context, q KeyQuery) ([]KeyView, error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return nil, fmt.Errorf("cache: a page has 1 to %d keys, not %d", maxPage, q.Limit)
	}
	limit := cmp.Or(q.Limit, 100)
	page := p.table.page(q.After, limit, q.Prefix)
	views := map[string]KeyView{}
	err := p.inLoop(ctx, func(m *protocol.Machine) {
		for _, k := range page {
			views[k.key] = p.keyView(k.key, k.entry, m.KeyStatus(k.key))
		}
		m.Active(func(key string, l protocol.KeyStatus) bool {
			if _, known := views[key]; !known && key > q.After && strings.HasPrefix(key, q.Prefix) {
				views[key] = p.keyView(key, p.table.Get(key), l)
			}
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	out := make([]KeyView, 0, len(views))
	for _, v := range views {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b KeyView) int { return cmp.Compare(a.Key, b.Key) })
	return out[:min(limit, len(out))], nil
}

func (p *Peer) keyView(key string, e protocol.Entry, l protocol.KeyStatus) KeyView {
	v := KeyView{
		Key: key, Doing: l.State.String(), Peer: l.Peer, Term: max(e.Term, l.Term),
		Size: len(e.Value), Waiting: l.Waiting, Failure: l.Failure,
	}
	if e.Held() {
		v.Digest = fmt.Sprintf("%016x", e.Digest)
		v.Expire = new(time.UnixMilli(e.Expire))
		v.Fresh = e.Fresh(p.cfg.Wall().UnixMilli())
	}
	if e.Made > 0 {
		v.Made = new(time.UnixMilli(e.Made))
	}
	if l.Retry > 0 {
		v.Retry = new(p.wallAt(l.Retry))
	}
	return v
}

// wallAt is a time on the boot clock as people read it.
func (p *Peer) wallAt(boot time.Duration) time.Time {
	return p.cfg.Wall().Add(boot - p.cfg.Clock.Now())
}

// Cluster tells how this peer sees the cluster.
func (p *Peer) Cluster(ctx context.Context) (ClusterView, error) {
	var v ClusterView
	err := p.inLoop(ctx, func(m *protocol.Machine) {
		members, status := m.Members(), m.Status()
		v = ClusterView{
			Self: p.cfg.Self, Member: status.Member, Majority: members.Majority(),
			Connected: status.Connected, Partitioned: status.Partitioned, Abstaining: status.Abstaining, Trouble: status.Trouble, Unready: status.Unready,
		}
		own := members[members.Index(p.cfg.Self)]
		v.Peers = append(v.Peers, PeerView{URL: own.URL, API: own.API, Self: true, Link: "up", Kind: "understudy", List: "same"})
		for _, one := range m.Peers() {
			v.Peers = append(v.Peers, p.peerView(one))
		}
	})
	if err != nil {
		return ClusterView{}, err
	}
	slices.SortFunc(v.Peers, func(a, b PeerView) int { return cmp.Compare(a.URL, b.URL) })
	return v, nil
}

func (p *Peer) peerView(l protocol.PeerStatus) PeerView {
	v := PeerView{
		URL: l.URL, API: l.API, Link: [...]string{"down", "up", "dead"}[l.State], Why: l.Why, Since: new(p.wallAt(l.Since)),
		Kind: "unknown", Dropped: p.links.dropped(l.URL),
	}
	switch {
	case len(l.Difference) > 0:
		v.List = strings.Join(l.Difference, " ")
	case l.Known:
		v.List = "same"
	}
	switch {
	case l.Hello.Incarnation != 0:
		v.Kind, v.Busy, v.Skew = "understudy", l.Hello.Busy && l.State == protocol.Up, new(l.Skew)
	case l.State == protocol.Up && p.cfg.Mixed:
		v.Kind = "other"
	}
	return v
}

// inLoop runs a function where the machine may be looked at.
func (p *Peer) inLoop(ctx context.Context, look func(*protocol.Machine)) error {
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	select {
	case p.loop.inbox <- event{do: func() { look(p.loop.m); close(done) }}:
	case <-p.loop.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-p.loop.ended:
		return ErrClosed
	case <-ctx.Done():
		// The look may still happen, while nobody reads any more what it makes.
		return ctx.Err()
	}
}
