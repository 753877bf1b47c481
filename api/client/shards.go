package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// ShardQuery selects shards.
type ShardQuery struct {
	After   string // Next of the page before: only shards after this one
	Text    string // only shards whose name contains this
	Trouble bool   // only those that need attention
	Limit   int    // default 100, at most 1000
}

// Switchover asks for another primary while the present one is well.
type Switchover struct {
	To      string        // a node's id, the begin of it, or an address; "" is the best one
	Timeout time.Duration // writes wait at most so long; default 5 s, at most 1 min
	By      string        // who asks, for the history
	Wait    time.Duration // how long to wait for its end, at most 1 min; 0 not at all
}

// Failover asks for another primary in place of one that is over.
type Failover struct {
	To    string
	Force bool // even if that loses writes
	By    string
	Wait  time.Duration
}

func shardPath(shard string) string { return "/v1/shards/" + url.PathEscape(shard) }

func waiting(d time.Duration) url.Values {
	v := url.Values{}
	if d > 0 {
		v.Set("wait", d.String())
	}
	return v
}

// Shards lists shards by name.
func (c *Client) Shards(ctx context.Context, q ShardQuery) (apitype.Shards, error) {
	v := url.Values{}
	set(v, "after", q.After)
	set(v, "text", q.Text)
	setNumber(v, "limit", int64(q.Limit))
	if q.Trouble {
		v.Set("trouble", "true")
	}
	var out apitype.Shards
	err := c.do(ctx, http.MethodGet, "/v1/shards", v, nil, &out)
	return out, err
}

// Shard returns a shard with its nodes.
func (c *Client) Shard(ctx context.Context, shard string) (apitype.Shard, error) {
	var out apitype.Shard
	err := c.do(ctx, http.MethodGet, shardPath(shard), nil, nil, &out)
	return out, err
}

// ShardPrimary returns where the primary of a shard is; an [*Error] with the code no_primary
// when there is none, and none came within wait.
func (c *Client) ShardPrimary(ctx context.Context, shard string, wait time.Duration) (apitype.ShardPrimary, error) {
	ctx, cancel := withTimeout(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out apitype.ShardPrimary
	err := c.do(ctx, http.MethodGet, shardPath(shard)+"/primary", waiting(wait), nil, &out)
	return out, err
}

// Switchover asks for one. An [*Error] with the code not_done is why it was refused or
// went back, if that was waited for.
func (c *Client) Switchover(ctx context.Context, shard string, s Switchover) (apitype.ShardRequest, error) {
	body := apitype.SwitchoverRequest{To: s.To, TimeoutMS: s.Timeout.Milliseconds(), By: s.By}
	return c.requestOfShard(ctx, shardPath(shard)+"/switchover", body, s.Wait)
}

// Failover asks for one; errors as of [Client.Switchover].
func (c *Client) Failover(ctx context.Context, shard string, f Failover) (apitype.ShardRequest, error) {
	body := apitype.FailoverRequest{To: f.To, Force: f.Force, By: f.By}
	return c.requestOfShard(ctx, shardPath(shard)+"/failover", body, f.Wait)
}

func (c *Client) requestOfShard(ctx context.Context, path string, body any, wait time.Duration) (apitype.ShardRequest, error) {
	ctx, cancel := withTimeout(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out apitype.ShardRequest
	err := c.do(ctx, http.MethodPost, path, waiting(wait), body, &out)
	return out, err
}

// ShardRequest tells what has become of a request, waiting for its end up to wait. Only the
// latest of a shard is known.
func (c *Client) ShardRequest(ctx context.Context, shard, request string, wait time.Duration) (apitype.ShardRequest, error) {
	ctx, cancel := withTimeout(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out apitype.ShardRequest
	err := c.do(ctx, http.MethodGet, shardPath(shard)+"/requests/"+url.PathEscape(request), waiting(wait), nil, &out)
	return out, err
}

// CancelShardRequest takes a request back that no agent has begun with.
func (c *Client) CancelShardRequest(ctx context.Context, shard, request, by string) error {
	v := url.Values{}
	set(v, "by", by)
	return c.do(ctx, http.MethodDelete, shardPath(shard)+"/requests/"+url.PathEscape(request), v, nil, nil)
}

// PauseShard keeps a shard from failing over by itself.
func (c *Client) PauseShard(ctx context.Context, shard, reason, by string) error {
	return c.do(ctx, http.MethodPost, shardPath(shard)+"/pause", nil, apitype.PauseRequest{Reason: reason, By: by}, nil)
}

// ResumeShard ends a pause.
func (c *Client) ResumeShard(ctx context.Context, shard, by string) error {
	return c.do(ctx, http.MethodPost, shardPath(shard)+"/resume", nil, apitype.Caller{By: by}, nil)
}

// ForgetShardNode removes a node that is gone for good; its agent must have stopped.
func (c *Client) ForgetShardNode(ctx context.Context, shard, node, by string) error {
	v := url.Values{}
	set(v, "by", by)
	return c.do(ctx, http.MethodDelete, shardPath(shard)+"/nodes/"+url.PathEscape(node), v, nil, nil)
}
