package shardtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/recorder"
	"github.com/understudy-ha/understudy/shard"
)

// TestSuiteCatches proves the suite: each broken store is caught by the topic that is
// named, and by one alone it need not be; each topic catches one.
func TestSuiteCatches(t *testing.T) {
	recorder.Catches(t, slices.Collect(maps.Keys(topics())), twins(), func(w twin) string { return w.by }, func(t *testing.T, r testing.TB, broken twin) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); <-time.After(2 * maxWait) }() // what a twin left behind ends by itself
		s := broken.subject()
		topics()[broken.by](&bench{TB: r, Registry: s.Registry, Commands: s.Commands, t: t, s: s, ctx: ctx, patience: patience, wait: maxWait})
	})
}

// world is a store that works, and what a broken one remembers beside it.
type world struct {
	shard.Registry
	shard.Commands
	mu    sync.Mutex
	kept  shard.View
	sent  map[string]bool
	count int
}

// forget drops a node wherever it is.
func (w *world) forget(ctx context.Context, id string) {
	views, _ := w.List(ctx, "", shard.MaxShards)
	for _, v := range views {
		if _, ok := v.Node(id); ok {
			_, _ = w.Registry.UpdateRow(ctx, shard.RowUpdate{Row: v.Row, Drop: []string{id}})
		}
	}
}

// read is the row as it stands.
func (w *world) read(ctx context.Context, name string) shard.Row {
	v, err := w.ReadView(ctx, name)
	if err != nil {
		return shard.Row{Name: name}
	}
	return v.Row
}

// together lets other goroutines come between two steps: in a bubble, all of them.
func together() { <-time.After(time.Microsecond) }

// twin is a store that is broken in one place.
type twin struct {
	by string // the topic that must catch it

	report func(*world, context.Context, shard.Record, bool) (shard.View, error)
	look   func(*world, context.Context, string) (shard.View, error)
	decide func(*world, context.Context, shard.RowUpdate) (int64, error)
	lock   func(*world, context.Context, shard.Lock) error
	unlock func(*world, context.Context, shard.Lock) error
	list   func(*world, context.Context, string, int) ([]shard.View, error)
	watch  func(*world, context.Context, string, func(string)) error
	send   func(*world, context.Context, ...shard.Command) error
	next   func(*world, context.Context, string, time.Duration) (shard.Command, error)
	// shown changes whatever view is shown.
	shown   func(*world, *shard.View)
	advance func(*world)
}

func (t twin) subject() Subject {
	s := reference()
	w := &world{Registry: s.Registry, Commands: s.Commands, sent: map[string]bool{}}
	s.Registry, s.Commands = twinRegistry{w, t}, twinCommands{w, t}
	if t.advance != nil {
		step := s.Advance
		s.Advance = func(d time.Duration) { step(d / 2); t.advance(w); step(d - d/2) }
	}
	return s
}

type twinRegistry struct {
	w *world
	t twin
}

func (r twinRegistry) show(v shard.View, err error) (shard.View, error) {
	if err == nil && r.t.shown != nil {
		r.t.shown(r.w, &v)
	}
	return v, err
}

func (r twinRegistry) Report(ctx context.Context, n shard.Record, urgent bool) (shard.View, error) {
	if r.t.report != nil {
		return r.t.report(r.w, ctx, n, urgent)
	}
	return r.show(r.w.Report(ctx, n, urgent))
}

func (r twinRegistry) ReadView(ctx context.Context, name string) (shard.View, error) {
	if r.t.look != nil {
		return r.t.look(r.w, ctx, name)
	}
	return r.show(r.w.ReadView(ctx, name))
}

func (r twinRegistry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	if r.t.decide != nil {
		return r.t.decide(r.w, ctx, d)
	}
	return r.w.UpdateRow(ctx, d)
}

func (r twinRegistry) Lock(ctx context.Context, l shard.Lock) error {
	if r.t.lock != nil {
		return r.t.lock(r.w, ctx, l)
	}
	return r.w.Lock(ctx, l)
}

func (r twinRegistry) Unlock(ctx context.Context, l shard.Lock) error {
	if r.t.unlock != nil {
		return r.t.unlock(r.w, ctx, l)
	}
	return r.w.Unlock(ctx, l)
}

func (r twinRegistry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	if r.t.list != nil {
		return r.t.list(r.w, ctx, after, limit)
	}
	views, err := r.w.List(ctx, after, limit)
	for i := range views {
		views[i], _ = r.show(views[i], nil)
	}
	return views, err
}

func (r twinRegistry) Watch(ctx context.Context, name string, wake func(string)) error {
	if r.t.watch != nil {
		return r.t.watch(r.w, ctx, name, wake)
	}
	return r.w.Watch(ctx, name, wake)
}

type twinCommands struct {
	w *world
	t twin
}

func (c twinCommands) Send(ctx context.Context, all ...shard.Command) error {
	if c.t.send != nil {
		return c.t.send(c.w, ctx, all...)
	}
	return c.w.Send(ctx, all...)
}

func (c twinCommands) Next(ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
	if c.t.next != nil {
		return c.t.next(c.w, ctx, node, wait)
	}
	return c.w.Next(ctx, node, wait)
}

func twins() map[string]twin {
	all := map[string]twin{}
	for _, part := range []map[string]twin{reportTwins(), takenTwins(), viewTwins(), decideTwins(), lockTwins(), commandTwins(), watchTwins(), inputTwins()} {
		for name, broken := range part {
			if _, used := all[name]; used {
				panic("two twins are called " + name)
			}
			all[name] = broken
		}
	}
	return all
}

func reportTwins() map[string]twin {
	return map[string]twin{
		"numbers are floats": {by: "report/the whole record is kept", shown: func(_ *world, v *shard.View) {
			for i := range v.Nodes {
				v.Nodes[i].Txn = int64(float64(v.Nodes[i].Txn))
			}
		}},
		"a report is merged into the last": {by: "report/the last one counts", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			if v, err := w.ReadView(ctx, n.Shard); err == nil && n.Link == nil {
				old, _ := v.Node(n.ID)
				n.Link = old.Link
			}
			return w.Report(ctx, n, tell)
		}},
		"the first report counts": {by: "report/the last one counts", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			if v, err := w.ReadView(ctx, n.Shard); err == nil {
				if old, known := v.Node(n.ID); known {
					n.Txn = old.Txn
				}
			}
			return w.Report(ctx, n, tell)
		}},
		"records are always young": {by: "report/stamp and age", shown: func(_ *world, v *shard.View) {
			for i := range v.Nodes {
				v.Nodes[i].Age = 0
			}
		}},
		"the agent stamps": {by: "report/stamp and age", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			v, err := w.Report(ctx, n, tell)
			if err == nil {
				v.Nodes[0].Updated, v.Nodes[0].Age = n.Updated, n.Age
			}
			return v, err
		}},
		"a look renews": {by: "report/a record lives for its timeout", look: func(w *world, ctx context.Context, name string) (shard.View, error) {
			v, err := w.ReadView(ctx, name)
			for _, n := range v.Nodes {
				_, _ = w.Report(ctx, n, false)
			}
			if err != nil {
				return v, err
			}
			return w.ReadView(ctx, name)
		}},
		"the view of before": {by: "report/the view of after it", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			v, err := w.ReadView(ctx, n.Shard)
			if _, failed := w.Report(ctx, n, tell); failed != nil || err != nil {
				return w.ReadView(ctx, n.Shard)
			}
			return v, nil
		}},
		"nodes are in no order": {by: "report/the view of after it", shown: func(_ *world, v *shard.View) { slices.Reverse(v.Nodes) }},
		"names are folded": {by: "report/shards know nothing of another", look: func(w *world, ctx context.Context, name string) (shard.View, error) {
			return w.ReadView(ctx, strings.ToLower(name))
		}},
		"an agent that was once is the only one": {by: "report/an agent that starts anew", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			if v, err := w.ReadView(ctx, n.Shard); err == nil {
				if old, known := v.Node(n.ID); known && old.Instance != n.Instance {
					return v, shard.ErrTaken
				}
			}
			return w.Report(ctx, n, tell)
		}},
		"addresses are kept for ever": {by: "report/a node that moves", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if at := n.Address; w.sent[at] && !w.sent[at+n.ID] {
				return shard.View{}, shard.ErrTaken
			}
			w.sent[n.Address], w.sent[n.Address+n.ID] = true, true
			return w.Report(ctx, n, tell)
		}},
		"every shard is there": {by: "report/a shard without row and records", look: func(w *world, ctx context.Context, name string) (shard.View, error) {
			v, err := w.ReadView(ctx, name)
			if errors.Is(err, shard.ErrNotFound) {
				err = nil
			}
			return v, err
		}},
	}
}

// seizes is a store that lets a node be registered whatever speaks against it, where
// when says so.
func seizes(by string, when func(n, old shard.Record) bool) twin {
	return twin{by: by, report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
		v, err := w.Report(ctx, n, tell)
		if !errors.Is(err, shard.ErrTaken) {
			return v, err
		}
		views, _ := w.List(ctx, "", shard.MaxShards)
		for _, seen := range views {
			for _, old := range seen.Nodes {
				if (old.ID == n.ID || old.Address == n.Address) && when(n, old) {
					w.forget(ctx, old.ID)
				}
			}
		}
		return w.Report(ctx, n, tell)
	}}
}

// twoSteps is a store that looks and then writes, so that others can come between.
func twoSteps(by string) twin {
	return twin{by: by, report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
		views, _ := w.List(ctx, "", shard.MaxShards)
		together()
		for _, seen := range views {
			for _, old := range seen.Nodes {
				if old.ID == n.ID && old.Instance != n.Instance || (old.ID == n.ID || old.Address == n.Address) && seen.Row.Name != n.Shard ||
					old.ID != n.ID && old.Address == n.Address {
					return shard.View{}, shard.ErrTaken
				}
			}
		}
		v, err := w.Report(ctx, n, tell)
		if errors.Is(err, shard.ErrTaken) { // too late to know
			return w.ReadView(ctx, n.Shard)
		}
		return v, err
	}}
}

func takenTwins() map[string]twin {
	return map[string]twin{
		"a node goes from shard to shard": seizes("taken/the id in another shard", func(n, old shard.Record) bool { return old.ID == n.ID && old.Shard != n.Shard }),
		"a silent node goes from shard to shard": seizes("taken/the id in another shard", func(n, old shard.Record) bool {
			return old.ID == n.ID && old.Shard != n.Shard && !old.Live()
		}),
		"an address goes from shard to shard": seizes("taken/the address in another shard", func(n, old shard.Record) bool { return old.ID != n.ID && old.Shard != n.Shard }),
		"a silent address goes from shard to shard": seizes("taken/the address in another shard", func(n, old shard.Record) bool {
			return old.ID != n.ID && old.Shard != n.Shard && !old.Live()
		}),
		"an address goes from node to node": seizes("taken/the address by another node", func(n, old shard.Record) bool { return old.ID != n.ID && old.Shard == n.Shard }),
		"the last agent wins":               seizes("taken/the id by another agent", func(n, old shard.Record) bool { return old.ID == n.ID && old.Instance != n.Instance }),
		"the newcomer's timeout counts": seizes("taken/the id by another agent", func(n, old shard.Record) bool {
			return old.ID == n.ID && old.Instance != n.Instance && n.Timeout < old.Timeout
		}),
		"clients' addresses are one node's": {by: "taken/by oneself is no matter", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			views, _ := w.List(ctx, "", shard.MaxShards)
			for _, v := range views {
				for _, old := range v.Nodes {
					if old.ID != n.ID && old.Client() == n.Client() {
						return shard.View{}, shard.ErrTaken
					}
				}
			}
			return w.Report(ctx, n, tell)
		}},
		"an address is looked up first": twoSteps("taken/one of many nodes at an address"),
		"the agent is looked up first":  twoSteps("taken/one of many agents of a node"),
		"the shard is looked up first":  twoSteps("taken/one of many shards of a node"),
		"the home is looked up first":   twoSteps("taken/one of many shards of an address"),
	}
}

func viewTwins() map[string]twin {
	return map[string]twin{
		"row and nodes are read one after the other": {by: "view/all at one moment", look: func(w *world, ctx context.Context, name string) (shard.View, error) {
			v, err := w.ReadView(ctx, name)
			together()
			after, failed := w.ReadView(ctx, name)
			if err != nil || failed != nil {
				return after, failed
			}
			v.Nodes = after.Nodes
			return v, nil
		}},
		"the lease is of before": {by: "view/the lease is that of the store", shown: func(w *world, v *shard.View) {
			w.mu.Lock()
			defer w.mu.Unlock()
			now := v.Lease
			if w.count++; w.count > 3 {
				v.Lease = w.kept.Lease
			}
			w.kept.Lease = now
		}},
		"successors are not shown": {by: "view/the lease is that of the store", shown: func(_ *world, v *shard.View) { v.Lease.Successor = "" }},
		"the lock of any primary": {by: "view/the lock of the row's primary", shown: func(w *world, v *shard.View) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if v.Lock == "" {
				v.Lock = w.kept.Lock
			}
			w.kept.Lock = v.Lock
		}},
		"what is shown is shared": {by: "view/what is shown is a copy", shown: func(w *world, v *shard.View) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.kept.Row.Rev != v.Row.Rev {
				w.kept = *v
			}
			v.Row = w.kept.Row
		}},
		"pages overlap": {by: "view/shards page by page", list: func(w *world, ctx context.Context, after string, limit int) ([]shard.View, error) {
			if after != "" {
				after = after[:len(after)-1]
			}
			return w.List(ctx, after, limit)
		}},
		"pages are too long": {by: "view/shards page by page", list: func(w *world, ctx context.Context, after string, limit int) ([]shard.View, error) {
			return w.List(ctx, after, limit+1)
		}},
		"shards without a row are not listed": {by: "view/shards page by page", list: func(w *world, ctx context.Context, after string, limit int) ([]shard.View, error) {
			views, err := w.List(ctx, after, limit)
			return slices.DeleteFunc(views, func(v shard.View) bool { return v.Row.Rev == 0 }), err
		}},
	}
}
