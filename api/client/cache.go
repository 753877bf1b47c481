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

	"github.com/understudy-ha/understudy/api/apitype"
)

// CacheKeys lists up to limit keys of a peer that begin with prefix, after the one named, in order. A limit of 0 is 100,
// and 1,000 is the most. Keys that are not UTF-8 are exact in Key too.
func (c *Client) CacheKeys(ctx context.Context, prefix, after string, limit int) (apitype.CacheKeys, error) {
	v := url.Values{}
	set(v, "prefix", prefix)
	set(v, "after", after)
	setNumber(v, "limit", int64(limit))
	var out apitype.CacheKeys
	if err := c.do(ctx, http.MethodGet, "/v1/cache", v, nil, &out); err != nil {
		return out, err
	}
	for i := range out.Keys {
		setExact(&out.Keys[i].Key, out.Keys[i].Base64)
	}
	setExact(&out.Next, out.NextBase64)
	return out, nil
}

// setExact replaces a key that JSON could not carry.
func setExact(key *string, inBase64 string) {
	if exact, err := base64.StdEncoding.DecodeString(inBase64); err == nil && len(exact) > 0 {
		*key = string(exact)
	}
}

// CacheRefresh has a key fetched now and waits for it, for so long; 0 is the
// server's default.
func (c *Client) CacheRefresh(ctx context.Context, key string, wait time.Duration) (apitype.CacheItem, error) {
	v := url.Values{"key": {key}}
	setWait(v, wait)
	var out apitype.CacheItem
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
	var out apitype.CacheRemoved
	err = c.do(ctx, http.MethodDelete, "/v1/cache", v, nil, &out)
	return out.Confirmed, out.Of, err
}

// CachePeers tells how a peer sees its cluster.
func (c *Client) CachePeers(ctx context.Context) (apitype.CacheCluster, error) {
	var out apitype.CacheCluster
	err := c.do(ctx, http.MethodGet, "/v1/cache-peers", nil, nil, &out)
	return out, err
}

// CacheEvents calls fn for each event of keys that begin with prefix, until ctx
// ends, the connection breaks or fn returns an error, which it returns. Nothing is
// kept: what happens between two calls is missed.
func (c *Client) CacheEvents(ctx context.Context, prefix string, fn func(apitype.CacheEvent) error) error {
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
			var e apitype.CacheEvent
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
