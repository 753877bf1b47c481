package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
)

// maxJSONPayload is the longest payload that is sent in JSON.
const maxJSONPayload = 4 << 20

// withDesk lets f use the desk of the store or of a server; f bounds its own calls.
func (a *app) withDesk(ctx context.Context, f func(context.Context, dispatch.Desk) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		return withAdvice(f(ctx, remoteQueues{c}))
	}
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	q, err := a.Queues(st)
	if err != nil {
		return err
	}
	return withAdvice(f(ctx, q.Desk()))
}

// askDesk is withDesk within callTimeout.
func (a *app) askDesk(ctx context.Context, f func(context.Context, dispatch.Desk) error) error {
	return a.withDesk(ctx, func(ctx context.Context, d dispatch.Desk) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx, d)
	})
}

// remoteQueues is the [dispatch.Desk] of a server.
type remoteQueues struct{ c *client.Client }

func (r remoteQueues) Make(ctx context.Context, queue string) error {
	return heard(r.c.MakeQueue(ctx, queue))
}

// Add sends what is longer than JSON may be as it is, by itself.
func (r remoteQueues) Add(ctx context.Context, batches []dispatch.Batch) ([]bool, error) {
	if len(batches) == 0 {
		return nil, nil
	}
	group := make([]client.NewBatch, len(batches))
	for i, b := range batches {
		group[i] = client.NewBatch{Key: b.Key, ID: b.ID, ContentType: b.ContentType, Payload: b.Payload}
	}
	var added []client.Added
	var err error
	if len(group) == 1 && len(group[0].Payload) > maxJSONPayload {
		added = make([]client.Added, 1)
		added[0], err = r.c.AddPayload(ctx, batches[0].Queue, group[0])
	} else {
		added, err = r.c.Add(ctx, batches[0].Queue, group...)
	}
	if err != nil {
		return nil, heard(err)
	}
	if len(added) != len(batches) {
		return nil, fmt.Errorf("%w: the server told of %d batches, not of %d", lease.ErrUnknown, len(added), len(batches))
	}
	out := make([]bool, len(added))
	for i, one := range added {
		out[i] = one.Added
	}
	return out, nil
}

func (r remoteQueues) Queues(ctx context.Context) ([]dispatch.Overview, error) {
	queues, err := r.c.Queues(ctx)
	if err != nil {
		return nil, heard(err)
	}
	out := make([]dispatch.Overview, len(queues))
	for i, q := range queues {
		out[i] = dispatch.Overview{
			Queue: q.Queue, Depth: q.Depth, Done: q.Done, Oldest: millis(q.OldestMS),
			Keys: q.Keys, InStep: q.InFlight, Pending: q.Pending, Delayed: q.Delayed, Blocked: q.Blocked,
		}
		for _, h := range q.Holders {
			out[i].Holders = append(out[i].Holders, dispatch.HolderCount{Instance: lease.Instance(h.Instance), Keys: h.Keys, Asleep: h.Asleep})
		}
	}
	return out, nil
}

func (r remoteQueues) Keys(ctx context.Context, q dispatch.KeyQuery) ([]dispatch.KeyRecord, error) {
	if err := dispatch.ValidateQueue(q.Queue); err != nil {
		return nil, err
	}
	if q.Limit == 0 {
		q.Limit = dispatch.MaxPage
	}
	keys, err := r.c.Keys(ctx, client.KeyQuery(q))
	if err != nil {
		return nil, heard(err)
	}
	out := make([]dispatch.KeyRecord, len(keys))
	for i, k := range keys {
		out[i] = dispatch.KeyRecord{
			Key: k.Key, Depth: k.Depth, Head: k.Head, State: dispatch.State(k.State), Term: k.Term, InStep: k.InFlight,
			Blocked: k.Blocked, Reason: k.Reason, Waiting: millis(k.WaitingMS), Next: millis(k.NextMS),
		}
		if k.Holder != nil {
			out[i].Holder = lease.Instance(*k.Holder)
		}
	}
	return out, nil
}

// Batches looks at those that are named one by one.
func (r remoteQueues) Batches(ctx context.Context, q dispatch.BatchQuery) ([]dispatch.Record, error) {
	if err := dispatch.ValidateQueue(q.Queue); err != nil {
		return nil, err
	}
	var out []dispatch.Record
	for _, id := range q.IDs {
		b, err := r.c.Batch(ctx, q.Queue, id)
		if err := heard(err); errors.Is(err, dispatch.ErrNoBatch) {
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, batchRecord(b))
	}
	if len(q.IDs) > 0 {
		return out, nil
	}
	if q.Limit == 0 {
		q.Limit = dispatch.MaxPage
	}
	batches, err := r.c.Batches(ctx, client.BatchQuery{
		Queue: q.Queue, Key: q.Key, State: string(q.State), AfterKey: q.AfterKey, AfterSeq: q.AfterSeq, Limit: q.Limit,
	})
	for _, b := range batches {
		out = append(out, batchRecord(b))
	}
	return out, heard(err)
}

// Batch looks into every queue when none is named.
func (r remoteQueues) Batch(ctx context.Context, queue, id string) (dispatch.Record, error) {
	if queue == "" {
		var err error
		if queue, err = r.find(ctx, id); err != nil {
			return dispatch.Record{}, err
		}
	}
	b, err := r.c.Batch(ctx, queue, id)
	if err != nil {
		return dispatch.Record{}, heard(err)
	}
	out := batchRecord(b)
	out.Payload, _, err = r.c.Payload(ctx, queue, id)
	return out, heard(err)
}

// find returns the one queue that has a batch of that id.
func (r remoteQueues) find(ctx context.Context, id string) (string, error) {
	queues, err := r.c.Queues(ctx)
	if err != nil {
		return "", heard(err)
	}
	found := ""
	for _, q := range queues {
		switch _, err := r.c.Batch(ctx, q.Queue, id); {
		case errors.Is(heard(err), dispatch.ErrNoBatch):
		case err != nil:
			return "", heard(err)
		case found != "":
			return "", usage.Errorf("batch %q is in %s and in %s: name the queue", id, found, q.Queue)
		default:
			found = q.Queue
		}
	}
	if found == "" {
		return "", fmt.Errorf("%w: %q", dispatch.ErrNoBatch, id)
	}
	return found, nil
}

func (r remoteQueues) Act(ctx context.Context, queue, id string, action dispatch.Action, by string) error {
	var err error
	switch action {
	case dispatch.Retry:
		err = r.c.Retry(ctx, queue, id, by)
	case dispatch.Skip:
		err = r.c.Skip(ctx, queue, id, by)
	case dispatch.Cancel:
		err = r.c.Cancel(ctx, queue, id, by)
	default:
		err = fmt.Errorf("%w: a server does not know %q", lease.ErrInvalid, action)
	}
	return heard(err)
}

func batchRecord(b client.Batch) dispatch.Record {
	out := dispatch.Record{
		Batch: dispatch.Batch{Queue: b.Queue, Key: b.Key, ID: b.ID, ContentType: b.ContentType},
		Size:  b.Size, Seq: b.Seq, State: dispatch.State(b.State), Term: b.Term, Attempts: b.Attempts, Code: b.Code, Detail: b.Detail,
		Link: b.Link, Enqueued: b.Enqueued, Begun: b.Begun, Ended: b.Ended, Blocks: b.Blocks,
	}
	for _, s := range b.Trail {
		out.Trail = append(out.Trail, dispatch.Step{At: s.At, State: dispatch.State(s.State), Term: s.Term, Attempt: s.Attempt, Code: s.Code, Detail: s.Detail})
	}
	return out
}
