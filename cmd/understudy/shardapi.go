package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/shard"
)

// shardPoll is how often a plan is looked at.
const shardPoll = 250 * time.Millisecond

// shardSeen is a shard as it was at a time.
type shardSeen struct {
	apitype.Shard
	at time.Time
}

// node returns a node of the shard.
func (s shardSeen) node(id string) (apitype.ShardNode, bool) {
	i := slices.IndexFunc(s.Nodes, func(n apitype.ShardNode) bool { return n.ID == id })
	if i < 0 {
		return apitype.ShardNode{}, false
	}
	return s.Nodes[i], true
}

// primary is where clients find the primary.
func (s shardSeen) primary() (apitype.ShardPrimary, error) {
	if s.Primary == nil {
		return apitype.ShardPrimary{}, codedError{s.Why, "no_primary", shard.ErrNoPrimary}
	}
	return *s.Primary, nil
}

// readShard reads a shard.
func readShard(ctx context.Context, c *client.Client, name string) (shardSeen, error) {
	s, err := c.Shard(ctx, name)
	return shardSeen{s, time.Now()}, shardError(err)
}

// shardError is apiError where what was not found is a shard, or a node of it.
func shardError(err error) error {
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Code == "not_found" {
		return codedError{answer.Error(), answer.Code, shard.ErrNotFound}
	}
	return apiError(err)
}

// requestPlan asks the agents for a switchover or a failover.
func requestPlan(ctx context.Context, c *client.Client, name string, q shard.Request, to string) (id string, err error) {
	var asked apitype.ShardRequest
	if q.Kind == shard.Switchover {
		asked, err = c.Switchover(ctx, name, client.Switchover{To: to, Timeout: q.Timeout, By: operator()})
	} else {
		asked, err = c.Failover(ctx, name, client.Failover{To: to, Force: q.Force, By: operator()})
	}
	return asked.Request, shardError(err)
}

// waitForPlan follows a request until it has ended. progress gets the shard at each read.
func (a *app) waitForPlan(ctx context.Context, c *client.Client, name, id string, progress func(shardSeen)) (plan apitype.ShardPlan, err error) {
	var failed error
	ended := false
	err = a.poll(ctx, pollOptions{subject: []any{"shard", name}, timeout: callTimeout}, func(ctx context.Context) (_ time.Duration, err error) {
		if plan, ended, err = readPlan(ctx, c, name, id, progress); ended {
			failed = err
			return 0, nil
		}
		return shardPoll, err
	})
	switch {
	case ended:
		return plan, failed
	case err == nil:
		err = fmt.Errorf("waiting for shard %q: %w", name, context.Cause(ctx))
	}
	return plan, err
}

func readPlan(ctx context.Context, c *client.Client, name, id string, progress func(shardSeen)) (plan apitype.ShardPlan, ended bool, err error) {
	seen, err := readShard(ctx, c, name)
	if err != nil {
		return plan, false, err
	}
	progress(seen)
	q, err := c.ShardRequest(ctx, name, id, 0)
	if err != nil {
		return plan, false, shardError(err)
	}
	if q.Plan != nil {
		plan = *q.Plan
	}
	if q.State == apitype.RequestFailed {
		return plan, true, fmt.Errorf("%w: %s", shard.ErrFailed, q.Error)
	}
	return plan, q.State == apitype.RequestDone, nil
}
