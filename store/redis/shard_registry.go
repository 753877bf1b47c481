package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Shards = (*Store)(nil)

// Registry is what the store keeps for package shard.
func (s *Store) Registry() shard.Registry { return shard.Validated(registry{s}) }

// registry is the [shard.Registry] of a Store.
type registry struct{ s *Store }

// Report implements [shard.Registry].
func (r registry) Report(ctx context.Context, n shard.Record, urgent bool) (shard.View, error) {
	fields, err := recordFields(n)
	if err != nil {
		return shard.View{}, err
	}
	told := ""
	if urgent {
		told = "1"
	}
	args := append([]any{n.Shard, n.ID, n.Address, n.Instance, told, r.s.shardChannel()}, fields...)
	answer, err := r.s.run(ctx, r.s.rest, writes, "shard_report", []string{r.s.nodeKey(n.ID)}, args...)
	if err != nil {
		return shard.View{}, fmt.Errorf("reporting node %.8s: %w", n.ID, err)
	}
	if outcome := answer.text(); outcome != "ok" {
		who, what := answer.text(), answer.text()
		if err := answer.err(); err != nil {
			return shard.View{}, err
		}
		return shard.View{}, n.TakenError(outcome, who, what)
	}
	return answer.row().view(n.Shard)
}

// ReadView implements [shard.Registry].
func (r registry) ReadView(ctx context.Context, name string) (shard.View, error) {
	answer, err := r.s.run(ctx, r.s.rest, reads, "shard_look", []string{r.s.shardKey(name)}, name)
	if err != nil {
		return shard.View{}, fmt.Errorf("looking at shard %q: %w", name, err)
	}
	if answer.text() == "none" {
		return shard.View{}, fmt.Errorf("%w: no shard %q", shard.ErrNotFound, name)
	}
	return answer.row().view(name)
}

// listPage is how many views one script shows, so that no other client waits for long.
const listPage = 50

// List implements [shard.Registry]. More than a few are read in several steps.
func (r registry) List(ctx context.Context, after string, limit int) ([]shard.View, error) {
	var out []shard.View
	for len(out) < limit {
		page := min(listPage, limit-len(out))
		names, err := r.s.run(ctx, r.s.rest, reads, "shard_list", []string{r.s.root + "shards"}, after, page)
		if err != nil {
			return nil, fmt.Errorf("listing shards: %w", err)
		}
		got := len(names.fields)
		for names.more() {
			one := names.row()
			after = one.text()
			view, err := one.row().view(after)
			if err != nil {
				return nil, err
			}
			out = append(out, view)
		}
		if got < page {
			break
		}
	}
	return out, nil
}

// UpdateRow implements [shard.Registry].
func (r registry) UpdateRow(ctx context.Context, d shard.RowUpdate) (int64, error) {
	doc, err := json.Marshal(d.Row)
	if err != nil {
		return 0, fmt.Errorf("shard %q: %w", d.Row.Name, err)
	}
	if d.Remove {
		doc = nil
	}
	ids, event := members(d.Row), ""
	if d.Event != nil {
		event = "1"
	}
	args := []any{
		d.Row.Name, d.Row.Rev, string(doc), d.Row.Primary, r.s.keep, r.s.channel, r.s.shardChannel(),
		len(ids), len(d.Drop), len(d.Commands), event,
	}
	for _, id := range append(ids, d.Drop...) {
		args = append(args, id)
	}
	commands, err := commandArgs(d.Commands)
	if err != nil {
		return 0, err
	}
	args = append(args, commands...)
	if e := d.Event; e != nil {
		args = append(args, e.Part, e.Subject, e.From, e.To, e.Term, e.Reason, e.Duration.Microseconds())
	}
	answer, err := r.s.run(ctx, r.s.rest, writes, "shard_decide", []string{r.s.shardKey(d.Row.Name)}, args...)
	if err != nil {
		return 0, fmt.Errorf("deciding about shard %q: %w", d.Row.Name, err)
	}
	outcome, rev := answer.text(), answer.number()
	if outcome == "changed" {
		return 0, fmt.Errorf("%w: shard %q is at %d, not at %d", shard.ErrChanged, d.Row.Name, rev, d.Row.Rev)
	}
	return rev, answer.err()
}

// Lock implements [shard.Registry].
func (r registry) Lock(ctx context.Context, l shard.Lock) error {
	answer, err := r.s.run(ctx, r.s.rest, writes, "shard_lock", []string{r.s.lockKey(l.Primary)}, l.Value, l.Instead, lockSeconds)
	if err != nil {
		return fmt.Errorf("taking the failover lock of primary %.8s: %w", l.Primary, err)
	}
	if answer.text() == "locked" {
		return fmt.Errorf("%w: of primary %.8s, with the value %q", shard.ErrLocked, l.Primary, answer.text())
	}
	return answer.err()
}

// Unlock implements [shard.Registry].
func (r registry) Unlock(ctx context.Context, l shard.Lock) error {
	_, err := r.s.run(ctx, r.s.rest, writes, "shard_unlock", []string{r.s.lockKey(l.Primary)}, l.Instead)
	if err != nil {
		return fmt.Errorf("giving the failover lock of primary %.8s up: %w", l.Primary, err)
	}
	return nil
}

// view reads what view in shard_rows.lua writes.
func (r *row) view(name string) (shard.View, error) {
	now := r.number()
	rev, doc := r.number(), r.text()
	v := shard.View{Lock: r.text(), Lease: r.row().lease(shard.Space), Now: time.UnixMicro(now)}
	for r.more() {
		fields := map[string]string{}
		for of := r.row(); of.more(); {
			name := of.text()
			fields[name] = of.text()
		}
		n, err := recordOf(fields, now)
		if err != nil {
			return shard.View{}, err
		}
		v.Nodes = append(v.Nodes, n)
	}
	if err := r.err(); err != nil {
		return shard.View{}, err
	}
	var err error
	v.Row, err = rowOfShard(name, rev, doc)
	return v, err
}
