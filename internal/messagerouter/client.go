package messagerouter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// Limits.
const (
	// MaxLimit is how many messages a router gives at once, at most.
	MaxLimit = 4096
	// MaxWait is the longest that a poll may last.
	MaxWait = 5 * time.Minute

	maxError = 64 << 10 // bytes of an error's body that are read
)

// Config of a client.
type Config struct {
	// Topic is its URL, such as http://router:3904/events/TOPIC; no user,
	// password or query. Required.
	Topic string
	// User and Password are sent as basic authentication; "" sends none.
	User     string
	Password secret.Text
	// TLS of https; nil trusts the system's certificates.
	TLS *tls.Config
	// Timeout of a request whose context has no deadline, and of every poll, beyond what that may wait. Default 10 s.
	Timeout time.Duration
	// MaxAnswer is the most bytes that are read of an answer. Default 32 MiB.
	MaxAnswer int
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c Config) Validate() error {
	u, err := url.Parse(c.Topic)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the topic's URL cannot be read", lease.ErrInvalid) // the error would quote a password
	case u.User != nil:
		return fmt.Errorf("%w: the topic's URL has a user or password; configure them by themselves", lease.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "" || u.RawQuery != "":
		return fmt.Errorf("%w: the topic's URL %q is not http://HOST…/TOPIC or https://HOST…/TOPIC", lease.ErrInvalid, c.Topic)
	case strings.Trim(u.Path, "/") == "":
		return fmt.Errorf("%w: the topic's URL %q names no topic; use one like http://HOST/events/TOPIC", lease.ErrInvalid, c.Topic)
	case strings.Contains(c.User, ":"):
		return fmt.Errorf("%w: the user of topic %q contains ':'", lease.ErrInvalid, c.Topic)
	case c.User == "" && c.Password != "":
		return fmt.Errorf("%w: topic %q has a password but no user", lease.ErrInvalid, c.Topic)
	case c.Timeout < 0 || c.MaxAnswer < 0:
		return fmt.Errorf("%w: the time-out and the size of an answer cannot be negative", lease.ErrInvalid)
	}
	return nil
}

// Client of one topic. It is safe to use from many goroutines.
type Client struct {
	config    Config
	topic     *url.URL
	transport *http.Transport
}

// New returns a client. Nothing is sent yet.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Timeout, c.MaxAnswer = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.MaxAnswer, 32<<20)
	topic, err := url.Parse(c.Topic)
	if err != nil {
		return nil, err
	}
	topic.Path, topic.RawPath = strings.TrimRight(topic.Path, "/"), ""
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Client{config: c, topic: topic, transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment, // leaves loopback alone
		TLSClientConfig:        c.TLS.Clone(),
		TLSHandshakeTimeout:    c.Timeout,
		Protocols:              protocols,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        10 * time.Second, // before the router closes them
		MaxResponseHeaderBytes: maxError,
		DisableCompression:     true,
	}}, nil
}

// String is the topic, without secrets.
func (c *Client) String() string { return c.topic.String() }

// GoString is the topic too: a client must not show its password.
func (c *Client) GoString() string { return "messagerouter.Client{" + c.String() + "}" }

// Close closes connections that are not in use.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Consume returns the next messages for a consumer of a group, at most limit (0:
// as many as the router likes), and none if none came while it waited. Items are
// as they stood in the answer, texts or objects, divided but not checked.
//
// Items that come with an error are what was read of an answer that is broken or
// too large: the router may take all of it for delivered. Ask for fewer then. With a limit of 1
// an answer that is too large is read to its end and dropped: otherwise the same one might
// come for ever.
func (c *Client) Consume(ctx context.Context, group, consumer string, wait time.Duration, limit int) ([]json.RawMessage, error) {
	if err := ValidateConsumer(group, consumer); err != nil {
		return nil, err
	}
	if wait < 0 || wait > MaxWait || limit < 0 || limit > MaxLimit {
		return nil, fmt.Errorf("%w: poll of %v for %d messages; use up to %v and %d", lease.ErrInvalid, wait, limit, MaxWait, MaxLimit)
	}
	from := c.topic.JoinPath(url.PathEscape(group), url.PathEscape(consumer))
	query := url.Values{"timeout": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	from.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeoutCause(ctx, wait+c.config.Timeout, errSlow)
	defer cancel()
	body, err := c.do(ctx, http.MethodGet, from, nil, limit == 1)
	if err != nil && body == nil {
		return nil, err
	}
	if refused := refusal(body); refused != nil {
		return nil, refused
	}
	items, broken := split(body)
	if err != nil {
		return items, err
	}
	return items, broken
}

// ValidateConsumer returns an error that wraps [lease.ErrInvalid] if no group or
// consumer can be called that.
func ValidateConsumer(group, consumer string) error {
	for what, name := range map[string]string{"group": group, "consumer": consumer} {
		if err := lease.ValidateText(what, name, 1, 200); err != nil {
			return err
		}
		if name == "." || name == ".." || strings.Contains(name, "/") {
			return fmt.Errorf("%w: %s %q; it is part of a path, so use no '/' and more than dots", lease.ErrInvalid, what, name)
		}
	}
	return nil
}

// Publish sends a line of text as one message: the router keeps it to the byte. An [*Error] with [CodePartial] says that
// the router did not take it.
func (c *Client) Publish(ctx context.Context, line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 || bytes.ContainsAny(line, "\r\n") {
		return fmt.Errorf("%w: what is to be published is not one line", lease.ErrInvalid)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.config.Timeout, errSlow)
		defer cancel()
	}
	answer, err := c.do(ctx, http.MethodPost, c.topic, line, false)
	if err != nil {
		return err
	}
	if refused := refusal(answer); refused != nil {
		return refused
	}
	var taken struct {
		Count *int `json:"count"`
	}
	if err := json.Unmarshal(answer, &taken); err != nil || taken.Count == nil {
		return fmt.Errorf("%w: it says nothing about how many messages it took", ErrAnswer)
	}
	if *taken.Count < 1 {
		return &Error{Status: http.StatusOK, Code: CodePartial, Message: "it did not take the message"}
	}
	return nil
}

// do sends a request once and returns the body of a good answer: with an error,
// if there is some of it. drain reads one that is too large to its end.
func (c *Client) do(ctx context.Context, method string, to *url.URL, line []byte, drain bool) ([]byte, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	var payload io.Reader
	if method == http.MethodPost {
		payload = bytes.NewReader(line)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "text/plain")
	}
	if c.config.User != "" {
		req.SetBasicAuth(c.config.User, string(c.config.Password))
	}
	// Not through http.Client: it would follow redirects.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, failure(ctx, err, connected)
	}
	untrusted.CloseUnaskedUpgrade(resp)
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
		return nil, refused(resp, said)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.config.MaxAnswer)+1))
	switch {
	case err != nil:
		return answer, failure(ctx, err, true)
	case len(answer) > c.config.MaxAnswer:
		if drain {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		return answer[:c.config.MaxAnswer], fmt.Errorf("%w: more than %d bytes", ErrTooLarge, c.config.MaxAnswer)
	}
	return answer, nil
}

// failure is the error of a request that was not answered, or not to the end.
func failure(ctx context.Context, err error, connected bool) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = cause
	}
	if !connected {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return fmt.Errorf("messagerouter: the connection failed: %w", err)
}
