package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// maxCacheKeys is the most keys of a list, as the peer has it.
const maxCacheKeys = 1000

// CacheKey is a key, as every surface shows it in JSON.
type CacheKey struct {
	cache.KeyView
	// Base64 is the key exactly, when it is not UTF-8 and JSON cannot carry it.
	Base64 string `json:"key_base64,omitempty"`
}

// ViewCacheKey shows a key.
func ViewCacheKey(k cache.KeyView) CacheKey { return CacheKey{KeyView: k, Base64: inBase64(k.Key)} }

func inBase64(key string) string {
	if utf8.ValidString(key) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(key))
}

func (c *cachePart) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 1, maxCacheKeys, 100)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	keys, err := c.peer.Keys(r.Context(), cache.KeyQuery{Prefix: q.Get("prefix"), After: q.Get("after"), Limit: int(limit)})
	if err != nil {
		return err
	}
	out := struct {
		Keys []CacheKey `json:"keys"`
		// Next is what to ask for with after, if there may be more.
		Next       string `json:"next,omitempty"`
		NextBase64 string `json:"next_base64,omitempty"`
	}{Keys: make([]CacheKey, 0, len(keys))}
	for _, k := range keys {
		out.Keys = append(out.Keys, ViewCacheKey(k))
		if len(out.Keys) == int(limit) {
			out.Next, out.NextBase64 = k.Key, inBase64(k.Key)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// removeMany removes what the query says: a key, which a path may not carry ("..",
// for many programs), a prefix, or everything when that is said in so many words.
func (c *cachePart) removeMany(w http.ResponseWriter, r *http.Request) error {
	all, err := flag(r, "all")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	switch key, prefix := q.Get("key"), q.Get("prefix"); {
	case key != "" && prefix == "" && !all:
		return c.remove(w, r, protocol.OneKey, key)
	case key == "" && (prefix != "") != all:
		return c.remove(w, r, protocol.PrefixKey, prefix)
	}
	return fmt.Errorf("%w: say what to remove: key=K, prefix=P, or all=true for every key", lease.ErrInvalid)
}

// remove answers when all members have confirmed, or when the wait has ended: the
// others remove when they are back.
func (c *cachePart) remove(w http.ResponseWriter, r *http.Request, scope protocol.Scope, name string) error {
	wait, err := waitFor(r, c.router.timeout)
	if err != nil {
		return err
	}
	ctx, cancel := c.waiting(w, r, wait)
	defer cancel()
	confirmed, of, err := c.peer.Remove(ctx, scope, name)
	if err != nil && !(errors.Is(err, context.DeadlineExceeded) && of > 0) {
		return err
	}
	status := http.StatusOK
	if confirmed < of {
		status = http.StatusAccepted
	}
	harden(w.Header())
	return writeJSON(w, status, map[string]int{"confirmed": confirmed, "of": of})
}

// CacheItem is a copy without its value, as every surface shows it in JSON.
type CacheItem struct {
	Key    string     `json:"key"`
	Base64 string     `json:"key_base64,omitempty"`
	Term   int64      `json:"term"`
	Size   int        `json:"size"`
	Digest string     `json:"digest"`
	Made   *time.Time `json:"made,omitempty"`
	Expire time.Time  `json:"expire"`
	From   cache.From `json:"from"`
}

// ViewCacheItem shows a copy.
func ViewCacheItem(i cache.Item) CacheItem {
	return CacheItem{
		Key: i.Key, Base64: inBase64(i.Key), Term: i.Term, Size: len(i.Value), Digest: fmt.Sprintf("%016x", i.Digest),
		Made: orNone(i.Made), Expire: i.Expire, From: i.From,
	}
}

// refresh has a key fetched now, and tells what came.
func (c *cachePart) refresh(w http.ResponseWriter, r *http.Request) error {
	key := r.URL.Query().Get("key")
	wait, err := waitFor(r, defaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.waiting(w, r, wait)
	defer cancel()
	item, err := c.peer.Get(ctx, key, cache.GetOptions{Refresh: true})
	if err := c.waited(r, err, wait); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ViewCacheItem(item))
}

func (c *cachePart) peers(w http.ResponseWriter, r *http.Request) error {
	view, err := c.peer.Cluster(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}

func (c *cachePart) addPeer(w http.ResponseWriter, r *http.Request) error {
	var m protocol.Member
	if err := readJSON(r, &m); err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	return c.change(w, r, &m, "")
}

func (c *cachePart) removePeer(w http.ResponseWriter, r *http.Request) error {
	url := r.URL.Query().Get("url")
	if url == "" {
		return fmt.Errorf("%w: url is missing: which peer is to be removed?", lease.ErrInvalid)
	}
	return c.change(w, r, nil, url)
}

// change answers with the configuration in force. What the peer refuses for a
// reason of its own is a conflict.
func (c *cachePart) change(w http.ResponseWriter, r *http.Request, add *protocol.Member, remove string) error {
	wait, err := waitFor(r, defaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.waiting(w, r, wait)
	defer cancel()
	config, err := c.peer.Change(ctx, add, remove)
	switch {
	case err == nil:
		return writeJSON(w, http.StatusOK, config)
	case problemOf(err).Code == "internal":
		return fmt.Errorf("%w: %w", errNotChanged, err)
	default:
		return err
	}
}

// readyz tells whether this peer may fetch: it is a member, and a majority is there.
func (c *cachePart) readyz(w http.ResponseWriter, r *http.Request) error {
	view, err := c.peer.Cluster(r.Context())
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errUnready, err)
	case !view.Member:
		return fmt.Errorf("%w: it is not a member of the cluster", errUnready)
	case view.Partitioned:
		return fmt.Errorf("%w: it reaches %d of the %d members that are a majority", errUnready, view.Connected, view.Majority)
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
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
