package client

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// CacheKey is what a peer of a cache knows of a key.
type CacheKey struct {
	Key     string     `json:"key"`
	State   string     `json:"state"` // idle, follower, candidate or sourcing
	Peer    string     `json:"peer,omitempty"`
	Term    int64      `json:"term"`
	Size    int        `json:"size"`
	Digest  string     `json:"digest,omitempty"`
	Made    *time.Time `json:"made,omitempty"`
	Expire  *time.Time `json:"expire,omitempty"`
	Fresh   bool       `json:"fresh"`
	Waiting int        `json:"waiting"`
	Failure string     `json:"failure,omitempty"`
	Retry   *time.Time `json:"retry,omitempty"`
	// Base64 is the key exactly when it is not UTF-8; [Client.CacheKeys] puts it into
	// Key.
	Base64 string `json:"key_base64,omitempty"`
}

// CacheItem is a copy, without its value.
type CacheItem struct {
	Key    string     `json:"key"`
	Term   int64      `json:"term"`
	Size   int        `json:"size"`
	Digest string     `json:"digest"`
	Made   *time.Time `json:"made,omitempty"`
	Expire time.Time  `json:"expire"`
	From   string     `json:"from"` // hit, stale or miss
}

// CacheMember is a peer by its addresses.
type CacheMember struct {
	URL string `json:"url"`
	API string `json:"api"`
}

// CacheMembers is a configuration of a cluster.
type CacheMembers struct {
	Number  int64         `json:"number"`
	Members []CacheMember `json:"members"`
}

// CachePeer is what a peer knows of another, or of itself.
type CachePeer struct {
	CacheMember
	Self    bool           `json:"self,omitempty"`
	Link    string         `json:"link"` // up, down or dead
	Since   *time.Time     `json:"since,omitempty"`
	Kind    string         `json:"kind"`
	Config  int64          `json:"config,omitempty"`
	Skew    *time.Duration `json:"skew_ns,omitempty"`
	Busy    bool           `json:"busy,omitempty"`
	Dropped int64          `json:"dropped"`
}

// CacheCluster is a peer's view of its cluster.
type CacheCluster struct {
	Self        string      `json:"self"`
	Config      int64       `json:"config"`
	Member      bool        `json:"member"`
	Majority    int         `json:"majority"`
	Connected   int         `json:"connected"`
	Partitioned bool        `json:"partitioned"`
	Abstaining  bool        `json:"abstaining"`
	Trouble     string      `json:"trouble,omitempty"`
	Peers       []CachePeer `json:"peers"`
}

// CacheEvent is something that a peer did.
type CacheEvent struct {
	Time time.Time `json:"time"`
	Key  string    `json:"key,omitempty"`
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	Term int64     `json:"term,omitempty"`
	Peer string    `json:"peer,omitempty"`
	Why  string    `json:"why"`
}

// CacheKeys lists up to limit keys of a peer that begin with prefix, after the one
// named, in order, and tells whether there may be more. A limit of 0 is 100, and
// 1,000 is the most.
func (c *Client) CacheKeys(ctx context.Context, prefix, after string, limit int) (keys []CacheKey, more bool, err error) {
	v := url.Values{}
	set(v, "prefix", prefix)
	set(v, "after", after)
	setNumber(v, "limit", int64(limit))
	var out struct {
		Keys []CacheKey
		Next string
	}
	if err := c.do(ctx, http.MethodGet, "/v1/cache", v, nil, &out); err != nil {
		return nil, false, err
	}
	for i, k := range out.Keys {
		if exact, err := base64.StdEncoding.DecodeString(k.Base64); err == nil && len(exact) > 0 {
			out.Keys[i].Key = string(exact)
		}
	}
	return out.Keys, out.Next != "", nil
}

// CacheRefresh has a key fetched now and waits for it, for so long; 0 is the
// server's default.
func (c *Client) CacheRefresh(ctx context.Context, key string, wait time.Duration) (CacheItem, error) {
	v := url.Values{"key": {key}}
	setWait(v, wait)
	var out CacheItem
	err := c.do(ctx, http.MethodPost, "/v1/cache-refresh", v, nil, &out)
	return out, err
}

// CacheRemove removes the copies of a key on every peer, and tells how many of how
// many members have confirmed it within the wait; the others remove it when they
// are back.
func (c *Client) CacheRemove(ctx context.Context, key string, wait time.Duration) (confirmed, of int, err error) {
	v := url.Values{"key": {key}}
	setWait(v, wait)
	return c.cacheRemove(ctx, v)
}

// CacheRemoveAll is [Client.CacheRemove] for all keys that begin with a prefix, or
// for every key when that is "".
func (c *Client) CacheRemoveAll(ctx context.Context, prefix string, wait time.Duration) (confirmed, of int, err error) {
	v := url.Values{}
	if setWait(v, wait); prefix == "" {
		v.Set("all", "true")
	} else {
		v.Set("prefix", prefix)
	}
	return c.cacheRemove(ctx, v)
}

func (c *Client) cacheRemove(ctx context.Context, v url.Values) (confirmed, of int, err error) {
	var out struct{ Confirmed, Of int }
	err = c.do(ctx, http.MethodDelete, "/v1/cache", v, nil, &out)
	return out.Confirmed, out.Of, err
}

// CachePeers tells how a peer sees its cluster.
func (c *Client) CachePeers(ctx context.Context) (CacheCluster, error) {
	var out CacheCluster
	err := c.do(ctx, http.MethodGet, "/v1/cache-peers", nil, nil, &out)
	return out, err
}

// CacheAddPeer adds a member to the cluster, if a majority agrees within the wait.
func (c *Client) CacheAddPeer(ctx context.Context, m CacheMember, wait time.Duration) (CacheMembers, error) {
	v := url.Values{}
	setWait(v, wait)
	var out CacheMembers
	err := c.do(ctx, http.MethodPost, "/v1/cache-peers", v, m, &out)
	return out, err
}

// CacheRemovePeer removes a member from the cluster, if a majority agrees within
// the wait.
func (c *Client) CacheRemovePeer(ctx context.Context, peer string, wait time.Duration) (CacheMembers, error) {
	v := url.Values{"url": {peer}}
	setWait(v, wait)
	var out CacheMembers
	err := c.do(ctx, http.MethodDelete, "/v1/cache-peers", v, nil, &out)
	return out, err
}

// CacheEvents calls fn for each event of keys that begin with prefix, until ctx
// ends, the connection breaks or fn returns an error, which it returns. Nothing is
// kept: what happens between two calls is missed.
func (c *Client) CacheEvents(ctx context.Context, prefix string, fn func(CacheEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("client: the stream was silent for %v", silence)) })
	defer watchdog.Stop()
	v := url.Values{}
	set(v, "prefix", prefix)
	answer, err := c.send(ctx, http.MethodGet, "/v1/cache-events", v, nil)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	wanted := false
	for lines.Scan() {
		watchdog.Reset(silence)
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			wanted = value == "cache"
		case name == "data" && wanted:
			var e CacheEvent
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return fmt.Errorf("client: an event cannot be read: %w", err)
			}
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("client: the stream broke: %w", err)
	}
	return errors.New("client: the server ended the stream")
}

func setWait(v url.Values, d time.Duration) {
	if d > 0 {
		v.Set("wait", strconv.FormatInt(d.Milliseconds(), 10)+"ms")
	}
}
