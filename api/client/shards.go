package client

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// ShardQuery selects shards.
type ShardQuery struct {
	After    string // Next of the page before: only shards after this one
	Contains string // only shards whose name contains this
	Trouble  bool   // only those that need attention
	Limit    int    // default 100, at most 1000
}

// Switchover asks for another primary while the present one is well.
type Switchover struct {
	To      string        // a node's id, the begin of it, or an address; "" is the best one
	Timeout time.Duration // writes wait at most so long; default 5 s, at most 1 min
	By      string        // who asks, for the history
	Wait    time.Duration // how long to wait for its end, at most 1 min; 0 not at all
}

// Failover asks for another primary in place of one that has ended.
type Failover struct {
	To    string
	Force bool // even if that loses writes
	By    string
	Wait  time.Duration
}

// Shards lists shards by name.
func (c *Client) Shards(ctx context.Context, q ShardQuery) (apitype.Shards, error) {
	return get[apitype.Shards](ctx, c, "/v1/shards", values("after", q.After, "contains", q.Contains, "trouble", q.Trouble, "limit", q.Limit))
}

// Shard returns a shard with its nodes.
func (c *Client) Shard(ctx context.Context, shard string) (apitype.Shard, error) {
	return get[apitype.Shard](ctx, c, pathOf("shards", shard), nil)
}

// ShardPrimary returns where the primary of a shard is; an [*Error] with the code no_primary
// when there is none, and none came within wait.
func (c *Client) ShardPrimary(ctx context.Context, shard string, wait time.Duration) (apitype.ShardPrimary, error) {
	return callAndWait[apitype.ShardPrimary](ctx, c, http.MethodGet, pathOf("shards", shard, "primary"), wait, nil)
}

// Switchover asks for one. An [*Error] with the code not_done is why it was refused or
// went back, if that was waited for.
func (c *Client) Switchover(ctx context.Context, shard string, s Switchover) (apitype.ShardRequest, error) {
	body := apitype.SwitchoverRequest{To: s.To, TimeoutMS: s.Timeout.Milliseconds(), By: s.By}
	return callAndWait[apitype.ShardRequest](ctx, c, http.MethodPost, pathOf("shards", shard, "switchover"), s.Wait, body)
}

// Failover asks for one; errors as of [Client.Switchover].
func (c *Client) Failover(ctx context.Context, shard string, f Failover) (apitype.ShardRequest, error) {
	body := apitype.FailoverRequest{To: f.To, Force: f.Force, By: f.By}
	return callAndWait[apitype.ShardRequest](ctx, c, http.MethodPost, pathOf("shards", shard, "failover"), f.Wait, body)
}

// ShardRequest tells what has become of a request, waiting for its end up to wait. Only the
// latest of a shard is known.
func (c *Client) ShardRequest(ctx context.Context, shard, request string, wait time.Duration) (apitype.ShardRequest, error) {
	return callAndWait[apitype.ShardRequest](ctx, c, http.MethodGet, pathOf("shards", shard, "requests", request), wait, nil)
}

// callAndWait is [call] for what the server may wait with.
func callAndWait[T any](ctx context.Context, c *Client, method, path string, wait time.Duration, body any) (T, error) {
	wait = max(0, wait)
	ctx, cancel := withTimeout(ctx, callTimeout+wait)
	defer cancel()
	return call[T](ctx, c, method, path, values("wait", wait), body)
}

// CancelShardRequest takes a request back that no agent has started with.
func (c *Client) CancelShardRequest(ctx context.Context, shard, request, by string) error {
	return c.do(ctx, http.MethodDelete, pathOf("shards", shard, "requests", request), values("by", by), nil, nil)
}

// PauseShard keeps a shard from failing over by itself.
func (c *Client) PauseShard(ctx context.Context, shard, reason, by string) error {
	return c.post(ctx, pathOf("shards", shard, "pause"), apitype.PauseRequest{Reason: reason, By: by})
}

// ResumeShard ends a pause.
func (c *Client) ResumeShard(ctx context.Context, shard, by string) error {
	return c.post(ctx, pathOf("shards", shard, "resume"), apitype.Caller{By: by})
}

// ForgetShardNode removes a node that is gone for good; its agent must have stopped.
func (c *Client) ForgetShardNode(ctx context.Context, shard, node, by string) error {
	return c.do(ctx, http.MethodDelete, pathOf("shards", shard, "nodes", node), values("by", by), nil, nil)
}
