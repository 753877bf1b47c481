package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// serve starts an origin, and returns one of path on it.
func serve(t *testing.T, path string, handler http.HandlerFunc, change ...func(*URLConfig)) cache.Origin {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := URLConfig{URL: server.URL + path, Client: server.Client()}
	for _, f := range change {
		f(&c)
	}
	s, err := URL(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s cache.Origin, key string) (cache.Value, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s(ctx, cache.Fetch{Key: key, Term: 1234, Stale: []byte("old")})
}

func TestURLRequest(t *testing.T) {
	var got *http.Request
	s := serve(t, "/v1/{key}?k={key}", func(w http.ResponseWriter, r *http.Request) {
		got = r
		fmt.Fprint(w, "the value")
	}, func(c *URLConfig) { c.Header = http.Header{"authorization": {"Bearer x"}, "X-Two": {"1", "2"}} })
	v, err := get(t, s, "k")
	if err != nil || string(v.Data) != "the value" || v.TTL != 0 {
		t.Errorf("%q, %v, %v", v.Data, v.TTL, err)
	}
	delete(got.Header, "Accept-Encoding")
	want := http.Header{HeaderTerm: {"1234"}, "Authorization": {"Bearer x"}, "X-Two": {"1", "2"}, "User-Agent": {"understudy"}}
	if diff := cmp.Diff(want, got.Header); diff != "" || got.Method != "GET" || got.RequestURI != "/v1/k?k=k" {
		t.Errorf("%s %s %s", got.Method, got.RequestURI, diff)
	}
}

// TestURLKeys: a key never leaves its place in the URL.
func TestURLKeys(t *testing.T) {
	uri := ""
	handler := func(_ http.ResponseWriter, r *http.Request) { uri = r.RequestURI }
	segment := serve(t, "/v1/{key}/x?k={key}", handler)
	for key, want := range map[string]string{
		"k": "k", "a/b": "a%2Fb", "../../etc": "..%2F..%2Fetc", "a?b=c&d#e": "a%3Fb%3Dc%26d%23e", "two words": "two%20words", "a+b": "a%2Bb",
		"%2F": "%252F", "é": "%C3%A9", "\xff\x00": "%FF%00", "{key}": "%7Bkey%7D", "{key+}": "%7Bkey%2B%7D", "a;b,c:d@e": "a%3Bb%2Cc%3Ad%40e", "-._~": "-._~", "...": "...",
		"//other.host/": "%2F%2Fother.host%2F", "\r\nX: y": "%0D%0AX%3A%20y", "\\": "%5C",
	} {
		if _, err := get(t, segment, key); err != nil || uri != "/v1/"+want+"/x?k="+want {
			t.Errorf("%q: %s, %v", key, uri, err)
		}
	}
	path := serve(t, "/v1/{key+}", handler)
	for key, want := range map[string]string{"a/b/c": "a/b/c", "a//b": "a//b", "/a/": "/a/", "a?b/c#d": "a%3Fb/c%23d", "..a/b..": "..a/b..", "%2e%2e": "%252e%252e"} {
		if _, err := get(t, path, key); err != nil || uri != "/v1/"+want {
			t.Errorf("%q: %s, %v", key, uri, err)
		}
	}
	uri = "not asked"
	for s, keys := range map[*cache.Origin][]string{&segment: {".", ".."}, &path: {".", "..", "../x", "a/../b", "a/..", "./a", "/.."}} {
		for _, key := range keys {
			if _, err := get(t, *s, key); err == nil || uri != "not asked" {
				t.Errorf("%q: %s, %v", key, uri, err)
			}
		}
	}
	if _, err := get(t, serve(t, "/v1/x{key}", handler), ".."); err != nil || uri != "/v1/x.." {
		t.Errorf("%s, %v", uri, err)
	}
}

func TestURLAnswers(t *testing.T) {
	s := serve(t, "/{key}?secret=hidden", func(w http.ResponseWriter, r *http.Request) {
		var status int
		var after string
		fmt.Sscanf(r.URL.Path, "/%d,%s", &status, &after)
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			fmt.Fprint(w, "what the\r\norigin \x1bsays ", strings.Repeat("on ", 1000))
		}
	})
	for key, want := range map[string]struct {
		found bool
		after time.Duration
		says  string
	}{
		"404":        {says: "404 Not Found: what the origin says on on"},
		"410":        {says: "410 Gone"},
		"500":        {found: true, says: ": 500 Internal Server Error: what the origin says"},
		"204":        {found: true, says: ": 204 No Content"},
		"403":        {found: true, says: ": 403 Forbidden"},
		"500,7":      {found: true, says: "500"},
		"429":        {found: true, says: "429"},
		"429,7":      {found: true, after: 7 * time.Second, says: "429"},
		"503,120":    {found: true, after: 2 * time.Minute, says: "503"},
		"503,999999": {found: true, after: time.Hour, says: "503"},
		"503,0":      {found: true, says: "503"},
		"503,soon":   {found: true, says: "503"},
	} {
		_, err := get(t, s, key)
		if err == nil || errors.Is(err, cache.ErrNotFound) == want.found || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if text := err.Error(); len(text) > untrusted.MaxWords+200 || strings.Contains(text, "hidden") || strings.ContainsAny(text, "\r\n\x1b") {
			t.Errorf("%s: the error is %q", key, text)
		}
		var after time.Duration
		if r, ok := errors.AsType[*cache.RetryAfter](err); ok {
			after = r.After
		}
		if after != want.after {
			t.Errorf("%s: after %v, want %v", key, after, want.after)
		}
	}
}

// TestURLTooLong: what is too long is not read, whether its length is known or not.
func TestURLTooLong(t *testing.T) {
	const most = 1000
	s := serve(t, "/{key}", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/known":
			w.Header().Set("Content-Length", fmt.Sprint(10<<20))
			_, _ = w.Write(make([]byte, 10<<20))
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/just":
			_, _ = w.Write(make([]byte, most))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write(make([]byte, 50))
		}
	}, func(c *URLConfig) { c.MaxValue = most })
	for _, key := range []string{"known", "endless"} {
		if _, err := get(t, s, key); !errors.Is(err, errLong) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if v, err := get(t, s, "just"); err != nil || len(v.Data) != most {
		t.Errorf("%d bytes, %v", len(v.Data), err)
	}
	if _, err := get(t, s, "cut"); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("a body that breaks off: %v", err)
	}
}

func TestURLStopped(t *testing.T) {
	asked := make(chan struct{})
	s := serve(t, "/{key}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
		}
		asked <- struct{}{}
		<-r.Context().Done()
	})
	for _, key := range []string{"header", "body"} {
		lost := errors.New("somebody else may fetch")
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := s(ctx, cache.Fetch{Key: key})
			result <- err
		}()
		<-asked
		cancel(lost)
		if err := <-result; !errors.Is(err, lost) {
			t.Errorf("%s: %v", key, err)
		}
	}
	refused := httptest.NewServer(nil)
	refused.Close()
	s, err := URL(URLConfig{URL: refused.URL + "/{key}?secret=hidden"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, s, "k"); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("nobody there: %v", err)
	}
}

// TestURLUpgrade: an unasked "101 Switching Protocols", after which nothing comes, ends a fetch.
func TestURLUpgrade(t *testing.T) {
	s := serve(t, "/{key}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := s(ctx, cache.Fetch{Key: "k"})
		result <- err
	}()
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), "101") {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the fetch does not end with its deadline")
	}
}

func TestURLRedirects(t *testing.T) {
	secret := func(c *URLConfig) { c.Header = http.Header{"X-Secret": {"s"}} }
	heard := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Secret"), r.Header.Get(HeaderTerm), r.Header.Get("Referer"))
	}
	other := httptest.NewServer(http.HandlerFunc(heard))
	defer other.Close()
	s := serve(t, "/{key}?token=hidden", func(w http.ResponseWriter, r *http.Request) {
		var left int
		if n, _ := fmt.Sscanf(r.URL.Path, "/%d", &left); n == 1 && left > 0 {
			http.Redirect(w, r, fmt.Sprint("/", left-1), http.StatusFound)
			return
		}
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			heard(w, r)
		}
	}, secret)
	for key, want := range map[string]string{"5": "s1234", "other": "1234"} {
		if v, err := get(t, s, key); err != nil || string(v.Data) != want {
			t.Errorf("%s: %q, %v", key, v.Data, err)
		}
	}
	for _, key := range []string{"6", "file"} {
		if v, err := get(t, s, key); err == nil {
			t.Errorf("%s: %q", key, v.Data)
		}
	}
	secure := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer secure.Close()
	down, err := URL(URLConfig{URL: secure.URL + "/{key}", Client: secure.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, down, "k"); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("from https to http: %v", err)
	}
}

// pipes is a listener without a network.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// severed is a connection whose other end hears nothing any more once gone is set.
type severed struct {
	net.Conn
	gone *atomic.Bool
}

func (s severed) Write(p []byte) (int, error) {
	if s.gone.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// TestURLOriginMoves: over HTTP/2, a connection whose other end is gone without a word costs one fetch.
func TestURLOriginMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		listener := make(pipes)
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })}
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		var gone *atomic.Bool // for the last connection
		transport := Transport(nil)
		transport.Protocols = &protocols
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			listener <- there
			gone = new(atomic.Bool)
			return severed{here, gone}, nil
		}
		defer transport.CloseIdleConnections()
		s, err := URL(URLConfig{URL: "http://origin/{key}", Client: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := get(t, s, "k"); err != nil || string(v.Data) != "HTTP/2.0" {
			t.Fatalf("%q, %v", v.Data, err)
		}
		gone.Store(true)
		if _, err := get(t, s, "k"); err == nil {
			t.Error("an answer over a connection that is gone")
		}
		if v, err := get(t, s, "k"); err != nil {
			t.Errorf("the next fetch: %q, %v", v.Data, err)
		}
	})
}

func TestTTL(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	const (
		most  = time.Hour
		never = time.Duration(-1) // not kept
	)
	for _, c := range []struct {
		want   time.Duration
		header http.Header
	}{
		{0, http.Header{}},
		{never, http.Header{"Cache-Control": {"public, private"}}},
		{never, http.Header{"Cache-Control": {`private="set-cookie, x", max-age=60`}}},
		{never, http.Header{"Vary": {"Accept-Encoding, *"}}},
		{0, http.Header{"Vary": {"Accept-Encoding"}}},
		{time.Minute, http.Header{"Cache-Control": {"max-age=60"}}},
		{time.Minute, http.Header{"Cache-Control": {"public, MAX-AGE = \"60\""}}},
		{2 * time.Minute, http.Header{"Cache-Control": {"max-age=60, s-maxage=120"}}},
		{2 * time.Minute, http.Header{"Cache-Control": {"max-age=60", "s-maxage=120"}, "Expires": {date(time.Second)}}},
		{50 * time.Second, http.Header{"Cache-Control": {"max-age=60"}, "Age": {"10"}}},
		{never, http.Header{"Cache-Control": {"max-age=60"}, "Age": {"100"}}},
		{time.Minute, http.Header{"Cache-Control": {"max-age=60"}, "Age": {"-5"}}},
		{never, http.Header{"Cache-Control": {"max-age=0"}}},
		{never, http.Header{"Cache-Control": {"no-store"}}},
		{never, http.Header{"Cache-Control": {"max-age=60, no-cache"}}},
		{never, http.Header{"Cache-Control": {"max-age=sixty"}}},
		{never, http.Header{"Cache-Control": {"max-age=-60"}}},
		{most, http.Header{"Cache-Control": {"max-age=7200"}}},
		{most, http.Header{"Cache-Control": {"max-age=99999999999999999999999"}}},
		{time.Minute, http.Header{"Expires": {date(time.Minute)}}},
		{30 * time.Second, http.Header{"Expires": {date(time.Minute)}, "Date": {date(30 * time.Second)}}},
		{never, http.Header{"Expires": {date(-time.Minute)}}},
		{never, http.Header{"Expires": {"0"}}},
		{minTTL, http.Header{"Cache-Control": {"max-age=0, stale-while-revalidate=60"}}},
		{minTTL, http.Header{"Cache-Control": {"max-age=60, stale-if-error=600"}, "Age": {"100"}}},
		{most, http.Header{"Expires": {date(1e6 * time.Minute)}}},
	} {
		got, noStore := freshness(c.header, now, most)
		if noStore {
			got = never
		}
		if got != c.want {
			t.Errorf("%v: %v, want %v", c.header, got, c.want)
		}
	}
}

func TestURLFresh(t *testing.T) {
	s := serve(t, "/{key}", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "max-age=999999999") })
	if v, err := get(t, s, "k"); err != nil || v.TTL != 24*time.Hour || len(v.Data) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestURLConfig(t *testing.T) {
	for _, u := range []string{
		"", "origin/{key}", "ftp://origin/{key}", "http:///{key}", "http://origin/", "http://{key}/x", "http://{key}.origin/{key}", "http://origin:{key}/",
		"http://user:hidden@origin/{key}", "http://origin/{key}#x", "http://origin/#{key}", "http://origin/../{key}", "http://origin/%2e/{key}", "http://ori gin/{key}", "http://origin{key+}",
	} {
		if _, err := URL(URLConfig{URL: u}); !errors.Is(err, lease.ErrInvalid) || strings.Contains(fmt.Sprint(err), "hidden") {
			t.Errorf("%q: %v", u, err)
		}
	}
	const good = "https://origin:8443/a/{key}"
	for _, name := range []string{"host", "Content-Length", "understudy-term", "If-None-Match", "Range"} {
		if _, err := URL(URLConfig{URL: good, Header: http.Header{name: {"x"}}}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []URLConfig{{URL: good, MaxValue: -1}, {URL: good, MaxTTL: -1}} {
		if _, err := URL(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, u := range []string{good, "http://[::1]:80/{key+}", "http://origin?k={key}"} {
		if _, err := URL(URLConfig{URL: u}); err != nil {
			t.Errorf("%q: %v", u, err)
		}
	}
}
