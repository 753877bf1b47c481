package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// CacheKeys lists up to limit keys of a peer that begin with prefix, after the one named, in order. A limit of 0 is 100,
// and 1,000 is the most. Keys that are not UTF-8 are exact in Key too.
func (c *Client) CacheKeys(ctx context.Context, prefix, after string, limit int) (apitype.CacheKeys, error) {
	out, err := get[apitype.CacheKeys](ctx, c, "/v1/cache", values("prefix", prefix, "after", after, "limit", limit))
	for i := range out.Keys {
		setExact(&out.Keys[i].Key, out.Keys[i].Base64)
	}
	setExact(&out.Next, out.NextBase64)
	return out, err
}

// setExact replaces a key that JSON could not carry.
func setExact(key *string, inBase64 string) {
	if exact, err := base64.StdEncoding.DecodeString(inBase64); err == nil && len(exact) > 0 {
		*key = string(exact)
	}
}

// CacheValue is the value of a key, as a peer gave it.
type CacheValue struct {
	Value        []byte
	Term         int64
	Made, Expire time.Time // to the second
}

// defaultCacheWait is the longest that a server waits by itself.
const defaultCacheWait = 10 * time.Second

// maxCacheValue is the largest value that a peer can be configured to hold.
const maxCacheValue = 1 << 30

// CacheGet returns a copy of a key's value that expires after a time, zero for any copy; or, with refresh or where there is
// none, one that is fetched now, which may expire before a time in the future. It waits up to wait for a fetch; 0 is the server's default.
func (c *Client) CacheGet(ctx context.Context, key string, after time.Time, refresh bool, wait time.Duration) (CacheValue, error) {
	ctx, cancel := withTimeout(ctx, wait+payloadTimeout)
	defer cancel()
	query := values("refresh", refresh, "wait", max(0, wait))
	var headers []string
	switch left := time.Until(after); {
	case after.IsZero():
	case left > 0:
		headers = []string{"Cache-Control", fmt.Sprint("min-fresh=", min(int64(math.Ceil(left.Seconds())), math.MaxInt32))}
	default:
		query.Set("max-stale", (-left).Round(time.Millisecond).String())
	}
	answer, err := c.send(ctx, http.MethodGet, pathOf("cache", key), query, nil, headers...)
	if err != nil {
		return CacheValue{}, err
	}
	defer answer.Body.Close()
	value, err := io.ReadAll(io.LimitReader(answer.Body, maxCacheValue))
	if err != nil {
		return CacheValue{}, fmt.Errorf("client: the value did not arrive whole: %w", err)
	}
	out := CacheValue{Value: value}
	out.Term, _ = strconv.ParseInt(answer.Header.Get("Understudy-Term"), 10, 64)
	out.Made, _ = http.ParseTime(answer.Header.Get("Last-Modified"))
	out.Expire, _ = http.ParseTime(answer.Header.Get("Expires"))
	return out, nil
}

// CacheRefresh has a key fetched now and waits for it, for so long; 0 is the
// server's default.
func (c *Client) CacheRefresh(ctx context.Context, key string, wait time.Duration) (apitype.CacheItem, error) {
	ctx, cancel := withTimeout(ctx, callTimeout+max(wait, defaultCacheWait))
	defer cancel()
	return call[apitype.CacheItem](ctx, c, http.MethodPost, "/v1/cache-refresh", values("key", key, "wait", max(0, wait)), nil)
}

// CacheRemove removes the copies of a key on every peer, and tells how many of how
// many members have confirmed it within the wait; the others remove it when they
// are back.
func (c *Client) CacheRemove(ctx context.Context, key string, wait time.Duration) (confirmed, of int, err error) {
	return c.cacheRemove(ctx, wait, values("key", key, "wait", max(0, wait)))
}

// CacheRemoveAll is [Client.CacheRemove] for all keys that begin with a prefix, or
// for every key when that is "".
func (c *Client) CacheRemoveAll(ctx context.Context, prefix string, wait time.Duration) (confirmed, of int, err error) {
	return c.cacheRemove(ctx, wait, values("prefix", prefix, "all", prefix == "", "wait", max(0, wait)))
}

func (c *Client) cacheRemove(ctx context.Context, wait time.Duration, v url.Values) (confirmed, of int, err error) {
	ctx, cancel := withTimeout(ctx, callTimeout+max(wait, defaultCacheWait))
	defer cancel()
	out, err := call[apitype.CacheRemoved](ctx, c, http.MethodDelete, "/v1/cache", v, nil)
	return out.Confirmed, out.Of, err
}

// CachePeers tells how a peer sees its cluster.
func (c *Client) CachePeers(ctx context.Context) (apitype.CacheCluster, error) {
	return get[apitype.CacheCluster](ctx, c, "/v1/cache-peers", nil)
}

// CacheEvents calls fn for each event of keys that begin with prefix, until ctx
// ends, the connection breaks or fn returns an error, which it returns. Nothing is
// kept: what happens between two calls is missed.
func (c *Client) CacheEvents(ctx context.Context, prefix string, fn func(apitype.CacheEvent) error) error {
	_, err := follow(ctx, c, "/v1/cache-events", values("prefix", prefix), "cache", nil, fn)
	return err
}
