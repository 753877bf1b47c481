package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Sessions lists the instances that are alive.
func (c *Client) Sessions(ctx context.Context) ([]apitype.Session, error) {
	var out apitype.Sessions
	err := c.do(ctx, http.MethodGet, "/v1/sessions", nil, nil, &out)
	return out.Sessions, err
}

// Overview answers at a glance.
func (c *Client) Overview(ctx context.Context) (apitype.Overview, error) {
	var out apitype.Overview
	err := c.do(ctx, http.MethodGet, "/v1/overview", nil, nil, &out)
	return out, err
}

// Monitor returns the monitor at a glance.
func (c *Client) Monitor(ctx context.Context) (apitype.Monitor, error) {
	var out apitype.Monitor
	err := c.do(ctx, http.MethodGet, "/v1/monitor", nil, nil, &out)
	return out, err
}

// State tells of the server and its store: the first state that its stream of events has.
func (c *Client) State(ctx context.Context) (apitype.State, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, "/v1/events", url.Values{"state": {"true"}}, nil)
	if err != nil {
		return apitype.State{}, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxAnswer)
	state := false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			state = value == "state"
		case name == "data" && state:
			var out apitype.State
			if err := json.Unmarshal([]byte(value), &out); err != nil {
				return apitype.State{}, fmt.Errorf("client: the state cannot be read: %w", err)
			}
			return out, nil
		}
	}
	if err := lines.Err(); err != nil {
		return apitype.State{}, fmt.Errorf("client: %w", err)
	}
	return apitype.State{}, c.unexpectedAnswer(answer.StatusCode, "told no state")
}
