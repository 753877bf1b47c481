package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

// shardPoll is how often a server is asked how a plan goes on.
const shardPoll = 250 * time.Millisecond

// shardSeen is a shard as it was at a time.
type shardSeen struct {
	api.ShardView
	at time.Time
}

// node returns one that is known.
func (s shardSeen) node(id string) (api.NodeView, bool) {
	i := slices.IndexFunc(s.Nodes, func(n api.NodeView) bool { return n.ID == id })
	if i < 0 {
		return api.NodeView{}, false
	}
	return s.Nodes[i], true
}

// whereabouts is where clients find the primary.
func (s shardSeen) whereabouts() (shard.Endpoint, error) {
	if s.Primary == nil {
		return shard.Endpoint{}, heardError{s.Why, shard.ErrNoPrimary}
	}
	return *s.Primary, nil
}

// shardDesk is what the commands do with shards, on the store or through a server.
type shardDesk interface {
	list(ctx context.Context, after string, limit int) ([]shardSeen, error)
	look(ctx context.Context, name string) (shardSeen, error)
	pause(ctx context.Context, name, reason string) error
	resume(ctx context.Context, name string) error
	forget(ctx context.Context, name, node string) error
	// ask puts a request, wait follows it as [shard.Desk.Wait] does, and cancel takes it back.
	ask(ctx context.Context, name string, q shard.Request, to string) (id string, err error)
	wait(ctx context.Context, name, id string, progress func(shardSeen)) (shard.Plan, error)
	cancel(ctx context.Context, name, id string) error
}

// atDesk lets f use the desk of the store or of a server; f bounds its own calls.
func (a *app) atDesk(ctx context.Context, f func(context.Context, shardDesk) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		return f(ctx, remoteShards{c})
	}
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	shards, err := instance.Shards(st)
	if err != nil {
		return err
	}
	return f(ctx, storeShards{shards, shard.Desk{Registry: shards.Registry(), By: who()}})
}

// storeShards are those of a store.
type storeShards struct {
	store.Shards
	desk shard.Desk
}

func (s storeShards) list(ctx context.Context, after string, limit int) ([]shardSeen, error) {
	views, err := s.desk.Registry.List(ctx, after, limit)
	out := make([]shardSeen, len(views))
	for i, v := range views {
		out[i] = seenIn(v)
	}
	return out, err
}

func seenIn(v shard.View) shardSeen { return shardSeen{api.ViewShard(v, 0), v.Now} }

func (s storeShards) look(ctx context.Context, name string) (shardSeen, error) {
	v, err := s.desk.Registry.Look(ctx, name)
	if err != nil {
		return shardSeen{}, err
	}
	return seenIn(v), nil
}

func (s storeShards) pause(ctx context.Context, name, reason string) error {
	return s.desk.Pause(ctx, name, reason)
}

func (s storeShards) resume(ctx context.Context, name string) error { return s.desk.Resume(ctx, name) }

func (s storeShards) forget(ctx context.Context, name, node string) error {
	return s.desk.Forget(ctx, name, node)
}

func (s storeShards) ask(ctx context.Context, name string, q shard.Request, to string) (string, error) {
	return s.desk.Ask(ctx, name, q, to)
}

func (s storeShards) wait(ctx context.Context, name, id string, progress func(shardSeen)) (shard.Plan, error) {
	return s.desk.Wait(ctx, name, id, func(v shard.View) { progress(seenIn(v)) })
}

func (s storeShards) cancel(ctx context.Context, name, id string) error {
	return s.desk.Cancel(ctx, name, id)
}

// remoteShards are those that a server knows.
type remoteShards struct{ c *client.Client }

// heardOfShard is told, where what was not found is a shard or a node of it.
func heardOfShard(err error) error {
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Code == "not_found" {
		return heardError{answer.Error(), shard.ErrNotFound}
	}
	return heard(err)
}

func (r remoteShards) list(ctx context.Context, after string, limit int) ([]shardSeen, error) {
	shards, err := r.c.Shards(ctx, client.ShardQuery{After: after, Limit: limit})
	if err != nil {
		return nil, heardOfShard(err)
	}
	out := make([]shardSeen, len(shards))
	for i, s := range shards {
		if out[i], err = seenThrough(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func seenThrough(s client.Shard) (shardSeen, error) {
	view, err := recast[api.ShardView](s)
	return shardSeen{view, time.Now()}, err
}

func (r remoteShards) look(ctx context.Context, name string) (shardSeen, error) {
	s, err := r.c.Shard(ctx, name)
	if err != nil {
		return shardSeen{}, heardOfShard(err)
	}
	return seenThrough(s)
}

func (r remoteShards) pause(ctx context.Context, name, reason string) error {
	return heardOfShard(r.c.PauseShard(ctx, name, reason, who()))
}

func (r remoteShards) resume(ctx context.Context, name string) error {
	return heardOfShard(r.c.ResumeShard(ctx, name, who()))
}

func (r remoteShards) forget(ctx context.Context, name, node string) error {
	return heardOfShard(r.c.ForgetShardNode(ctx, name, node, who()))
}

func (r remoteShards) ask(ctx context.Context, name string, q shard.Request, to string) (string, error) {
	var asked client.ShardRequest
	var err error
	if q.Kind == shard.Switchover {
		asked, err = r.c.Switchover(ctx, name, client.Switchover{To: to, Timeout: q.Timeout, By: who()})
	} else {
		asked, err = r.c.Failover(ctx, name, client.Failover{To: to, Force: q.Force, By: who()})
	}
	return asked.Request, heardOfShard(err)
}

// wait looks at the shard for its steps, and at the request for its end.
func (r remoteShards) wait(ctx context.Context, name, id string, progress func(shardSeen)) (shard.Plan, error) {
	tick := time.NewTicker(shardPoll)
	defer tick.Stop()
	for {
		plan, over, err := r.followed(ctx, name, id, progress)
		if over || err != nil && exitCode(err) != exitUnreachable {
			return plan, err
		}
		select {
		case <-ctx.Done():
			return shard.Plan{}, fmt.Errorf("waiting for shard %q: %w", name, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (r remoteShards) followed(ctx context.Context, name, id string, progress func(shardSeen)) (plan shard.Plan, over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	seen, err := r.look(ctx, name)
	if err != nil {
		return plan, false, err
	}
	progress(seen)
	q, err := r.c.ShardRequest(ctx, name, id, 0)
	if err != nil {
		return plan, false, heardOfShard(err)
	}
	if q.Plan != nil {
		if plan, err = recast[shard.Plan](*q.Plan); err != nil {
			return plan, false, err
		}
	}
	switch api.RequestState(q.State) {
	case api.RequestNotDone:
		return plan, true, fmt.Errorf("%w: %s", shard.ErrFailed, q.Error)
	case api.RequestDone:
		return plan, true, nil
	}
	return plan, false, nil
}

func (r remoteShards) cancel(ctx context.Context, name, id string) error {
	return heardOfShard(r.c.CancelShardRequest(ctx, name, id, who()))
}

// watchThrough prints at each change where the primary is, as a server tells it. A server that does
// not answer is asked again.
func (a *app) watchThrough(ctx context.Context, name string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := ""
	return a.atDesk(ctx, func(ctx context.Context, d shardDesk) error {
		for {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			s, err := d.look(call, name)
			cancel()
			var at shard.Endpoint
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				at, err = s.whereabouts()
			case errors.Is(err, shard.ErrNotFound):
				err = fmt.Errorf("%w: no agent has ever reported for shard %q", shard.ErrNoPrimary, name)
			case exitCode(err) == exitUnreachable:
				a.Log.Warn("the server does not answer; trying again", "err", err)
			default:
				return err
			}
			if now := fmt.Sprint(at, err); now != last && (err == nil || errors.Is(err, shard.ErrNoPrimary)) {
				last = now
				if err := a.printWhereabouts(name, at, err); err != nil {
					return err
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}
