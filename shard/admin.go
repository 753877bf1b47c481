package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Admin is what operators do with shards.
type Admin struct {
	Registry Registry
	// By is who acts, for the history.
	By string
}

// maxTries is how often an edit is tried when others change the row meanwhile.
const maxTries = 20

// change edits the row of a shard; edit may be called again with a newer view. A nil
// event is not written, and with a nil edit result nothing is done.
func (a Admin) change(ctx context.Context, shard string, edit func(v View) (*RowUpdate, error)) error {
	if err := ValidateName(shard); err != nil {
		return err
	}
	for range maxTries {
		v, err := a.Registry.ReadView(ctx, shard)
		if err != nil {
			return err
		}
		update, err := edit(v)
		if err != nil || update == nil {
			return err
		}
		switch _, err := a.Registry.UpdateRow(ctx, *update); {
		case errors.Is(err, lease.ErrUnknown):
			return fmt.Errorf("%w; it may have been taken. Before you ask again: understudy shard show %s", err, shard)
		case !errors.Is(err, ErrChanged):
			return err
		}
	}
	return fmt.Errorf("%w: shard %q changes all the time; try again", ErrChanged, shard)
}

func (a Admin) event(v View, reason string) *history.Event {
	return &history.Event{Part: Space, Subject: v.Row.Name, Term: v.Row.Epoch, Reason: lease.TruncateReason(reason)}
}

// Pause keeps the shard from failing over by itself until [Admin.Resume]. Plans that are under way
// go on, and operators can still ask for one.
func (a Admin) Pause(ctx context.Context, shard, reason string) error {
	return a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		if v.Row.Rev == 0 {
			return nil, fmt.Errorf("%w: shard %q has no primary yet; there is nothing to pause", ErrNotFound, shard)
		}
		row := v.Row.Copy()
		row.Paused = &Pause{By: a.By, Reason: lease.TruncateReason(reason), Since: v.Now}
		return &RowUpdate{Row: row, Event: a.event(v, "paused by "+a.By+optional(": ", reason))}, nil
	})
}

// Resume ends a pause; without one it does nothing.
func (a Admin) Resume(ctx context.Context, shard string) error {
	return a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		if v.Row.Paused == nil {
			return nil, nil
		}
		row := v.Row.Copy()
		row.Paused = nil
		return &RowUpdate{Row: row, Event: a.event(v, "resumed by "+a.By)}, nil
	})
}

// RequestPlan puts a request into the row, which the agents then carry out or refuse: see
// [Row.Last], which is its end. to is a node as [View.Find] finds it, "" for the best. It returns the request's id.
func (a Admin) RequestPlan(ctx context.Context, shard string, q Request, to string) (id string, err error) {
	if q.Timeout != 0 && (q.Timeout < MinPause || q.Timeout > MaxPause) {
		return "", fmt.Errorf("%w: a switchover may keep writes waiting for %v to %v, not %v", lease.ErrInvalid, MinPause, MaxPause, q.Timeout)
	}
	q.ID, q.By = lease.NewID(), a.By
	err = a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		if to != "" {
			n, err := v.Find(to)
			if err != nil {
				return nil, err
			}
			q.To = n.ID
		}
		switch {
		case v.Row.Rev == 0:
			return nil, fmt.Errorf("%w: shard %q has no primary yet", ErrNotFound, shard)
		case v.Row.Request != nil:
			return nil, fmt.Errorf("%w: a %s asked for by %s waits already", ErrLocked, v.Row.Request.Kind, v.Row.Request.By)
		case v.Row.Plan != nil:
			return nil, fmt.Errorf("%w: a %s is under way (epoch %d, %s)", ErrLocked, v.Row.Plan.Kind, v.Row.Plan.Epoch, v.Row.Plan.Phase)
		case !slices.ContainsFunc(v.Nodes, func(r Record) bool { _, m := v.Row.Member(r.ID); return m && r.Live() }):
			return nil, fmt.Errorf("%w of shard %q, which would have to do it; start one beside each node", ErrNoAgent, shard)
		}
		if _, member := v.Row.Member(q.To); q.To != "" && !member && len(v.Row.Members) >= MaxMembers {
			// It would become one by its promotion, and no store takes such a row.
			return nil, fmt.Errorf("%w: shard %q has %d members, and %.8s is none of them; there is room for no more. Remove one first: understudy shard forget %s NODE",
				lease.ErrInvalid, shard, len(v.Row.Members), q.To, shard)
		}
		row := v.Row.Copy()
		q.At = v.Now
		row.Request = &q
		return &RowUpdate{Row: row, Event: a.event(v, string(q.Kind)+" asked for by "+a.By)}, nil
	})
	return q.ID, err
}

// Cancel withdraws a request that no plan has started on.
func (a Admin) Cancel(ctx context.Context, shard, request string) error {
	return a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		if v.Row.Request == nil || v.Row.Request.ID != request {
			return nil, nil
		}
		row := v.Row.Copy()
		row.Request = nil
		return &RowUpdate{Row: row, Event: a.event(v, string(v.Row.Request.Kind)+" withdrawn by "+a.By)}, nil
	})
}

// Forget removes a node from the shard: its membership, record and queue. A node whose
// agent still reports comes back; the primary cannot be forgotten.
func (a Admin) Forget(ctx context.Context, shard, node string) error {
	return a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		n, err := v.Find(node)
		switch {
		case err != nil:
			return nil, err
		case n.ID == v.Row.Primary:
			return nil, fmt.Errorf("%w: %s is the primary of shard %q; switch over first", lease.ErrInvalid, n.Label(), shard)
		case v.Row.Rev == 0:
			return nil, fmt.Errorf("%w: shard %q has no primary yet; its nodes are forgotten with their agents", ErrNotFound, shard)
		case n.Live():
			return nil, fmt.Errorf("%w: the agent of %s still reports; stop it first", lease.ErrInvalid, n.Label())
		}
		row := v.Row.Copy()
		row.Members = slices.DeleteFunc(row.Members, func(m Member) bool { return m.ID == n.ID })
		return &RowUpdate{Row: row, Drop: []string{n.ID}, Event: a.event(v, fmt.Sprintf("node %s forgotten by %s", n.Label(), a.By))}, nil
	})
}

// Remove deletes a shard whose agents have all stopped: its row, the records of its nodes and their queues. Data on the nodes
// stays. It returns the lease of its primary, which is the caller's to delete ([lease.Forget]).
func (a Admin) Remove(ctx context.Context, shard string) (l lease.Lease, err error) {
	err = a.change(ctx, shard, func(v View) (*RowUpdate, error) {
		if v.Lease.HasLiveHolder() {
			return nil, fmt.Errorf("%w: shard %q has a primary, on the host of %s: stop its agents first", lease.ErrInvalid, shard, v.Lease.Holder.Label())
		}
		var drop []string
		for _, n := range v.Nodes {
			if n.Live() {
				return nil, fmt.Errorf("%w: the agent of %s still reports; stop all agents of shard %q first", lease.ErrInvalid, n.Label(), shard)
			}
			drop = append(drop, n.ID)
		}
		for _, m := range v.Row.Members {
			if _, reports := v.Node(m.ID); !reports {
				drop = append(drop, m.ID)
			}
		}
		l = v.Lease
		return &RowUpdate{Row: Row{Name: shard, Rev: v.Row.Rev}, Remove: true, Drop: drop, Event: a.event(v, "shard removed by "+a.By)}, nil
	})
	return l, err
}

// ErrNoAgent: no agent can carry a request out.
var ErrNoAgent = errors.New("shard: no live agent of a member")

// ErrFailed: what was asked for was refused, or could not be done.
var ErrFailed = errors.New("shard: not done")

// Find returns the one node that an operator means: by its ID, the first characters of its ID, or
// one of its addresses.
func (v View) Find(node string) (Record, error) {
	var found []Record
	for _, r := range v.Nodes {
		switch {
		case r.ID == node || r.Address == node || r.Announced == node:
			return r, nil
		case len(node) >= 4 && strings.HasPrefix(r.ID, node):
			found = append(found, r)
		}
	}
	for _, m := range v.Row.Members {
		if _, reports := v.Node(m.ID); !reports && (m.ID == node || m.Address == node || len(node) >= 4 && strings.HasPrefix(m.ID, node)) {
			// A member without a record: its agent was never seen again after a failover.
			found = append(found, Record{Shard: v.Row.Name, ID: m.ID, Address: m.Address, Age: v.Now.Sub(m.Since)})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Record{}, fmt.Errorf("%w: shard %q has no node %q; see: understudy shard show %s", ErrNotFound, v.Row.Name, node, v.Row.Name)
	}
	return Record{}, fmt.Errorf("%w: %d nodes of shard %q begin with %q; give more of the id", lease.ErrInvalid, len(found), v.Row.Name, node)
}

func optional(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}
