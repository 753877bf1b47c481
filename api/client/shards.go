package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Shard is a database: a primary and its replicas.
type Shard struct {
	Shard string `json:"shard"`
	// Primary is nil while there is none, and then Why tells.
	Primary *ShardPrimary `json:"primary"`
	Why     string        `json:"why"`
	// Health of the primary: fine, unattended, doubtful, over, stuck or none; Reason for it.
	Health string `json:"health"`
	Reason string `json:"reason"`
	// Blocked is why a primary that is over is not replaced, and what to do.
	Blocked string      `json:"blocked"`
	Epoch   int64       `json:"epoch"`
	Paused  *ShardPause `json:"paused"`
	Request *ShardAsked `json:"request"` // that no agent has begun with
	Plan    *ShardPlan  `json:"plan"`    // under way
	Last    *ShardPlan  `json:"last"`    // the latest that ended
	// Holder is the agent that holds the shard's lease, under Term, for another LeftMS.
	Holder string      `json:"holder"`
	Term   int64       `json:"term"`
	LeftMS int64       `json:"left_ms"`
	Nodes  []ShardNode `json:"nodes"`
}

// ShardPrimary is where the primary of a shard is.
type ShardPrimary struct {
	Shard   string `json:"shard"`
	NodeID  string `json:"node_id"`
	Address string `json:"address"`
	Epoch   int64  `json:"epoch"`
}

// ShardPause keeps a shard from failing over by itself.
type ShardPause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// ShardAsked is what a person asked for.
type ShardAsked struct {
	ID      string        `json:"id"`
	Kind    string        `json:"kind"` // failover or switchover
	To      string        `json:"to"`   // node id; "" is the best one
	Force   bool          `json:"force"`
	By      string        `json:"by"`
	Timeout time.Duration `json:"timeout_ns"`
	At      time.Time     `json:"at"`
}

// ShardNode is a database server of a shard.
type ShardNode struct {
	ID         string `json:"node_id"`
	Address    string `json:"address"`         // for clients
	Private    string `json:"private_address"` // for the other nodes
	Agent      string `json:"agent_address"`
	Role       string `json:"role"` // primary or replica
	IsPrimary  bool   `json:"is_primary"`
	Condition  string `json:"condition"` // up, loading, silent, down or refused
	Trouble    string `json:"trouble"`
	Member     bool   `json:"member"` // it may be promoted
	AgentLives bool   `json:"agent_lives"`
	AgeMS      int64  `json:"age_ms"` // since its agent reported
	Txn        int64  `json:"txn_id"`
	// Lag is how far the primary was ahead; it means nothing without SameLineage.
	Lag         int64  `json:"lag"`
	SameLineage bool   `json:"same_lineage"`
	Lineage     string `json:"lineage"`
	LinkUp      *bool  `json:"link_up"` // nil on a primary
	Syncing     bool   `json:"syncing"` // its copy is not whole yet
	Follows     string `json:"primary_node_id"`
	Fence       string `json:"fence"` // open, armed or closed
	Armed       bool   `json:"armed"`
	Priority    int    `json:"priority"`
	Epoch       int64  `json:"epoch"`
	Keys        int64  `json:"keys"`
	Engine      string `json:"engine"`
	Version     string `json:"version"`
}

// ShardPlan is a change of primary.
type ShardPlan struct {
	Epoch   int64         `json:"epoch"`
	Kind    string        `json:"kind"`    // failover, switchover, return or repair
	From    string        `json:"from"`    // node id
	To      string        `json:"to"`      // node id, once chosen
	Wanted  string        `json:"wanted"`  // node id that a person named
	Phase   string        `json:"phase"`   // the present or last one
	By      string        `json:"by"`      // the agent that carries it out
	ByNode  string        `json:"by_node"` // and its node's id
	Reason  string        `json:"reason"`
	Force   bool          `json:"force"`
	Anew    bool          `json:"anew"` // the new primary's data is not the shard's
	Request string        `json:"request"`
	Run     string        `json:"run"`
	Txn     int64         `json:"txn"`
	Tried   []string      `json:"tried"` // node ids
	Timeout time.Duration `json:"timeout_ns"`
	Began   time.Time     `json:"began"`
	Steps   []ShardStep   `json:"steps"`
	Ended   time.Time     `json:"ended"`
	Took    time.Duration `json:"took_ns"`
	Failed  string        `json:"failed"` // why it reached nothing
}

// ShardStep is a phase of a plan that is done.
type ShardStep struct {
	Phase string        `json:"phase"`
	Took  time.Duration `json:"took_ns"`
	Note  string        `json:"note"`
}

// ShardRequest is what somebody asked for, and what has become of it.
type ShardRequest struct {
	Shard   string     `json:"shard"`
	Request string     `json:"request"`
	State   string     `json:"state"` // waiting, running, done or failed
	Error   string     `json:"error"` // why it failed
	Plan    *ShardPlan `json:"plan"`
}

// ShardQuery selects shards.
type ShardQuery struct {
	After   string // only shards after this one
	Text    string // only shards whose name contains this
	Trouble bool   // only those that somebody should look at
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

// Shards lists shards by name; there may be more if there are as many as the limit.
func (c *Client) Shards(ctx context.Context, q ShardQuery) ([]Shard, error) {
	v := url.Values{}
	set(v, "after", q.After)
	set(v, "text", q.Text)
	setNumber(v, "limit", int64(q.Limit))
	if q.Trouble {
		v.Set("trouble", "true")
	}
	var out struct{ Shards []Shard }
	err := c.do(ctx, http.MethodGet, "/v1/shards", v, nil, &out)
	return out.Shards, err
}

// Shard returns a shard with its nodes.
func (c *Client) Shard(ctx context.Context, shard string) (Shard, error) {
	var out Shard
	err := c.do(ctx, http.MethodGet, shardPath(shard), nil, nil, &out)
	return out, err
}

// ShardPrimary returns where the primary of a shard is; an [*Error] with the code no_primary
// when there is none, and none came within wait.
func (c *Client) ShardPrimary(ctx context.Context, shard string, wait time.Duration) (ShardPrimary, error) {
	ctx, cancel := within(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out ShardPrimary
	err := c.do(ctx, http.MethodGet, shardPath(shard)+"/primary", waiting(wait), nil, &out)
	return out, err
}

// Switchover asks for one. An [*Error] with the code not_done is why it was refused or
// went back, if that was waited for.
func (c *Client) Switchover(ctx context.Context, shard string, s Switchover) (ShardRequest, error) {
	body := map[string]any{"to": s.To, "timeout_ms": s.Timeout.Milliseconds(), "by": s.By}
	return c.askShard(ctx, shardPath(shard)+"/switchover", body, s.Wait)
}

// Failover asks for one; errors as of [Client.Switchover].
func (c *Client) Failover(ctx context.Context, shard string, f Failover) (ShardRequest, error) {
	body := map[string]any{"to": f.To, "force": f.Force, "by": f.By}
	return c.askShard(ctx, shardPath(shard)+"/failover", body, f.Wait)
}

func (c *Client) askShard(ctx context.Context, path string, body map[string]any, wait time.Duration) (ShardRequest, error) {
	ctx, cancel := within(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out ShardRequest
	err := c.do(ctx, http.MethodPost, path, waiting(wait), body, &out)
	return out, err
}

// ShardRequest tells what has become of a request, waiting for its end up to wait. Only the
// latest of a shard is known.
func (c *Client) ShardRequest(ctx context.Context, shard, request string, wait time.Duration) (ShardRequest, error) {
	ctx, cancel := within(ctx, callTimeout+max(0, wait))
	defer cancel()
	var out ShardRequest
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
	return c.do(ctx, http.MethodPost, shardPath(shard)+"/pause", nil, map[string]string{"reason": reason, "by": by}, nil)
}

// ResumeShard ends a pause.
func (c *Client) ResumeShard(ctx context.Context, shard, by string) error {
	return c.do(ctx, http.MethodPost, shardPath(shard)+"/resume", nil, map[string]string{"by": by}, nil)
}

// ForgetShardNode removes a node that is gone for good; its agent must have stopped.
func (c *Client) ForgetShardNode(ctx context.Context, shard, node, by string) error {
	v := url.Values{}
	set(v, "by", by)
	return c.do(ctx, http.MethodDelete, shardPath(shard)+"/nodes/"+url.PathEscape(node), v, nil, nil)
}
