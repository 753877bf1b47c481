package resolve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/lru"
	"github.com/understudy-ha/understudy/lease"
)

const (
	maxAnswer = 4 << 20 // bytes of an answer that are read
	maxNames  = 1024    // names that a client remembers
)

// ClientConfig tells a [Client] whom to ask.
type ClientConfig struct {
	// Servers, such as http://10.0.0.1:7600. One that fails is asked last from then on. Required.
	Servers []string
	// Token that the servers ask for; "" sends none.
	Token string
	// HTTP is what requests are sent with. Default: a client of its own that follows no
	// redirects, so that the token goes nowhere else.
	HTTP *http.Client
	// Timeout of one request to one server. Default 2 s. The servers share the time to the caller's deadline if that is nearer.
	Timeout time.Duration
	// Interval at which what is watched is asked for. Default 1 s; it is jittered by a quarter.
	Interval time.Duration
	// MaxAge is how long an answer may be believed at most, 1 s or more. Default DefaultMaxAge.
	MaxAge time.Duration
	// Clock of this host. Default lease.BootClock.
	Clock lease.Clock
}

// Client asks servers over HTTP and remembers what they answered for as long as it may be
// believed. It is safe to use from many goroutines.
type Client struct {
	cfg     ClientConfig
	servers []*url.URL

	names *lru.Cache[Name, *entry]

	mu    sync.Mutex // of what changes here and in the entries
	first int        // index of the server to be asked first
}

// entry is what is remembered of a name.
type entry struct {
	flight *flight // under way, or nil
	last   *flight // the last with an answer, or nil
}

// flight is one query of the servers, for all callers that need its name while it lasts.
type flight struct {
	name   Name
	done   chan struct{} // closed at its end; nothing else changes from then on
	answer Answer
	until  time.Duration // reading of the clock at which the answer ends
	err    error
	// cut: the deadline or cancellation of the caller that made the query cut it short, and its error is for that caller alone.
	cut bool
}

func (f *flight) result(now time.Duration) (Answer, error) {
	a := f.answer
	a.TTL = max(0, f.until-now)
	return a, f.err
}

// believed reports whether its answer may still be believed.
func (f *flight) believed(now time.Duration) bool { return f != nil && f.until > now }

// NewClient makes a client; it sends nothing yet. Errors wrap lease.ErrInvalid.
func NewClient(cfg ClientConfig) (*Client, error) {
	c := &Client{cfg: cfg, names: lru.New[Name, *entry](maxNames)}
	if len(cfg.Servers) == 0 {
		return nil, fmt.Errorf("%w: a resolver needs a server, such as http://127.0.0.1:7600", lease.ErrInvalid)
	}
	for _, s := range cfg.Servers {
		u, err := url.Parse(s)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("%w: server %q: use http://HOST:PORT or https://HOST:PORT", lease.ErrInvalid, s)
		}
		c.servers = append(c.servers, u)
	}
	if cfg.Timeout < 0 || cfg.Interval < 0 {
		return nil, fmt.Errorf("%w: durations of a resolver cannot be negative", lease.ErrInvalid)
	}
	if cfg.MaxAge != 0 && cfg.MaxAge < time.Second {
		return nil, fmt.Errorf("%w: answers may be believed for 1s or more, not %v", lease.ErrInvalid, cfg.MaxAge)
	}
	c.cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	c.cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	c.cfg.MaxAge = cmp.Or(cfg.MaxAge, DefaultMaxAge)
	if c.cfg.HTTP == nil {
		c.cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if c.cfg.Clock == nil {
		c.cfg.Clock = lease.BootClock()
	}
	return c, nil
}

// Lookup returns who stands behind a name, as [ParseName] reads it: "billing" is a role,
// "primary/orders" and "replica/orders" are of a shard. What is remembered and may still be
// believed is not asked for again. An error wraps [ErrVacant] when nobody does,
// [ErrUnknown] when there is no such name, [ErrStale] when no server could say; none of them
// when all servers refuse to answer (401, 403).
func (c *Client) Lookup(ctx context.Context, name string) (Answer, error) {
	n, err := ParseName(name)
	if err != nil {
		return Answer{Name: n}, err
	}
	a, err := c.lookup(ctx, n, false)
	if err == nil && len(a.Holders) == 0 {
		err = fmt.Errorf("%w: %s", ErrVacant, n)
	}
	return a, err
}

// Watch calls fn with the answer for a name, at once and then whenever a holder, its address or
// its term changes, until ctx ends, fn returns an error, which it returns, or all servers refuse to answer, as
// with a wrong token. No holders are nobody. While no server can say, fn is not called. A change is seen after about an
// interval; changes that came and went in between are in the servers' history.
func (c *Client) Watch(ctx context.Context, name string, fn func(Answer) error) error {
	n, err := ParseName(name)
	if err != nil {
		return err
	}
	var last Answer
	for first := true; ; {
		a, err := c.lookup(ctx, n, true)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case errors.Is(err, ErrUnknown):
			a, err = Answer{Name: n}, nil
		case err != nil && !errors.Is(err, ErrStale):
			return err // a refusal, which does not pass by itself
		}
		if err == nil && (first || !a.Equal(last)) {
			if err := fn(a); err != nil {
				return err
			}
			first, last = false, a
		}
		if !lease.Sleep(ctx, c.cfg.Clock, c.nextInterval()) {
			return context.Cause(ctx)
		}
	}
}

func (c *Client) nextInterval() time.Duration {
	i := c.cfg.Interval
	return i - i/4 + rand.N(i/2+1)
}

// lookup returns the cached answer, or a server's; force asks a server in any case.
func (c *Client) lookup(ctx context.Context, n Name, force bool) (Answer, error) {
	e := c.names.GetOrAdd(n, func() *entry { return new(entry) })
	for {
		c.mu.Lock()
		now, last, f := c.cfg.Clock.Now(), e.last, e.flight
		if !force && last.believed(now) {
			c.mu.Unlock()
			return last.result(now)
		}
		if f == nil {
			f = &flight{name: n, done: make(chan struct{}), cut: true}
			e.flight = f
			c.mu.Unlock()
			c.runFlight(ctx, e, f)
			return f.result(c.cfg.Clock.Now())
		}
		c.mu.Unlock()
		select {
		case <-f.done:
			if !f.cut {
				return f.result(c.cfg.Clock.Now())
			}
		case <-ctx.Done():
			return Answer{Name: n}, fmt.Errorf("%w: %s: %w", ErrStale, n, context.Cause(ctx))
		}
	}
}

// runFlight brings a flight to its end, also if the HTTP client panics: the flight then stays cut.
func (c *Client) runFlight(ctx context.Context, e *entry, f *flight) {
	defer func() {
		c.mu.Lock()
		e.flight = nil
		c.mu.Unlock()
		close(f.done)
	}()
	f.err = c.query(ctx, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.err == nil:
		e.last = f
	case errors.Is(f.err, ErrStale) && e.last.believed(c.cfg.Clock.Now()):
		f.answer, f.until, f.err = e.last.answer, e.last.until, nil
	}
}

// query asks one server after the other until one can say, and fills in the flight's answer.
func (c *Client) query(ctx context.Context, f *flight) error {
	c.mu.Lock()
	first := c.first
	c.mu.Unlock()
	var failed error
	refused, cut := 0, false
	for i := range c.servers {
		at := (first + i) % len(c.servers)
		share := c.share(ctx, len(c.servers)-i)
		a, until, err := c.queryServer(ctx, share, c.servers[at], f.name)
		if err == nil || errors.Is(err, ErrUnknown) {
			f.answer, f.until, f.cut = a, until, false
			return err
		}
		cut = cut || ctx.Err() != nil || share < c.cfg.Timeout && errors.Is(err, context.DeadlineExceeded)
		if errors.Is(err, errRefused) {
			refused++
		}
		if !errors.Is(failed, errRefused) { // which says more than that another server is down
			failed = err
		}
		if ctx.Err() != nil {
			break // the caller has gone, which is not the server's fault
		}
		c.mu.Lock()
		if c.first == at { // else another query has been here
			c.first = (at + 1) % len(c.servers)
		}
		c.mu.Unlock()
	}
	f.answer, f.cut = Answer{Name: f.name}, cut
	if refused == len(c.servers) || errors.Is(failed, ErrStale) {
		return failed
	}
	return fmt.Errorf("%w: %s: %w", ErrStale, f.name, failed)
}

// share is the time for the first of so many servers that are left: one that is silent must leave some to the others.
func (c *Client) share(ctx context.Context, left int) time.Duration {
	until, ok := ctx.Deadline()
	if !ok {
		return c.cfg.Timeout
	}
	return min(c.cfg.Timeout, time.Until(until)/time.Duration(left))
}

// errRefused: a server has an answer, which is that it gives none to this client.
var errRefused = errors.New("resolve: the server refuses to answer")

// queryServer returns a server's answer, and the reading of the clock at which it ends.
func (c *Client) queryServer(ctx context.Context, timeout time.Duration, server *url.URL, n Name) (a Answer, until time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	path := "/v1/roles/"
	if n.Kind != Role {
		path = "/v1/shards/"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server.String(), "/")+path+url.PathEscape(n.Of), nil)
	if err != nil {
		return a, 0, err
	}
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	asked := c.cfg.Clock.Now()
	res, err := c.cfg.HTTP.Do(r)
	if err != nil {
		return a, 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return a, 0, fmt.Errorf("%s: %w", server.Host, err)
	}
	now := c.cfg.Clock.Now()
	a, err = c.ofReply(server, res, body, n, now-asked) // the server may have read it as soon as it was asked
	return a, now + a.TTL, err
}

// ofReply is the answer of a reply whose request was sent age ago.
func (c *Client) ofReply(server *url.URL, res *http.Response, body []byte, n Name, age time.Duration) (Answer, error) {
	if res.StatusCode >= http.StatusBadRequest {
		var problem apitype.Problem
		_ = json.Unmarshal(body, &problem) // a proxy may have answered something else
		return c.errorReply(server, res.StatusCode, problem, n, age)
	}
	var role apitype.RoleHolders
	var shard apitype.Shard
	var into any = &role
	if n.Kind != Role {
		into = &shard
	}
	err := json.Unmarshal(body, into)
	switch {
	case res.StatusCode != http.StatusOK || err != nil || !isOf(n, role, shard):
		return Answer{}, fmt.Errorf("%s answered %s, which is not how this API answers", server.Host, res.Status)
	case n.Kind == Role:
		return ofRoleReply(n, role, age, c.cfg.MaxAge)
	}
	known, _ := strconv.Atoi(res.Header.Get("Age"))
	return ofShardReply(n, shard, age+time.Duration(max(0, known))*time.Second, c.cfg.MaxAge)
}

func (c *Client) errorReply(server *url.URL, status int, body apitype.Problem, n Name, age time.Duration) (Answer, error) {
	switch {
	case body.Code == "vacant":
		return Answer{Name: n, TTL: max(0, Empty-age)}, nil
	case body.Code == "not_found":
		return Answer{Name: n}, fmt.Errorf("%w: %s", ErrUnknown, n)
	case body.Code != "" && (status == http.StatusUnauthorized || status == http.StatusForbidden): // without a code it is a proxy's
		return Answer{Name: n}, fmt.Errorf("%w: %s: %d %s %s", errRefused, server.Host, status, body.Code, body.Detail)
	}
	return Answer{Name: n}, fmt.Errorf("%s answered %d %s %s", server.Host, status, body.Code, body.Detail)
}
