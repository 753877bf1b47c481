package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/headers"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// HeaderTerm carries the fetch's term, by which an origin can tell an older
// request from a newer one.
const HeaderTerm = "Understudy-Term"

// URLConfig tells where the values are.
type URLConfig struct {
	// URL is http or https, with {key} or {key+} in its path or its query. It
	// has no user or password: use Header. Required.
	URL string
	// Header has more headers for every request. Names and values are checked.
	Header http.Header
	// Client makes the requests. Its CheckRedirect is replaced, and a Timeout of
	// its own is kept. Default: one that keeps 64 connections open, uses the
	// environment's proxies, but never for loopback, and trusts the system's
	// certificates.
	Client *http.Client
	// MaxValue bounds a body, in bytes. A longer one is a failure. Default 16 MiB.
	MaxValue int
	// MaxTTL bounds the times to live that are believed. Default 24 h, which a
	// peer with protocol.Timings' defaults accepts.
	MaxTTL time.Duration
}

const (
	wholeMark     = "{key+}"
	maxRedirects  = 5
	maxHeader     = 64 << 10
	maxRetryAfter = time.Hour
	// longestCall bounds a request whose context has no deadline of its own.
	longestCall = time.Minute
)

// Validate returns an error that wraps [lease.ErrInvalid].
func (c URLConfig) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("origin: %w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	shown, _, _ := strings.Cut(c.URL, "?") // what follows may be a secret
	u, err := url.Parse(expand(c.URL, "key"))
	switch {
	case err != nil:
		return bad("the origin's URL cannot be read") // the error would quote a password
	case u.User != nil:
		return bad("the origin's URL has a user or password; use a header")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "":
		return bad("the origin's URL %q is not http://HOST/… or https://HOST/…", shown)
	case u.Host != host(c.URL):
		return bad("the origin's URL %q has {key} in its host: a key must not choose whom to ask", shown)
	case expand(c.URL, "key") == c.URL:
		return bad("the origin's URL %q lacks {key}, which stands for the key", shown)
	case dotted(u):
		return bad("the origin's URL %q has a segment . or .. in its path", shown)
	case c.MaxValue < 0 || c.MaxTTL < 0:
		return bad("the largest value and the longest time to live cannot be negative")
	}
	if err := headers.Check(c.Header, func(name string) bool { return name == "Range" || strings.HasPrefix(name, "If-") }); err != nil {
		return bad("%v", err)
	}
	return nil
}

// host is what stands between the scheme and the path.
func host(template string) string {
	_, rest, _ := strings.Cut(template, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[:end]
	}
	return rest
}

// expand puts a key into a URL.
func expand(template, key string) string {
	return strings.NewReplacer(keyMark, escape(key, ""), wholeMark, escape(key, "/")).Replace(template)
}

// escape percent-encodes all bytes but the unreserved ones and those of plain.
func escape(s, plain string) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, 3*len(s))
	for i := range len(s) {
		c := s[i]
		unreserved := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
		if unreserved || strings.IndexByte(plain, c) >= 0 {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

// dotted reports whether a path has a segment that others would resolve.
func dotted(u *url.URL) bool {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return true
		}
	}
	return false
}

type origin struct {
	URLConfig
	name   string // without the query, which may hold secrets
	client http.Client
}

// URL returns an origin that sends a GET request.
func URL(c URLConfig) (cache.Origin, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.MaxValue == 0 {
		c.MaxValue = defaultMaxValue
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = 24 * time.Hour
	}
	c.Header = c.Header.Clone()
	o := &origin{URLConfig: c}
	o.name, _, _ = strings.Cut(c.URL, "?")
	if c.Client != nil {
		o.client = *c.Client
	} else {
		o.client.Transport = Transport(nil)
	}
	o.client.CheckRedirect = o.redirect
	return o.fetch, nil
}

// Transport makes the requests of [URL], and trusts the system's certificates, or those of a configuration.
func Transport(trusted *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:   trusted,
		Proxy:             http.ProxyFromEnvironment, // leaves loopback alone
		DialContext:       (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2: true,
		// Without pings, a connection whose other end is gone without a word stays in use until TCP gives it up, after
		// some 15 minutes: a request that times out closes its connection over HTTP/1.1 alone.
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        15 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func (o *origin) redirect(next *http.Request, before []*http.Request) error {
	last := before[len(before)-1]
	switch {
	case len(before) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("a redirect to %s is not followed", untrusted.Words(next.URL.Scheme))
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("a redirect from https to http is not followed")
	}
	// net/http puts the last URL here, whole: its query may be a secret. One that is configured is the first request's too.
	if before[0].Header.Get("Referer") == "" {
		next.Header.Del("Referer")
	}
	if next.URL.Host != before[0].URL.Host {
		for name := range o.Header {
			next.Header.Del(name)
		}
	}
	return nil
}

func (o *origin) fetch(ctx context.Context, f cache.Fetch) (cache.Value, error) {
	to, err := url.Parse(expand(o.URLConfig.URL, f.Key))
	if err != nil || dotted(to) {
		return cache.Value{}, fmt.Errorf("origin: GET %s: the key makes a path with a segment . or .., which others would resolve", o.name)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestCall)
		defer cancel()
	}
	header := http.Header{"User-Agent": {"understudy"}}
	for name, values := range o.Header {
		header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	header[HeaderTerm] = []string{strconv.FormatInt(f.Term, 10)}
	req := (&http.Request{
		Method: http.MethodGet, URL: to, Host: to.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	resp, err := o.client.Do(req)
	if err != nil {
		return cache.Value{}, o.failed(ctx, err)
	}
	untrusted.CloseUnaskedUpgrade(resp)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNonAuthoritativeInfo {
		return o.value(ctx, resp)
	}
	return cache.Value{}, o.refused(resp)
}

func (o *origin) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("origin: GET %s: stopped: %w", o.name, context.Cause(ctx))
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // the outer one quotes the whole URL
	}
	return fmt.Errorf("origin: GET %s: %w", o.name, err)
}

func (o *origin) value(ctx context.Context, resp *http.Response) (cache.Value, error) {
	long := fmt.Errorf("origin: GET %s: %w: more than %d bytes", o.name, errLong, o.MaxValue)
	if resp.ContentLength > int64(o.MaxValue) {
		return cache.Value{}, long
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(o.MaxValue)+1))
	switch {
	case len(data) > o.MaxValue:
		return cache.Value{}, long
	case err != nil:
		return cache.Value{}, o.failed(ctx, fmt.Errorf("the answer broke off: %w", err))
	}
	ttl, noStore := freshness(resp.Header, time.Now(), o.MaxTTL)
	return cache.Value{Data: fit(data), TTL: ttl, NoStore: noStore}, nil
}

// refused is the error that an answer without a value stands for.
func (o *origin) refused(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4*untrusted.MaxWords))
	text := resp.Status
	if said := untrusted.Words(strings.ToValidUTF8(string(body), " ")); said != "" {
		text += ": " + said
	}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("origin: GET %s: %w: %s", o.name, cache.ErrNotFound, text)
	}
	err := fmt.Errorf("origin: GET %s: %s", o.name, text)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if after, _ := untrusted.RetryAfter(resp.Header, time.Now()); after > 0 {
			return &cache.RetryAfter{After: min(after, maxRetryAfter), Err: err}
		}
	}
	return err
}
