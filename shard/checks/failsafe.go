package checks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// bodyLimit of questions and answers.
const bodyLimit = 4 << 10

// question asks an agent for a promise; its mac is the promise's for "ask".
type question struct {
	Promise shard.Promise `json:"promise"`
	MAC     string        `json:"mac"`
}

// answer is the mac of a promise for "give", or why none is given.
type answer struct {
	MAC string `json:"mac,omitempty"`
	Why string `json:"why,omitempty"`
}

// failsafe gives a promise, or says why not.
func (h handler) failsafe(w http.ResponseWriter, r *http.Request) {
	var q question
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err := d.Decode(&q); err != nil {
		code := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			code = http.StatusRequestEntityTooLarge
		}
		write(w, code, answer{Why: "the body is not a valid request for a promise"})
		return
	}
	mac, err := h.Agent.GrantPromise(q.Promise, q.MAC)
	if err != nil {
		h.Logger.Info("a promise was not given", "shard", fmt.Sprintf("%.64q", q.Promise.Shard), "from", fmt.Sprintf("%.40q", q.Promise.From), "err", err)
		write(w, http.StatusConflict, answer{Why: err.Error()})
		return
	}
	write(w, http.StatusOK, answer{MAC: mac})
}

// ClientConfig of a client.
type ClientConfig struct {
	// Timeout of one question. Default 1 s.
	Timeout time.Duration
}

// Client asks other agents for promises, over connections that it keeps. It is a
// shard.Promisers.
type Client struct {
	http    *http.Client
	timeout time.Duration
}

// NewClient makes a client.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("%w: the time-out of a question cannot be negative", lease.ErrInvalid)
	}
	c := &Client{timeout: cmp.Or(cfg.Timeout, time.Second)}
	c.http = &http.Client{
		// No proxy: the answer has to come by the shortest way.
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1, MaxConnsPerHost: 4, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: c.timeout, MaxResponseHeaderBytes: bodyLimit, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// RequestPromise asks the agent at an address for a promise, and returns its answer's mac, which is the
// caller's to verify. It ends with ctx, and after the client's time-out.
func (c *Client) RequestPromise(ctx context.Context, agentAddress string, p shard.Promise, mac string) (string, error) {
	if err := shard.ValidateAddress("agent address", agentAddress); err != nil {
		return "", err
	}
	if strings.ContainsAny(agentAddress, "/?#@\\ ") {
		return "", fmt.Errorf("%w: agent address %.100q is more than HOST:PORT", lease.ErrInvalid, agentAddress)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body, err := json.Marshal(question{p, mac})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+agentAddress+"/failsafe", bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("%w: agent address %.100q", lease.ErrInvalid, agentAddress)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("shard: asking the agent at %s for a promise: %w", agentAddress, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, bodyLimit))
	if err != nil {
		return "", fmt.Errorf("shard: asking the agent at %s for a promise: %w", agentAddress, err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || res.StatusCode != http.StatusOK || a.MAC == "" {
		return "", fmt.Errorf("shard: the agent at %s gave no promise: %s: %.200q", agentAddress, res.Status, cmp.Or(a.Why, "no answer that can be read"))
	}
	return a.MAC, nil
}

// Close gives idle connections up.
func (c *Client) Close() { c.http.CloseIdleConnections() }
