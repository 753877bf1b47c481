package proxy

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
)

// Route is where connections lead.
type Route string

// Routes.
const (
	Primary  Route = "primary"
	Replicas Route = "replicas"
)

// Config of a proxy.
type Config struct {
	// Where the nodes are. Required.
	Where catalog.Views
	// Shard that it leads to. Required.
	Shard string
	// Route is Primary by default.
	Route Route
	// MaxConns is how many clients may be connected at once. Default 1000.
	MaxConns int
	// Wait is how long a client waits while nobody can be connected to. Default 10 s.
	Wait time.Duration
	// DialTimeout of one attempt to connect to a node. Default 2 s.
	DialTimeout time.Duration
	// Drain is how long connections may continue after Serve's context ended. Default 0: they
	// are closed at once.
	Drain time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c Config) Validate() error {
	switch {
	case c.Where == nil:
		return fmt.Errorf("%w: a proxy needs to know where the shards are", lease.ErrInvalid)
	case c.Route != "" && c.Route != Primary && c.Route != Replicas:
		return fmt.Errorf("%w: a proxy's route is %q or %q, not %.40q", lease.ErrInvalid, Primary, Replicas, c.Route)
	case c.MaxConns < 0 || c.Wait < 0 || c.DialTimeout < 0 || c.Drain < 0:
		return fmt.Errorf("%w: limits of a proxy cannot be negative", lease.ErrInvalid)
	}
	return shard.ValidateName(c.Shard)
}

func (c Config) withDefaults() Config {
	c.Route = cmp.Or(c.Route, Primary)
	c.MaxConns = cmp.Or(c.MaxConns, 1000)
	c.Wait = cmp.Or(c.Wait, 10*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 2*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
