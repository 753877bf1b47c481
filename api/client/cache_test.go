package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// newCache runs a peer that is alone, and its HTTP.
func newCache(t *testing.T, source cache.Origin) *client.Client {
	t.Helper()
	self := protocol.Member{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}
	peer, err := cache.New(cache.Config{
		Self: self.URL, Members: []protocol.Member{self}, BindURL: "tcp://127.0.0.1:*", BindAPI: "tcp://127.0.0.1:*",
		Origin: source, Timings: protocol.Timings{AnnounceTimeout: 600 * time.Millisecond, Announce: 300 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- peer.Run(ctx) }()
	select {
	case <-peer.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	server, err := api.NewCache(api.Config{Cache: peer})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		server.Close()
		srv.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCache(t *testing.T) {
	c := newCache(t, func(_ context.Context, f cache.Fetch) (cache.Value, error) {
		if f.Key == "none" {
			return cache.Value{}, cache.ErrNotFound
		}
		return cache.Value{Data: bytes.Repeat([]byte("v"), len(f.Key))}, nil
	})
	ctx := t.Context()
	const wait = time.Minute
	binary := "\xff\x00"
	for _, key := range []string{"..", "a/b", binary} {
		item, err := c.CacheRefresh(ctx, key, wait)
		if err != nil || item.Size != len(key) || item.Term == 0 || item.From != "miss" {
			t.Errorf("%q: %+v, %v", key, item, err)
		}
	}
	var refused *client.Error
	if _, err := c.CacheRefresh(ctx, "none", wait); !errors.As(err, &refused) || refused.Code != "not_found" {
		t.Errorf("a key that is not there: %v", err)
	}
	list := func(prefix, after string, limit int) (names []string, more bool) {
		page, err := c.CacheKeys(ctx, prefix, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.Keys {
			if k.Size > 0 {
				names = append(names, k.Key)
			}
		}
		return names, page.Next != ""
	}
	if names, _ := list("", "", 0); !slices.Equal(names, []string{"..", "a/b", binary}) {
		t.Errorf("keys %q", names)
	}
	if names, more := list("a", "", 1); !slices.Equal(names, []string{"a/b"}) || !more {
		t.Errorf("a page of one: %q, %t", names, more)
	}
	if names, _ := list("", "a/b", 10); !slices.Contains(names, binary) || slices.Contains(names, "a/b") {
		t.Errorf("after a key: %q", names)
	}
	for _, key := range []string{"..", binary} {
		if n, of, err := c.CacheRemove(ctx, key, wait); n != 1 || of != 1 || err != nil {
			t.Errorf("remove %q: %d of %d, %v", key, n, of, err)
		}
	}
	if names, _ := list("", "", 0); !slices.Equal(names, []string{"a/b"}) {
		t.Errorf("keys %q after two were removed", names)
	}
	if _, _, err := c.CacheRemoveAll(ctx, "", wait); err != nil {
		t.Error(err)
	}
	if names, _ := list("", "", 0); len(names) > 0 {
		t.Errorf("keys %q after all were removed", names)
	}
	view, err := c.CachePeers(ctx)
	if err != nil || !view.Member || view.Peers[0].List != "same" || len(view.Peers) != 1 || !view.Peers[0].Self || view.Peers[0].URL != view.Self {
		t.Errorf("%+v, %v", view, err)
	}
}

// TestCacheGetInFuture: a copy that ends before the caller may do without it is not given: it is fetched.
func TestCacheGetInFuture(t *testing.T) {
	fetched := 0
	c := newCache(t, func(context.Context, cache.Fetch) (cache.Value, error) {
		fetched++
		return cache.Value{Data: []byte("v"), TTL: time.Duration(fetched) * time.Hour}, nil
	})
	for _, ask := range []struct {
		after   time.Duration
		fetched int
	}{{0, 1}, {30 * time.Minute, 1}, {90 * time.Minute, 2}, {-time.Hour, 2}} {
		got, err := c.CacheGet(t.Context(), "k", time.Now().Add(ask.after), false, time.Minute)
		if err != nil || fetched != ask.fetched || time.Until(got.Expire) < ask.after {
			t.Errorf("after %v: expires in %v, fetched %d times, %v; want %d", ask.after, time.Until(got.Expire), fetched, err, ask.fetched)
		}
	}
}

// TestCacheWaits: without a deadline of its caller's, a call lasts as long as the server may wait, and longer.
func TestCacheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.Config{URL: "http://x", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			wait := 10 * time.Second // the server's
			if asked := r.URL.Query().Get("wait"); asked != "" {
				wait, _ = time.ParseDuration(asked)
			}
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(wait + time.Second):
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, 15 * time.Second, time.Minute} {
			if _, err := c.CacheRefresh(t.Context(), "k", wait); err != nil {
				t.Errorf("refresh that waits %v: %v", wait, err)
			}
			if _, _, err := c.CacheRemove(t.Context(), "k", wait); err != nil {
				t.Errorf("removal that waits %v: %v", wait, err)
			}
			if _, _, err := c.CacheRemoveAll(t.Context(), "", wait); err != nil {
				t.Errorf("removal of all that waits %v: %v", wait, err)
			}
		}
	})
}

func TestCacheEvents(t *testing.T) {
	c := newCache(t, func(context.Context, cache.Fetch) (cache.Value, error) { return cache.Value{Data: []byte("v")}, nil })
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	go func() { // again and again, because nothing is kept for who comes later
		for ctx.Err() == nil {
			_, _ = c.CacheRefresh(ctx, "other", time.Minute)
			_, _ = c.CacheRefresh(ctx, "k", time.Minute)
		}
	}()
	enough := errors.New("enough")
	err := c.CacheEvents(ctx, "k", func(e apitype.CacheEvent) error {
		if e.Key == "other" {
			t.Error("an event of another key")
		}
		if e.Key == "k" && e.To == "fetching" && e.Term > 0 && e.Why != "" {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}
