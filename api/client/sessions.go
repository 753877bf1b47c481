package client

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Sessions lists the instances that are alive, the oldest first.
func (c *Client) Sessions(ctx context.Context) ([]apitype.Session, error) {
	return list(ctx, c, "/v1/sessions", func(p apitype.Sessions) ([]apitype.Session, string) { return p.Sessions, p.Next })
}

// StartSession starts a session of a new instance. Its owner renews it every IntervalMS, and trusts it and its leases for
// TrustedForMS after it sent the request that started or last renewed it. One whose answer was lost lapses by itself.
func (c *Client) StartSession(ctx context.Context, n apitype.NewSession) (apitype.StartedSession, error) {
	return call[apitype.StartedSession](ctx, c, http.MethodPost, "/v1/sessions", nil, n)
}

// RenewSessions renews the sessions of a process, 1 to 1000, and names those that have lapsed. After an error renew them all
// again: that does no harm to those that were renewed.
func (c *Client) RenewSessions(ctx context.Context, ids ...string) (apitype.Renewals, error) {
	return call[apitype.Renewals](ctx, c, http.MethodPost, "/v1/sessions/renew", nil, apitype.SessionIDs{Sessions: ids})
}

// EndSession ends a session and releases what it holds. One that has ended already is no error.
func (c *Client) EndSession(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, pathOf("sessions", id), nil, nil, nil)
}

// Acquire takes a lease for a session, waiting for it up to wait, at most 1 min. It can be repeated: what the session holds
// already it keeps, under the same term. An [*Error] with the code held says who holds it and when to ask again, one with the
// code lapsed that the session has ended.
func (c *Client) Acquire(ctx context.Context, space, key, session string, wait time.Duration) (apitype.Lease, error) {
	return callAndWait[apitype.Lease](ctx, c, http.MethodPut, pathOf("leases", space, key), wait, apitype.AcquireRequest{Session: session})
}

// Release gives a lease back; an [*Error] with the code not_held when the session does not hold it under that term.
func (c *Client) Release(ctx context.Context, space, key string, r apitype.ReleaseRequest) error {
	return c.do(ctx, http.MethodDelete, pathOf("leases", space, key), nil, r, nil)
}
