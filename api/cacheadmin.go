package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// maxCacheKeys is the most keys of a list, as the peer has it.
const maxCacheKeys = 1000

// viewCacheKey shows a key.
func viewCacheKey(k cache.KeyView) apitype.CacheKey {
	return apitype.CacheKey{
		Key: k.Key, Base64: inBase64(k.Key), State: k.Doing, Peer: k.Peer, Term: k.Term, Size: k.Size, Digest: k.Digest,
		Made: orZero(k.Made), Expire: orZero(k.Expire), Fresh: k.Fresh, Waiting: k.Waiting, Failure: k.Failure, Retry: orZero(k.Retry),
	}
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func inBase64(key string) string {
	if utf8.ValidString(key) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(key))
}

func (c *cachePart) list(r *http.Request) (out apitype.CacheKeys, err error) {
	q := queryOf(r)
	limit := q.limit(maxCacheKeys)
	if q.err != nil {
		return out, q.err
	}
	keys, err := c.peer.Keys(r.Context(), cache.KeyQuery{Prefix: q.values.Get("prefix"), After: q.values.Get("after"), Limit: limit})
	next := nextAfter(keys, limit, func(k cache.KeyView) string { return k.Key })
	return apitype.CacheKeys{Keys: views(keys, viewCacheKey), Next: next, NextBase64: inBase64(next)}, err
}

// removeMany removes what the query says: a key, which a path may not carry ("..",
// for many programs), a prefix, or everything when that is said in so many words.
func (c *cachePart) removeMany(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	all := q.flag("all")
	if q.err != nil {
		return q.err
	}
	switch key, prefix := q.values.Get("key"), q.values.Get("prefix"); {
	case key != "" && prefix == "" && !all:
		return c.remove(w, r, protocol.OneKey, key)
	case key == "" && (prefix != "") != all:
		return c.remove(w, r, protocol.PrefixKey, prefix)
	}
	return fmt.Errorf("%w: say what to remove: key=K, prefix=P, or all=true for every key", lease.ErrInvalid)
}

// minRemovalWait is that of a removal that does not want to wait: time enough for this peer to store it and to count who has
// confirmed it.
const minRemovalWait = 500 * time.Millisecond

// remove answers when all members have confirmed, or when the wait has ended: the
// others remove when they are back.
func (c *cachePart) remove(w http.ResponseWriter, r *http.Request, scope protocol.Scope, name string) error {
	q := queryOf(r)
	wait := max(waitFor(q, c.router.timeout), minRemovalWait)
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.waitContext(w, r, wait)
	defer cancel()
	what := map[protocol.Scope]string{protocol.OneKey: "key ", protocol.PrefixKey: "prefix "}[scope] + strconv.QuoteToASCII(name)
	if scope == protocol.PrefixKey && name == "" {
		what = "every key"
	}
	confirmed, of, err := c.peer.Remove(ctx, scope, name)
	switch {
	case errors.Is(err, cache.ErrBadKey), errors.Is(err, cache.ErrTooLarge):
		return err
	case err != nil: // the copies may be gone all the same: a caller who hangs up at the right moment must not hide it
		c.acts.record(r, "cache", what, "removal "+outcomeUnknown, "")
		return err
	}
	c.acts.record(r, "cache", what, "removed", "")
	status := http.StatusOK
	if confirmed < of {
		status = http.StatusAccepted
	}
	setSecurityHeaders(w.Header())
	return writeJSON(w, status, apitype.CacheRemoved{Confirmed: confirmed, Of: of})
}

// viewCacheItem shows a copy.
func viewCacheItem(i cache.Item) apitype.CacheItem {
	return apitype.CacheItem{
		Key: i.Key, Base64: inBase64(i.Key), Term: i.Term, Size: len(i.Value), Digest: fmt.Sprintf("%016x", i.Digest),
		Made: i.Made.UTC(), Expire: i.Expire, From: string(i.From),
	}
}

// refresh has a key fetched now, and tells what came.
func (c *cachePart) refresh(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	wait := waitFor(q, defaultWait)
	if q.err != nil {
		return q.err
	}
	ctx, cancel := c.waitContext(w, r, wait)
	defer cancel()
	item, err := c.peer.Get(ctx, q.values.Get("key"), cache.GetOptions{Refresh: true})
	if err := c.waitError(r, err, wait); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewCacheItem(item))
}

func (c *cachePart) peers(r *http.Request) (apitype.CacheCluster, error) {
	view, err := c.peer.Cluster(r.Context())
	return viewCluster(view), err
}

// viewCluster shows how a peer sees its cluster.
func viewCluster(c cache.ClusterView) apitype.CacheCluster {
	return apitype.CacheCluster{
		Self: c.Self, Member: c.Member, Majority: c.Majority, Connected: c.Connected,
		Partitioned: c.Partitioned, Abstaining: c.Abstaining, Trouble: c.Trouble, Unready: c.Unready, Peers: views(c.Peers, viewPeer),
	}
}

func viewPeer(p cache.PeerView) apitype.CachePeer {
	out := apitype.CachePeer{
		URL: p.URL, API: p.API, Self: p.Self, Link: p.Link, Why: p.Why, Since: orZero(p.Since),
		Kind: p.Kind, List: p.List, Busy: p.Busy, Dropped: p.Dropped,
	}
	if p.Skew != nil {
		out.SkewMS = new(p.Skew.Milliseconds())
	}
	return out
}

// readyz reports whether this peer may fetch, else why not.
func (c *cachePart) readyz(r *http.Request) (out apitype.Ready, err error) {
	view, err := c.peer.Cluster(r.Context())
	switch {
	case err != nil:
		return out, fmt.Errorf("%w: %w", errUnready, err)
	case view.Unready != "":
		return out, fmt.Errorf("%w: %s", errUnready, view.Unready)
	}
	return apitype.Ready{Status: "ready"}, nil
}

// openapi is the part of the description that holds here.
func (c *cachePart) openapi(w http.ResponseWriter, _ *http.Request) error {
	var doc map[string]any
	if err := json.Unmarshal(openapiJSON, &doc); err != nil {
		return err
	}
	paths, _ := doc["paths"].(map[string]any)
	for path := range paths {
		if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/cache") {
			delete(paths, path)
		}
	}
	return writeJSON(w, http.StatusOK, doc)
}
