package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Bounds of calls whose context has no deadline; those that carry payloads may be long.
const (
	callTimeout    = 10 * time.Second
	payloadTimeout = 30 * time.Second
)

// maxPage is the most that one page of a list has.
const maxPage = 1000

// maxAnswer is the most bytes of an answer that are read.
const maxAnswer = 16 << 20

// Config tells a [Client] whom to ask.
type Config struct {
	// URL of the server, such as http://127.0.0.1:7600. Required.
	URL string
	// Token that the server asks for; "" sends none.
	Token string
	// HTTP is what requests are sent with. Default: a client of its own that
	// follows no redirects, so that the token goes nowhere else.
	HTTP *http.Client
}

// Client asks one server. It is safe to use from many goroutines.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// New returns a client; it sends nothing yet.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("client: server URL %q: use http://HOST:PORT or https://HOST:PORT", cfg.URL)
	}
	c := &Client{base: base, token: cfg.Token, http: cfg.HTTP}
	if c.http == nil {
		c.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c, nil
}

// NotUnderstudy is the code of an [Error] that no server of this API gave: something else
// answers at that URL.
const NotUnderstudy = "not_understudy"

// Error is an answer that is an error. Its Code is stable: held, vacant, unauthorized, store_unavailable, …
type Error = apitype.Problem

// Query selects events; zero fields select everything. Without After the
// newest that match are returned, with it the oldest after it.
type Query struct {
	Part, Subject string
	After, Before int64
	Limit         int
}

// Roles lists the roles by name.
func (c *Client) Roles(ctx context.Context) ([]apitype.Role, error) {
	return list(ctx, c, "/v1/roles", func(p apitype.Roles) ([]apitype.Role, string) { return p.Roles, p.Next })
}

// Role returns the primary of a role; an [*Error] with the code vacant when
// there is none.
func (c *Client) Role(ctx context.Context, role string) (apitype.RoleHolders, error) {
	return get[apitype.RoleHolders](ctx, c, pathOf("roles", role), nil)
}

// Resign asks the primary of a role, or all its holders, to give it up.
func (c *Client) Resign(ctx context.Context, role string, r apitype.ResignRequest) (apitype.ResignAccepted, error) {
	return call[apitype.ResignAccepted](ctx, c, http.MethodPost, pathOf("roles", role, "resign"), nil, r)
}

// RoleState returns what the primaries of a role keep for those that follow; place is 1, but
// for a role with several holders. An [*Error] with the code not_found when nobody has written any.
func (c *Client) RoleState(ctx context.Context, role string, place int) (apitype.LeaseState, error) {
	return get[apitype.LeaseState](ctx, c, statePath(role, place), nil)
}

// PutRoleState replaces it; an [*Error] with the code not_held when the term is not the present one.
func (c *Client) PutRoleState(ctx context.Context, role string, place int, s apitype.LeaseState) error {
	return c.do(ctx, http.MethodPut, statePath(role, place), nil, s, nil)
}

func statePath(role string, place int) string {
	if place > 1 {
		role += "#" + strconv.Itoa(place)
	}
	return pathOf("leases", "role", role, "state")
}

// History returns events in ascending order.
func (c *Client) History(ctx context.Context, q Query) ([]apitype.Event, error) {
	out, err := get[apitype.Events](ctx, c, "/v1/history", values("part", q.Part, "subject", q.Subject, "after", q.After, "before", q.Before, "limit", q.Limit))
	return out.Events, err
}

// pathOf is the path of an operation, with its parts escaped.
func pathOf(parts ...string) string {
	escaped := []string{"/v1"}
	for _, part := range parts {
		part = url.PathEscape(part)
		if part == "." || part == ".." { // a server takes these for steps in the path, and redirects
			part = strings.ReplaceAll(part, ".", "%2E")
		}
		escaped = append(escaped, part)
	}
	return strings.Join(escaped, "/")
}

// values is a query of names and values in turn. Zero values are left out.
func values(pairs ...any) url.Values {
	v := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if !reflect.ValueOf(pair[1]).IsZero() {
			v.Set(pair[0].(string), fmt.Sprint(pair[1]))
		}
	}
	return v
}

// get returns what is shown at a path.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

// list returns what is on all pages of a list.
func list[P, T any](ctx context.Context, c *Client, path string, read func(P) (page []T, next string)) (all []T, err error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	for after := ""; ; {
		p, err := get[P](ctx, c, path, values("after", after, "limit", maxPage))
		if err != nil {
			return nil, err
		}
		page, next := read(p)
		if all = append(all, page...); next == "" {
			return all, nil
		}
		after = next
	}
}

// post asks for a change whose answer says no more than that it was made.
func (c *Client) post(ctx context.Context, path string, body any) error {
	return c.do(ctx, http.MethodPost, path, nil, body, nil)
}

// call returns what is answered to a request.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (out T, err error) {
	err = c.do(ctx, method, path, query, body, &out)
	return out, err
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if !isJSON(answer.Header) && (out != nil || answer.StatusCode != http.StatusNoContent) {
		return c.unexpectedAnswer(answer.StatusCode, fmt.Sprintf("answered %.80q", answer.Header.Get("Content-Type")))
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("client: %s %s: the answer cannot be read: %w", method, path, err)
	}
	return nil
}

// withTimeout gives a context a deadline if it has none.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// content is a body that is sent as it is; any other is sent as JSON.
type content struct {
	kind  string
	bytes []byte
}

func contentOf(body any) (content, error) {
	if c, ok := body.(content); ok {
		return c, nil
	}
	text, err := json.Marshal(body)
	return content{"application/json", text}, err
}

// send returns an answer that is no error. path is escaped already; headers are names and values in turn.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any, headers ...string) (*http.Response, error) {
	target := strings.TrimSuffix(c.base.String(), "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var sent content
	var from io.Reader
	if body != nil {
		var err error
		if sent, err = contentOf(body); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		from = bytes.NewReader(sent.bytes)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, from)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if sent.kind != "" {
		r.Header.Set("Content-Type", sent.kind)
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, c.failure(answer)
}

// failure reads an answer that is an error.
func (c *Client) failure(answer *http.Response) *Error {
	failed := &Error{}
	_ = json.NewDecoder(io.LimitReader(answer.Body, 1<<16)).Decode(failed) // a proxy may have answered something else
	failed.Status = answer.StatusCode
	if failed.Code == "" {
		failed = c.unexpectedAnswer(answer.StatusCode, "answered "+answer.Status)
	}
	if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 32); err == nil && failed.RetryAfterMS == 0 {
		failed.RetryAfterMS = int64(seconds) * 1000
	}
	return failed
}

// unexpectedAnswer is an answer that this API does not give.
func (c *Client) unexpectedAnswer(status int, what string) *Error {
	return &Error{Status: status, Code: NotUnderstudy, Detail: fmt.Sprintf("%s %s, which is not how this API answers", c.base.Host, what)}
}

func isJSON(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "application/json"
}
