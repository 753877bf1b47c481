package server

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/shard/catalog"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/store"
)

// servedShards is what a server knows of shards, and who is told.
type servedShards struct {
	catalog  *catalog.Catalog
	sentinel *sentinel.Server // nil without one
	listener net.Listener
}

// serveShards makes it. Nothing runs yet. A store that keeps no shards gives nil.
func serveShards(log *slog.Logger, cfg *settings.Server, listener net.Listener, st store.Store) (*servedShards, error) {
	shards, err := instance.Shards(st)
	if err != nil {
		if cfg.Sentinel == nil {
			return nil, nil
		}
		return nil, err
	}
	out := &servedShards{}
	config := catalog.Config{Registry: shards.Registry(), Logger: log}
	if cfg.DNS != nil {
		config.Most = min(time.Duration(cfg.DNS.TTLMax), resolve.DefaultMaxAge)
	}
	if out.catalog, err = catalog.New(config); err != nil {
		return nil, err
	}
	if c := cfg.Sentinel; c != nil {
		out.listener = listener
		if out.sentinel, err = sentinel.New(sentinel.Config{Where: out.catalog, Password: c.Secret(), Logger: log}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *servedShards) start(part func(string, func(context.Context) error)) {
	if s == nil {
		return
	}
	part("shards", s.catalog.Run)
	if s.sentinel != nil {
		part("sentinel", func(ctx context.Context) error { return s.sentinel.Serve(ctx, s.listener) })
	}
}
