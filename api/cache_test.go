package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// standIn is a peer that answers what a test says.
type standIn struct {
	mu    sync.Mutex
	items map[string]cache.Item
	// get answers what is not in items; nil waits until the caller gives up.
	get       func(ctx context.Context, key string, o cache.GetOptions) (cache.Item, error)
	asked     []cache.GetOptions
	confirmed int
	removed   []string
	refuse    error
	storing   time.Duration // what a removal takes
	view      cache.ClusterView
	events    chan cache.Event
}

func newStandIn() *standIn {
	return &standIn{
		items: map[string]cache.Item{}, confirmed: 3, events: make(chan cache.Event),
		view: cache.ClusterView{Self: "tcp://127.0.0.1:1", Member: true, Majority: 2, Connected: 3, Peers: []cache.PeerView{
			{URL: "tcp://127.0.0.1:1", Self: true, Link: "up", Kind: "understudy"}, {URL: "tcp://127.0.0.1:3", Link: "up", Kind: "other"}, {URL: "tcp://127.0.0.1:5", Link: "dead", Kind: "unknown"},
		}},
	}
}

// hold puts a copy there that was made some time ago and lives for some time.
func (p *standIn) hold(key, value string, age, ttl time.Duration) cache.Item {
	made := time.Now().Add(-age)
	i := cache.Item{Key: key, Value: []byte(value), Term: 1795252184145, Digest: protocol.Digest([]byte(value)), Made: made, Expire: made.Add(ttl)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items[key] = i
	return i
}

func (p *standIn) Get(ctx context.Context, key string, o cache.GetOptions) (cache.Item, error) {
	p.mu.Lock()
	p.asked = append(p.asked, o)
	i, ok := p.items[key]
	p.mu.Unlock()
	switch {
	case key == "":
		return cache.Item{}, cache.ErrBadKey
	case len(key) > 1024:
		return cache.Item{}, fmt.Errorf("%w: the key has %d bytes", cache.ErrTooLarge, len(key))
	case ok && !o.Refresh && (o.After.IsZero() || i.Expire.After(o.After)):
		if i.From = cache.Hit; !i.Expire.After(time.Now()) {
			i.From = cache.Stale
		}
		return i, nil
	case p.get != nil:
		return p.get(ctx, key, o)
	}
	<-ctx.Done()
	return cache.Item{}, ctx.Err()
}

func (p *standIn) Peek(key string) (cache.Item, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.items[key]
	return i, ok
}

func (p *standIn) Remove(ctx context.Context, scope protocol.Scope, name string) (int, int, error) {
	p.removed = append(p.removed, string(scope)+name)
	if p.refuse != nil {
		return 0, 0, p.refuse
	}
	if p.storing > 0 {
		select {
		case <-time.After(p.storing):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	return p.confirmed, 3, nil
}

func (p *standIn) Keys(_ context.Context, q cache.KeyQuery) ([]cache.KeyView, error) {
	return []cache.KeyView{{Key: q.Prefix + "a", Doing: "idle", Size: 3}, {Key: q.Prefix + "\xff", Doing: "fetching"}}[:min(q.Limit, 2)], p.refuse
}

func (p *standIn) Cluster(context.Context) (cache.ClusterView, error) { return p.view, p.refuse }

func (p *standIn) Watch(ctx context.Context, each func(cache.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-p.events:
			if !ok {
				return cache.ErrClosed
			}
			each(e)
		}
	}
}

func (p *standIn) Stats() cache.Stats {
	return cache.Stats{Hits: 7, Fetches: 2, FetchTime: 3 * time.Second, ConnsRefused: 4, ConnsFailed: 5}
}

// cacheRig is a cache's server without a network.
type cacheRig struct {
	t    *testing.T
	peer *standIn
	c    *Cache
}

func newCacheRig(t *testing.T) *cacheRig {
	t.Helper()
	p := newStandIn()
	c, err := NewCache(Config{Cache: p, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &cacheRig{t, p, c}
}

func (g *cacheRig) do(method, path string, header ...string) answer {
	g.t.Helper()
	r := request(g.t.Context(), method, path, "")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return g.send(r)
}

func (g *cacheRig) send(r *http.Request) answer {
	g.t.Helper()
	return send(g.t, g.c, r)
}

func TestCacheValue(t *testing.T) {
	g := newCacheRig(t)
	i := g.peer.hold("k", "hello", 90*time.Second, time.Hour)
	a := g.do("GET", "/v1/cache/k")
	if a.Status != 200 || a.Body != "hello" {
		t.Fatalf("%d %q", a.Status, a.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Length": "5", "Age": "90", "Cache-Control": "max-age=3600",
		"X-Cache": "hit", "Understudy-Term": "1795252184145", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'", "Content-Disposition": "attachment",
		"Expires": i.Expire.UTC().Format(http.TimeFormat), "Last-Modified": i.Made.UTC().Format(http.TimeFormat),
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	tag := a.Header.Get("ETag")
	for _, c := range []struct {
		name, value string
		status      int
		body        string
	}{
		{"If-None-Match", tag, 304, ""},
		{"If-None-Match", "*", 304, ""},
		{"If-None-Match", `"other"`, 200, "hello"},
		{"If-Modified-Since", i.Made.Add(time.Minute).UTC().Format(http.TimeFormat), 304, ""},
		{"If-Modified-Since", i.Made.Add(-time.Minute).UTC().Format(http.TimeFormat), 200, "hello"},
		{"If-Match", `"other"`, 412, ""},
		{"Range", "bytes=1-2", 206, "el"},
		{"Range", "bytes=9-", 416, `{"title":"Requested Range Not Satisfiable","status":416,"code":"range","detail":"the range of the request is not in the value: there are 5 bytes"}` + "\n"},
	} {
		if a := g.do("GET", "/v1/cache/k", c.name, c.value); a.Status != c.status || a.Body != c.body {
			t.Errorf("%s: %s: %d %q, want %d %q", c.name, c.value, a.Status, a.Body, c.status, c.body)
		}
	}
	g.peer.hold("k", "world", 0, time.Hour)
	if other := g.do("HEAD", "/v1/cache/k").Header.Get("ETag"); other == tag {
		t.Error("another value has the same tag")
	}
	// The copy of a peer that does not say when it was made.
	i.Made = time.Time{}
	g.peer.items["k"] = i
	a = g.do("GET", "/v1/cache/k")
	if a.Header.Get("Age") != "0" || a.Header.Get("Last-Modified") != "" || !strings.HasPrefix(a.Header.Get("Cache-Control"), "max-age=35") {
		t.Errorf("made at an unknown time: %v", a.Header)
	}
}

func TestCacheKeysInPaths(t *testing.T) {
	g := newCacheRig(t)
	for path, key := range map[string]string{
		"a": "a", "a/b": "a/b", "a%2Fb": "a/b", "a//b": "a//b", "/": "/", "%2E%2E": "..", "../a": "../a", "a/": "a/",
		"%ff%00": "\xff\x00", "sp%20ce": "sp ce", "%3Fq": "?q", "%25": "%", "a+b": "a+b",
	} {
		clear(g.peer.items)
		g.peer.hold(key, "v of "+key, 0, time.Hour)
		if a := g.do("GET", "/v1/cache/"+path); a.Status != 200 || a.Body != "v of "+key {
			t.Errorf("%s: %d %q", path, a.Status, a.Body)
		}
		g.peer.removed = nil
		if a := g.do("DELETE", "/v1/cache/"+path); a.Status != 200 || a.Body != `{"confirmed":3,"of":3}`+"\n" {
			t.Errorf("DELETE %s: %d %q", path, a.Status, a.Body)
		}
		if diff := cmp.Diff([]string{"k" + key}, g.peer.removed); diff != "" {
			t.Errorf("DELETE %s removed (-want +got):\n%s", path, diff)
		}
	}
	g.do("GET", "/v1/cache/").want(400, "invalid")
	g.do("GET", "/v1/cache/"+strings.Repeat("k", 1025)).want(414, "key_too_long")
	if a := g.do("POST", "/v1/cache/k"); a.Header.Get("Allow") != "GET, HEAD, DELETE" {
		t.Errorf("Allow: %q", a.Header.Get("Allow"))
	} else {
		a.want(405, "method_not_allowed")
	}
}

// TestCacheWhichCopy: what is asked for reaches the peer.
func TestCacheWhichCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fetched = "fetched"
		for _, c := range []struct {
			query, header string
			age           time.Duration // of a copy that lives for a minute
			status        int
			from          string
		}{
			{"", "", 10 * time.Second, 200, "hit"},
			{"", "", time.Hour, 200, "stale"},
			{"?max-stale=0", "", 10 * time.Second, 200, "hit"},
			{"?max-stale=0", "", time.Hour, 200, "miss"},
			{"?max-stale=30s", "", 80 * time.Second, 200, "stale"},
			{"?max-stale=30s", "", 100 * time.Second, 200, "miss"},
			{"?max-stale=-1s", "", 0, 400, ""},
			{"?max-stale=5", "", 0, 400, ""},
			{"?max-stale=", "", time.Hour, 200, "miss"},
			{"?refresh", "", 10 * time.Second, 200, "miss"},
			{"?refresh=true", "", 10 * time.Second, 200, "miss"},
			{"?refresh=false", "", 10 * time.Second, 200, "hit"},
			{"?refresh=1", "", 10 * time.Second, 400, ""},
			{"?wait=6m", "", 0, 400, ""},
			{"", "no-cache", 10 * time.Second, 200, "miss"},
			{"", "NO-CACHE, no-store", 10 * time.Second, 200, "miss"},
			{"?refresh=false", "no-cache", 10 * time.Second, 200, "hit"},
			{"", "max-age=30", 10 * time.Second, 200, "hit"},
			{"", "max-age=5", 10 * time.Second, 200, "miss"},
			{"", "max-age=0", 0, 200, "hit"},
			{"", "max-age=600", time.Hour, 200, "miss"},
			{"", "max-age=600", 90 * time.Second, 200, "miss"},
			{"", "max-stale=60, max-age=600", 90 * time.Second, 200, "stale"},
			{"", "max-age=x", 10 * time.Second, 200, "hit"},
			{"", "max-stale=10", 80 * time.Second, 200, "miss"},
			{"", "max-stale=60", 80 * time.Second, 200, "stale"},
			{"?max-stale=60s", "max-stale=10", 80 * time.Second, 200, "stale"},
			{"", "max-stale", time.Hour, 200, "stale"},
			{"", "min-fresh=20", 10 * time.Second, 200, "hit"},
			{"", "min-fresh=20", 50 * time.Second, 200, "miss"},
			{"", "only-if-cached", 10 * time.Second, 200, "hit"},
			{"", "only-if-cached", time.Hour, 200, "stale"},
			{"?max-stale=0", "only-if-cached", time.Hour, 504, ""},
		} {
			g := newCacheRig(t)
			g.peer.hold("k", "v", c.age, time.Minute)
			g.peer.get = func(context.Context, string, cache.GetOptions) (cache.Item, error) {
				return cache.Item{Key: "k", Value: []byte(fetched), From: cache.Miss, Expire: time.Now().Add(time.Minute)}, nil
			}
			var header []string
			if c.header != "" {
				header = []string{"Cache-Control", c.header}
			}
			a := g.do("GET", "/v1/cache/k"+c.query, header...)
			if a.Status != c.status || a.Header.Get("X-Cache") != c.from || (a.Body == fetched) != (c.from == "miss") {
				t.Errorf("%q with %q at %v: %d %q %q, want %d %q", c.query, c.header, c.age, a.Status, a.Header.Get("X-Cache"), a.Body, c.status, c.from)
			}
		}
	})
}

// TestCacheOfAnotherPeer: a copy that this peer got from another is not given to who wants a newer or a longer one.
func TestCacheOfAnotherPeer(t *testing.T) {
	for header, want := range map[string]string{"min-fresh=20": "fetched", "max-age=30": "fetched", "min-fresh=5": "copied", "": "copied"} {
		g := newCacheRig(t)
		g.peer.get = func(_ context.Context, _ string, o cache.GetOptions) (cache.Item, error) {
			now := time.Now()
			if !o.Refresh {
				return cache.Item{Key: "k", Value: []byte("copied"), From: cache.Miss, Made: now.Add(-time.Minute), Expire: now.Add(10 * time.Second)}, nil
			}
			return cache.Item{Key: "k", Value: []byte("fetched"), From: cache.Miss, Made: now, Expire: now.Add(time.Minute)}, nil
		}
		if a := g.do("GET", "/v1/cache/k", "Cache-Control", header); a.Body != want {
			t.Errorf("%q: %q, want %q", header, a.Body, want)
		}
	}
}

func TestCacheErrors(t *testing.T) {
	g := newCacheRig(t)
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
	}{
		{&cache.Failure{Text: "no route", RetryAfter: 2500 * time.Millisecond}, 502, "source_failed", "3"},
		{&cache.Failure{Text: cache.ErrNotFound.Error() + ": 404", RetryAfter: time.Second}, 404, "not_found", "1"},
		{cache.ErrNotFound, 404, "not_found", ""},
		{cache.ErrFailed, 502, "source_failed", ""},
		{cache.ErrPartitioned, 503, "partitioned", "1"},
		{cache.ErrOverloaded, 503, "busy", "1"},
		{cache.ErrNotMember, 503, "not_member", "1"},
		{cache.ErrPassive, 503, "passive", ""},
		{cache.ErrClosed, 503, "stopping", "1"},
		{errors.New("secret of the inside"), 500, "internal", ""},
	} {
		g.peer.get = func(context.Context, string, cache.GetOptions) (cache.Item, error) {
			return cache.Item{}, fmt.Errorf("key: %w", c.err)
		}
		for _, do := range []func() answer{
			func() answer { return g.do("GET", "/v1/cache/k") },
			func() answer { return g.do("POST", "/v1/cache-refresh?key=k") },
		} {
			a := do()
			a.want(c.status, c.code)
			if got := a.Header.Get("Retry-After"); got != c.retry {
				t.Errorf("%v: Retry-After %q, want %q", c.err, got, c.retry)
			}
			if strings.Contains(a.Body, "secret") || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v: %v %s", c.err, a.Header, a.Body)
			}
		}
	}
}

func TestCacheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCacheRig(t)
		for query, want := range map[string]time.Duration{"": defaultWait, "?wait=300ms": 300 * time.Millisecond, "?wait=0": minWait, "?wait=5m": maxFetchWait} {
			began := time.Now()
			a := g.do("GET", "/v1/cache/k"+query)
			if p := a.want(504, "not_yet"); time.Since(began) != want || !strings.Contains(p.Detail, want.String()) {
				t.Errorf("%q waited %v, %s", query, time.Since(began), p.Detail)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		g.send(request(ctx, "GET", "/v1/cache/k", ""))
		time.AfterFunc(time.Second, g.c.Close)
		g.do("GET", "/v1/cache/k").want(503, "stopping")
	})
}

// TestCacheWaitOutlivesTheServersDeadlines: who waits for a value is answered past the deadlines of other requests.
func TestCacheWaitOutlivesTheServersDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newCacheRig(t)
		g.peer.get = func(ctx context.Context, _ string, _ cache.GetOptions) (cache.Item, error) {
			select {
			case <-time.After(400 * time.Millisecond):
				return cache.Item{Value: []byte("late"), From: cache.Miss, Expire: time.Now().Add(time.Hour)}, nil
			case <-ctx.Done():
				return cache.Item{}, ctx.Err()
			}
		}
		l := newPipes(t)
		srv := &http.Server{Handler: g.c.Handler(), ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond}
		done := make(chan struct{})
		go func() { defer close(done); _ = srv.Serve(l) }()
		defer func() { _ = srv.Close(); <-done }()
		answer, err := l.client.Get(l.url + "/v1/cache/k?wait=1m")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "late" {
			t.Errorf("%d %q %v", answer.StatusCode, body, err)
		}
	})
}

func TestCacheRemovals(t *testing.T) {
	g := newCacheRig(t)
	g.do("DELETE", "/v1/cache").want(400, "invalid")
	g.do("DELETE", "/v1/cache?all=true&prefix=a").want(400, "invalid")
	g.do("DELETE", "/v1/cache?all=yes").want(400, "invalid")
	g.do("DELETE", "/v1/cache?prefix=").want(400, "invalid")
	g.do("DELETE", "/v1/cache?all=true&prefix=50%").want(400, "invalid") // and not every key
	g.do("DELETE", "/v1/cache/k?wait=5%").want(400, "invalid")
	if len(g.peer.removed) > 0 {
		t.Fatalf("removed %q", g.peer.removed)
	}
	g.do("DELETE", "/v1/cache?prefix=a%2F").want(200, "")
	g.do("DELETE", "/v1/cache?key=..&prefix=a").want(400, "invalid")
	g.do("DELETE", "/v1/cache?key=..&all=true").want(400, "invalid")
	g.do("DELETE", "/v1/cache?key=..").want(200, "")
	g.peer.confirmed = 2
	if a := g.do("DELETE", "/v1/cache?all=true"); a.Status != 202 || a.Body != `{"confirmed":2,"of":3}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	g.peer.refuse = context.DeadlineExceeded // as the disk hangs: a count would be a guess
	g.do("DELETE", "/v1/cache/k").want(504, "unknown_outcome")
	if diff := cmp.Diff([]string{"pa/", "k..", "p", "kk"}, g.peer.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

func TestCacheListAndPeers(t *testing.T) {
	g := newCacheRig(t)
	var list struct {
		Keys []apitype.CacheKey
		Next string
		Last string `json:"next_base64"`
	}
	g.do("GET", "/v1/cache?prefix=p/&limit=1").into(&list)
	if len(list.Keys) != 1 || list.Keys[0].Key != "p/a" || list.Next != "p/a" || list.Last != "" {
		t.Errorf("%+v", list)
	}
	g.do("GET", "/v1/cache?limit=2").into(&list)
	if len(list.Keys) != 2 || list.Keys[1].Base64 != "/w==" || list.Last != "/w==" {
		t.Errorf("%+v", list)
	}
	g.do("GET", "/v1/cache?limit=1001").want(400, "invalid")

	var view cache.ClusterView
	g.do("GET", "/v1/cache-peers").into(&view)
	if diff := cmp.Diff(g.peer.view, view); diff != "" {
		t.Error(diff)
	}
	g.do("POST", "/v1/cache-peers").want(405, "method_not_allowed")
	g.do("DELETE", "/v1/cache-peers?url=tcp://a:1").want(405, "method_not_allowed")
}

func TestCacheReadiness(t *testing.T) {
	g := newCacheRig(t)
	g.do("GET", "/readyz").want(200, "")
	g.do("GET", "/healthz").want(200, "")
	g.peer.view.Unready, g.peer.view.Trouble = "the disk is full", "the disk is full"
	if got := g.do("GET", "/readyz").want(503, "not_ready").Detail; !strings.Contains(got, "the disk is full") {
		t.Errorf("it says %s", got)
	}
	for _, want := range []string{"understudy_cache_ready 0\n", "understudy_cache_trouble 1\n"} {
		if !strings.Contains(g.do("GET", "/metrics").Body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	g.peer.refuse = cache.ErrClosed
	g.do("GET", "/readyz").want(503, "stopping")
	g.do("GET", "/healthz").want(200, "")
}

func TestCacheMetrics(t *testing.T) {
	g := newCacheRig(t)
	g.peer.hold("k", "v", 0, time.Hour)
	g.do("GET", "/v1/cache/k")
	g.do("GET", "/v1/cache/k")
	g.do("DELETE", "/v1/cache/k")
	text := g.do("GET", "/metrics").Body
	for _, want := range []string{
		`understudy_cache_requests_total{result="hit"} 7`, "understudy_cache_fetch_seconds_total 3\n", "understudy_cache_partitioned 0\n",
		"understudy_cache_connections_refused_total 4\n",
		"understudy_cache_connections_failed_total 5\n",
		`understudy_cache_links{state="dead"} 1`, `understudy_cache_links{state="up"} 1`, "understudy_cache_up 1\n",
		`understudy_http_requests_total{code="200",route="GET /v1/cache/{key}"} 2`,
		`understudy_http_requests_total{code="200",route="DELETE /v1/cache/{key}"} 1`, `understudy_build_info{goversion="`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	before := strings.Count(g.do("GET", "/metrics").Body, "\nunderstudy_")
	for n := range 100 {
		g.do("GET", fmt.Sprintf("/v1/cache/k?nonsense=%d", n))
	}
	if after := strings.Count(g.do("GET", "/metrics").Body, "\nunderstudy_"); after > before {
		t.Errorf("%d series before, %d after", before, after)
	}
	g.peer.refuse = cache.ErrClosed
	if text := g.do("GET", "/metrics").Body; !strings.Contains(text, "understudy_cache_up 0\n") || strings.Contains(text, "understudy_cache_member") {
		t.Error("a peer that does not say how it is has metrics of its cluster")
	}
}

func TestCacheToken(t *testing.T) {
	const token = "0123456789abcdef"
	p := newStandIn()
	p.hold("k", "v", 0, time.Hour)
	c, err := NewCache(Config{Cache: p, Token: token, Listen: "10.0.0.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g := &cacheRig{t, p, c}
	for _, path := range []string{"/v1/cache/k", "/v1/cache", "/v1/cache-peers", "/v1/cache-events", "/metrics"} {
		g.do("GET", path).want(401, "unauthorized")
	}
	g.do("DELETE", "/v1/cache/k").want(401, "unauthorized")
	g.do("GET", "/v1/cache/k", "Authorization", "Bearer "+token).want(200, "")
	for _, path := range []string{"/", "/healthz", "/readyz", "/cache.js"} {
		if a := g.do("GET", path); a.Status != 200 {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
	open := newCacheRig(t)
	r := request(t.Context(), "GET", "/v1/cache/k", "")
	r.Host = "evil.example"
	open.send(r).want(421, "wrong_host")
	for _, cfg := range []Config{{}, {Cache: p, Listen: "10.0.0.1:80"}, {Cache: p, CacheType: "text"}, {Cache: p, Timeout: -1}} {
		if _, err := NewCache(cfg); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	open.do("DELETE", "/v1/cache/k", "Sec-Fetch-Site", "cross-site").want(403, "cross_origin")
	for _, path := range []string{"/v1/cache/k", "/v1/cache/k?refresh"} { // it would run the source with any key
		open.do("GET", path, "Sec-Fetch-Site", "cross-site").want(403, "cross_origin")
		open.do("HEAD", path, "Sec-Fetch-Site", "cross-site").want(403, "cross_origin")
		open.do("GET", path, "Origin", "https://evil.example").want(403, "cross_origin")
	}
	if len(open.peer.removed) > 0 {
		t.Error("another site removed a key")
	}
}

// TestCacheInServer: a server with a peer answers the same, and one without says so.
func TestCacheInServer(t *testing.T) {
	g := newRig(t)
	for _, path := range []string{"/v1/cache/k", "/v1/cache", "/v1/cache-peers", "/v1/cache-events"} {
		g.do("GET", path, "").want(404, "no_cache")
	}
	g.do("DELETE", "/v1/cache/k", "").want(404, "no_cache")
	p := newStandIn()
	p.hold("a//b", "v", 0, time.Hour)
	withPeer := start(t, Config{Store: memory.New(nil), Cache: p})
	for send(t, withPeer, request(t.Context(), "GET", "/readyz", "")).Status != 200 {
		time.Sleep(10 * time.Millisecond)
	}
	p.view.Unready = "another secret"
	if got := send(t, withPeer, request(t.Context(), "GET", "/readyz", "")).want(503, "not_ready").Detail; !strings.Contains(got, "another secret") {
		t.Errorf("it says %s", got)
	}
	s, err := New(Config{Store: memory.New(nil), Cache: p, CacheType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	a := send(t, s, request(t.Context(), "GET", "/v1/cache/a//b", ""))
	if a.Status != 200 || a.Body != "v" || a.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%d %q %v", a.Status, a.Body, a.Header)
	}
	if text := send(t, s, request(t.Context(), "GET", "/metrics", "")).Body; !strings.Contains(text, "understudy_cache_fetches_total 2\n") {
		t.Error("the server's metrics lack those of its peer")
	}
}

func TestCacheDescription(t *testing.T) {
	g := newCacheRig(t)
	var doc struct{ Paths map[string]any }
	g.do("GET", "/openapi.json").into(&doc)
	for path := range doc.Paths {
		if strings.HasPrefix(path, "/v1/") != strings.HasPrefix(path, "/v1/cache") {
			t.Errorf("%s is described and not there", path)
		}
	}
	if doc.Paths["/v1/cache/{key}"] == nil {
		t.Error("the values are not described")
	}
}

func TestCacheStream(t *testing.T) {
	g := newCacheRig(t)
	srv := httptest.NewServer(g.c.Handler())
	defer srv.Close()
	wantHeaderAlone(t, srv.URL+"/v1/cache-events?state=true")
	answer, err := http.Get(srv.URL + "/v1/cache-events?state=true&prefix=a")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	go func() {
		g.peer.events <- cache.Event{Key: "b", Why: "not wanted"}
		g.peer.events <- cache.Event{Key: "a\n\ndata: x", From: "idle", To: "candidate", Why: "asked for"}
		g.peer.events <- cache.Event{Why: "the majority is lost"}
		close(g.peer.events)
	}()
	var names, data []string
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			names = append(names, value)
		case "data":
			data = append(data, value)
		}
	}
	if diff := cmp.Diff([]string{"state", "cache", "cache"}, names); diff != "" {
		t.Errorf("events (-want +got):\n%s\n%v", diff, data)
	}
	if !strings.Contains(data[0], `"hits":7`) || !strings.Contains(data[0], `"majority":2`) || !strings.Contains(data[1], `"candidate"`) {
		t.Errorf("%v", data)
	}
	g.peer.events = make(chan cache.Event)
	fill(t, g.c.part.streams)
	g.do("GET", "/v1/cache-events").want(503, "busy")
}

// BenchmarkCacheGet is a hot key over connections that are kept, one request in
// flight on each, the client included.
func BenchmarkCacheGet(b *testing.B) {
	p := newStandIn()
	item := p.hold("hot", strings.Repeat("x", 1024), 0, time.Hour)
	item.From = cache.Hit
	c, err := NewCache(Config{Cache: hot{p, item}})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := NewHTTPServer(c.Handler(), nil)
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	asked := []byte("GET /v1/cache/hot HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\n\r\n")
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		buf := make([]byte, 8<<10)
		for pb.Next() {
			if _, err := conn.Write(asked); err != nil {
				b.Error(err)
				return
			}
			if err := readAnswer(conn, buf); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}

// hot answers one key as cheaply as a peer does.
type hot struct {
	*standIn
	item cache.Item
}

func (h hot) Get(context.Context, string, cache.GetOptions) (cache.Item, error) { return h.item, nil }

// readAnswer reads one answer whose body has 1,024 bytes.
func readAnswer(conn net.Conn, buf []byte) error {
	for n := 0; ; {
		m, err := conn.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
		if i := strings.Index(string(buf[:n]), "\r\n\r\n"); i >= 0 && n >= i+4+1024 {
			if string(buf[9:12]) != "200" {
				return fmt.Errorf("answered %s", buf[:n])
			}
			return nil
		}
	}
}
