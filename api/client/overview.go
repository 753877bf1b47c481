package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Overview answers at a glance.
func (c *Client) Overview(ctx context.Context) (apitype.Overview, error) {
	return get[apitype.Overview](ctx, c, "/v1/overview", nil)
}

// Monitor returns the monitor at a glance.
func (c *Client) Monitor(ctx context.Context) (apitype.Monitor, error) {
	return get[apitype.Monitor](ctx, c, "/v1/monitor", nil)
}

// State tells of the server and its store: the first state that its stream of events has.
func (c *Client) State(ctx context.Context) (apitype.State, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var first *apitype.State
	_, err := follow(ctx, c, "/v1/events", values("state", true), "state", nil, func(s apitype.State) error {
		first = &s
		return errEnough
	})
	switch {
	case first != nil:
		return *first, nil
	case errors.Is(err, errEnded):
		err = c.unexpectedAnswer(http.StatusOK, "told no state")
	}
	return apitype.State{}, err
}

// errEnough ends a stream of which no more is wanted.
var errEnough = errors.New("client: enough")
