package shardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// decides is a store that makes something else of a decision.
func decides(by string, edit func(*shard.RowUpdate)) twin {
	return twin{by: by, decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
		edit(&d)
		return w.UpdateRow(ctx, d)
	}}
}

// rashly is a store that does a part of a decision also when it refuses it.
func rashly(by string, part func(shard.RowUpdate) shard.RowUpdate) twin {
	return twin{by: by, decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
		rev, err := w.UpdateRow(ctx, d)
		if errors.Is(err, shard.ErrChanged) {
			d = part(d)
			d.Row = w.read(ctx, d.Row.Name)
			_, _ = w.UpdateRow(ctx, d)
		}
		return rev, err
	}}
}

func decideTwins() map[string]twin {
	return map[string]twin{
		"a shard is made over and over": {by: "decide/a new shard", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if d.Row.Rev == 0 {
				d.Row.Rev = w.read(ctx, d.Row.Name).Rev
			}
			return w.UpdateRow(ctx, d)
		}},
		"a plan loses its steps": decides("decide/the whole row is kept", func(d *shard.RowUpdate) {
			if d.Row.Plan != nil {
				d.Row.Plan = new(*d.Row.Plan)
				d.Row.Plan.Steps = nil
			}
		}),
		"the last who decides wins": {by: "decide/only what was read", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			d.Row.Rev = w.read(ctx, d.Row.Name).Rev
			return w.UpdateRow(ctx, d)
		}},
		"a row is read and then written": {by: "decide/one of many", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if w.read(ctx, d.Row.Name).Rev != d.Row.Rev {
				return 0, shard.ErrChanged
			}
			together()
			d.Row.Rev = w.read(ctx, d.Row.Name).Rev
			return w.UpdateRow(ctx, d)
		}},
		"refused decisions send": rashly("decide/commands only if decided", func(d shard.RowUpdate) shard.RowUpdate { return shard.RowUpdate{Row: d.Row, Commands: d.Commands} }),
		"refused decisions drop": rashly("decide/commands only if decided", func(d shard.RowUpdate) shard.RowUpdate { return shard.RowUpdate{Row: d.Row, Drop: d.Drop} }),
		"refused decisions are recorded": rashly("decide/commands only if decided", func(d shard.RowUpdate) shard.RowUpdate {
			return shard.RowUpdate{Row: d.Row, Event: d.Event}
		}),
		"decisions send nothing":                decides("decide/commands only if decided", func(d *shard.RowUpdate) { d.Commands = nil }),
		"a shard that is removed keeps its row": decides("view/a shard is removed", func(d *shard.RowUpdate) { d.Remove = false }),
		"a shard that is removed keeps a node": decides("view/a shard is removed", func(d *shard.RowUpdate) {
			if d.Remove {
				d.Drop = d.Drop[1:]
			}
		}),
		"a shard is removed whatever has changed": {by: "view/a shard is removed", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if d.Remove {
				d.Row.Rev = w.read(ctx, d.Row.Name).Rev
			}
			return w.UpdateRow(ctx, d)
		}},
		"nothing is dropped": decides("decide/drops records and queues", func(d *shard.RowUpdate) { d.Drop = nil }),
		"one is dropped":     decides("decide/drops records and queues", func(d *shard.RowUpdate) { d.Drop = d.Drop[:min(1, len(d.Drop))] }),
		"what is dropped is dropped everywhere": {by: "decide/drops records and queues", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			rev, err := w.UpdateRow(ctx, d)
			for _, id := range d.Drop {
				if err == nil {
					w.forget(ctx, id)
				}
			}
			return rev, err
		}},
		"what is dropped is told nothing": decides("decide/a dropped node's last order", func(d *shard.RowUpdate) {
			d.Commands = slices.DeleteFunc(slices.Clone(d.Commands), func(c shard.Command) bool { return slices.Contains(d.Drop, c.Node) })
		}),
		"events are lost": decides("decide/writes its event", func(d *shard.RowUpdate) { d.Event = nil }),
		"events are cut": decides("decide/writes its event", func(d *shard.RowUpdate) {
			if d.Event != nil {
				e := *d.Event
				e.Reason = e.Reason[:10]
				d.Event = &e
			}
		}),
		"steps are torn": {by: "race/one order of steps explains it", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if w.read(ctx, d.Row.Name).Rev != d.Row.Rev {
				return 0, shard.ErrChanged
			}
			together()
			d.Row.Rev = w.read(ctx, d.Row.Name).Rev
			return w.UpdateRow(ctx, d)
		}},
		"old views are shown": {by: "race/one order of steps explains it", shown: func(w *world, v *shard.View) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.count++
			if w.kept.Row.Name == v.Row.Name && w.count%7 == 0 {
				*v = w.kept
				return
			}
			w.kept = *v
		}},
	}
}

func lockTwins() map[string]twin {
	// seize takes a lock whoever has it.
	seize := func(w *world, ctx context.Context, l shard.Lock) error {
		for _, held := range []string{l.Instead, "", "a1", "a2", "a3", "b1"} {
			l.Instead = held
			if err := w.Lock(ctx, l); !errors.Is(err, shard.ErrLocked) {
				return err
			}
		}
		return shard.ErrLocked
	}
	return map[string]twin{
		"the lock is anybody's": {by: "lock/take, renew, take over", lock: seize},
		"a lock is never taken over": {by: "lock/take, renew, take over", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			if l.Instead != "" && l.Instead[0] != l.Value[0] {
				return shard.ErrLocked
			}
			return w.Lock(ctx, l)
		}},
		"one lock for all": {by: "lock/each primary has its own", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			l.Primary = nodeID(1)
			return w.Lock(ctx, l)
		}},
		"a lock is read and then taken": {by: "lock/one of many", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			v, err := w.ReadView(ctx, l.Shard)
			if err != nil || v.Lock != l.Instead {
				return errors.Join(err, shard.ErrLocked)
			}
			together()
			v, _ = w.ReadView(ctx, l.Shard)
			l.Instead = v.Lock
			return w.Lock(ctx, l)
		}},
		"anybody unlocks": {by: "lock/unlocked only by its value", unlock: func(w *world, ctx context.Context, l shard.Lock) error {
			if v, err := w.ReadView(ctx, l.Shard); err == nil {
				l.Instead = v.Lock
			}
			return w.Unlock(ctx, l)
		}},
		"nobody unlocks": {by: "lock/unlocked only by its value", unlock: func(*world, context.Context, shard.Lock) error { return nil }},
		"unlocking what is not locked fails": {by: "lock/unlocked only by its value", unlock: func(w *world, ctx context.Context, l shard.Lock) error {
			if v, err := w.ReadView(ctx, l.Shard); err == nil && v.Lock != l.Instead {
				return shard.ErrLocked
			}
			return w.Unlock(ctx, l)
		}},
		"a lock never ends": {by: "lock/ends when nobody renews it", advance: func(w *world) {
			if v, err := w.ReadView(context.Background(), "s"); err == nil && v.Lock != "" {
				l := shard.Lock{Shard: "s", Primary: v.Row.Primary, Value: v.Lock, Instead: v.Lock}
				_ = w.Lock(context.Background(), l)
			}
		}},
		"a renewal prolongs nothing": {by: "lock/ends when nobody renews it", advance: func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			v, err := w.ReadView(context.Background(), "s")
			if w.count++; err == nil && w.count == 2 {
				_ = w.Unlock(context.Background(), shard.Lock{Shard: "s", Primary: v.Row.Primary, Instead: v.Lock})
			}
		}},
		"the lock goes with the node": {by: "lock/a dropped node's lock stays", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if v, err := w.ReadView(ctx, d.Row.Name); err == nil && len(d.Drop) > 0 {
				_ = w.Unlock(ctx, shard.Lock{Shard: d.Row.Name, Primary: v.Row.Primary, Instead: v.Lock})
			}
			return w.UpdateRow(ctx, d)
		}},
	}
}

func commandTwins() map[string]twin {
	all := func(w *world, ctx context.Context, node string) (out []shard.Command) {
		for {
			c, err := w.Next(ctx, node, 0)
			if err != nil {
				return out
			}
			out = append(out, c)
		}
	}
	return map[string]twin{
		"last in, first out": {by: "commands/first in, first out", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			q := all(w, ctx, node)
			if len(q) == 0 {
				return w.Next(ctx, node, wait)
			}
			_ = w.Send(ctx, q[:len(q)-1]...)
			return q[len(q)-1], nil
		}},
		"a command loses its term": {by: "commands/the whole command is kept", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			c, err := w.Next(ctx, node, wait)
			c.For = c.For.Truncate(time.Millisecond)
			return c, err
		}},
		"what is sent again comes again": {by: "commands/sent again", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			cs = slices.Clone(cs)
			for i := range cs {
				w.mu.Lock()
				w.count++
				if w.sent[cs[i].Node+cs[i].ID] {
					cs[i].ID += fmt.Sprint("#", w.count)
				}
				w.sent[cs[i].Node+cs[i].ID] = true
				w.mu.Unlock()
			}
			return w.Send(ctx, cs...)
		}},
		"what was sent once is known for ever": {by: "commands/sent again", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			cs = slices.DeleteFunc(slices.Clone(cs), func(c shard.Command) bool { return w.sent[c.Node+c.ID] })
			for _, c := range cs {
				w.sent[c.Node+c.ID] = true
			}
			return w.Send(ctx, cs...)
		}},
		"ids are looked up first": {by: "commands/sent again at once", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			for _, c := range cs {
				w.mu.Lock()
				known := w.sent[c.Node+c.ID]
				w.mu.Unlock()
				together()
				w.mu.Lock()
				if w.sent[c.Node+c.ID] && !known {
					c.ID += "#"
				}
				w.sent[c.Node+c.ID] = true
				w.mu.Unlock()
				if err := w.Send(ctx, c); err != nil {
					return err
				}
			}
			return nil
		}},
		"a command is read and then taken": {by: "commands/each is taken once", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			c, err := w.Next(ctx, node, wait)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.count++; err == nil && w.count == 10 {
				c.ID = "009"
				return c, w.Send(ctx, c)
			}
			return c, err
		}},
		"commands last": {by: "commands/expire", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			cs = slices.Clone(cs)
			for i := range cs {
				cs[i].Within = max(cs[i].Within, time.Minute)
			}
			return w.Send(ctx, cs...)
		}},
		"what has expired hides what comes": {by: "commands/what expired does not wait", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			cs = slices.DeleteFunc(slices.Clone(cs), func(c shard.Command) bool { return w.sent[c.ID] })
			for _, c := range cs {
				w.sent[c.ID] = true
			}
			return w.Send(ctx, cs...)
		}},
		"a full queue refuses": {by: "commands/a full queue", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			for _, c := range cs {
				w.mu.Lock()
				w.count++
				full := w.count > shard.MaxQueue
				w.mu.Unlock()
				if !full {
					_ = w.Send(ctx, c)
				}
			}
			return nil
		}},
		"some are sent": {by: "commands/all or none", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			for _, c := range cs {
				if err := w.Send(ctx, c); err != nil {
					return err
				}
			}
			return nil
		}},
		"who waits looks at the end": {by: "wait/ends at once when a command comes", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			pause(ctx, min(wait, maxWait))
			return w.Next(ctx, node, 0)
		}},
		"nobody waits": {by: "wait/ends by itself", next: func(w *world, ctx context.Context, node string, _ time.Duration) (shard.Command, error) {
			return w.Next(ctx, node, 0)
		}},
		"who waits does not listen": {by: "wait/ends with its context", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			c, err := w.Next(context.WithoutCancel(ctx), node, wait)
			if ctx.Err() != nil && err != nil {
				err = lease.ErrUnavailable
			}
			return c, err
		}},
		"who has gone still takes": {by: "wait/ends with its context", next: func(w *world, ctx context.Context, node string, wait time.Duration) (shard.Command, error) {
			c, err := w.Next(ctx, node, wait)
			if errors.Is(err, lease.ErrUnavailable) {
				go func() { _, _ = w.Next(context.WithoutCancel(ctx), node, maxWait) }()
				pause(context.WithoutCancel(ctx), brief)
			}
			return c, err
		}},
	}
}

// wakes is a store that tells those who watch something else.
func wakes(by string, tell func(wake func(string), name, of string)) twin {
	return twin{by: by, watch: func(w *world, ctx context.Context, name string, wake func(string)) error {
		return w.Watch(ctx, "", func(woken string) { tell(wake, woken, name) })
	}}
}

func watchTwins() map[string]twin {
	return map[string]twin{
		"those who watch are told once": {by: "watch/what others wait for", watch: func(w *world, ctx context.Context, name string, wake func(string)) error {
			times := 0
			return w.Watch(ctx, name, func(woken string) {
				if times++; times < 4 {
					wake(woken)
				}
			})
		}},
		"every shard counts": wakes("watch/only the shard that counts", func(wake func(string), name, _ string) { wake(name) }),
		"prefixes count": wakes("watch/only the shard that counts", func(wake func(string), name, of string) {
			if len(name) >= len(of) && name[:len(of)] == of || name == "" {
				wake(name)
			}
		}),
		"whatever happens may be any shard's": wakes("watch/only the shard that counts", func(wake func(string), name, of string) {
			if name != of {
				name = ""
			}
			wake(name)
		}),
		"every report wakes": {by: "watch/not what nobody waits for", report: func(w *world, ctx context.Context, n shard.Record, _ bool) (shard.View, error) {
			return w.Report(ctx, n, true)
		}},
		"renewals of the lock wake": {by: "watch/not what nobody waits for", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			err := w.Lock(ctx, l)
			row := w.read(ctx, l.Shard)
			if err == nil && row.Rev > 0 {
				_, _ = w.UpdateRow(ctx, shard.RowUpdate{Row: row})
			}
			return err
		}},
		"leases wake nobody": {by: "watch/the shard's lease", watch: func(w *world, ctx context.Context, name string, wake func(string)) error {
			times := 0
			return w.Watch(ctx, name, func(woken string) {
				if times++; times < 3 {
					wake(woken)
				}
			})
		}},
		"an end is a fault": {by: "watch/ends with its context", watch: func(w *world, ctx context.Context, name string, wake func(string)) error {
			_ = w.Watch(ctx, name, wake)
			return ctx.Err()
		}},
	}
}

func inputTwins() map[string]twin {
	return map[string]twin{
		"zero bytes end a text": {by: "input/hostile text is only data", shown: func(_ *world, v *shard.View) {
			for i, n := range v.Nodes {
				for k, c := range []byte(n.Trouble) {
					if c == 0 {
						v.Nodes[i].Trouble = n.Trouble[:k]
						break
					}
				}
			}
		}},
		"locks are patterns": {by: "input/hostile text is only data", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			if v, err := w.ReadView(ctx, l.Shard); err == nil && l.Instead == "v*" {
				l.Instead = v.Lock
			}
			return w.Lock(ctx, l)
		}},
		"bytes that are no text break the view": {by: "input/text that is no text", report: func(w *world, ctx context.Context, n shard.Record, tell bool) (shard.View, error) {
			v, err := w.Report(ctx, n, tell)
			if n.Trouble == "\xff\xfe\xc0\x80" {
				w.forget(ctx, nodeID(1))
			}
			return v, err
		}},
		"big rows are cut": decides("input/big rows", func(d *shard.RowUpdate) { d.Row.Members = d.Row.Members[:min(len(d.Row.Members), 50)] }),
		"lists are not checked": {by: "input/what is invalid is refused", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			if d.Validate() != nil {
				return d.Row.Rev + 1, nil
			}
			return w.UpdateRow(ctx, d)
		}},
		"locks without a value": {by: "input/what is invalid is refused", lock: func(w *world, ctx context.Context, l shard.Lock) error {
			if l.Value == "" {
				return nil
			}
			return w.Lock(ctx, l)
		}},
		"ids of commands are not checked": {by: "input/what is invalid is refused", send: func(w *world, ctx context.Context, cs ...shard.Command) error {
			for _, c := range cs {
				if c.ID == "" {
					return nil
				}
			}
			return w.Send(ctx, cs...)
		}},
		"an ended context is as good as any": {by: "input/an ended context is no success", decide: func(w *world, ctx context.Context, d shard.RowUpdate) (int64, error) {
			return w.UpdateRow(context.WithoutCancel(ctx), d)
		}},
	}
}
