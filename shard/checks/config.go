package checks

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Agent is an agent of package shard/agent, as far as it is asked here.
type Agent interface {
	Status() shard.Status
	GrantPromise(p shard.Promise, mac string) (answer string, err error)
}

// Config of a handler.
type Config struct {
	// Agent that answers. Required.
	Agent Agent
	// Version of the agent's program, for GET /patroni.
	Version string
	// Metrics serves /metrics; nil: no metrics.
	Metrics http.Handler
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c Config) Validate() error {
	if c.Agent == nil {
		return fmt.Errorf("%w: checks need an agent", lease.ErrInvalid)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
