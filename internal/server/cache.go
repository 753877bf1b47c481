package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/disk"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/settings"
)

// servedCache is a peer, ready to run.
type servedCache struct {
	*cache.Peer
	storage *disk.Storage // nil without one
}

// newCache makes the peer of a configuration. Nothing runs yet.
func newCache(log *slog.Logger, c *settings.Cache) (out *servedCache, err error) {
	cfg, err := c.Peer(log)
	if err != nil {
		return nil, err
	}
	out = &servedCache{}
	if c.Data != "" {
		if out.storage, err = disk.Open(c.Data, log); err != nil {
			return nil, err
		}
		cfg.Storage = out.storage
	}
	if out.Peer, err = cache.New(cfg); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

// run serves until ctx ends; then the storage is closed.
func (s *servedCache) run(ctx context.Context) error {
	defer s.close()
	return s.Run(ctx)
}

// start runs it as a part of a server, and waits until it is ready or ctx ends: it could
// not start, or is to stop already. nil is no peer.
func (s *servedCache) start(ctx context.Context, part func(string, func(context.Context) error)) {
	if s == nil {
		return
	}
	part("cache", s.run)
	select {
	case <-s.Ready():
	case <-ctx.Done():
	}
}

func (s *servedCache) close() {
	if s.storage != nil {
		_ = s.storage.Close()
	}
}

// RepairCache repairs the file in the data folder of a peer: see [disk.Repair].
func RepairCache(ctx context.Context, dir string) (disk.Repaired, error) {
	return disk.Repair(ctx, dir)
}

// RunCache runs a peer, and HTTP if http says where, until ctx ends. It needs no store. With byDefault, nobody asked for
// HTTP at that address: the peer runs without it if the address is taken, as by another peer on this host.
func RunCache(ctx context.Context, h *instance.Host, c *settings.Cache, http *settings.Server, byDefault bool) error {
	var front *entrance
	if http.Listen != "" {
		var err error
		front, err = openEntrance(http, "the peer is loading what it has stored", h.Log)
		switch {
		case byDefault && errors.Is(err, syscall.EADDRINUSE):
			h.Log.Warn("no HTTP: the default address is taken; give another one with --http", "address", http.Listen)
		case err != nil:
			return err
		default:
			defer front.Close(ctx)
		}
	}
	peer, err := newCache(h.Log, c)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- peer.run(running) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop()
		return <-ended
	case <-peer.Ready():
	}
	url, shut, closed := "", func() {}, (<-chan struct{})(nil)
	if front != nil {
		server, err := api.NewCache(api.Config{
			Cache: peer.Peer, CacheType: c.ContentType, Token: http.Token, Listen: front.Addr, Version: h.Version, Logger: h.Log,
		})
		if err != nil {
			stop()
			return errors.Join(err, <-ended)
		}
		front.Lead(server.Handler())
		url, closed = http.Scheme()+"://"+front.Addr, front.Done
		shut = func() { server.Close(); front.Close(ctx) }
	}
	tellServing(h.Log, c, url)
	sdnotify.Ready()
	select {
	case err := <-ended:
		shut()
		return err
	case <-closed:
		err = fmt.Errorf("http: %w", front.Err)
	case <-ctx.Done():
	}
	sdnotify.Stopping()
	shut() // who waits is answered before the peer goes
	stop()
	return errors.Join(err, <-ended)
}

// tellServing says where to look, and how long a takeover takes at worst. The peer
// itself has said where it listens.
func tellServing(log *slog.Logger, c *settings.Cache, http string) {
	if http != "" {
		log.Info("serving HTTP", "url", http)
	}
	if c.Exec == nil && c.Origin == nil {
		return // a passive peer says so itself
	}
	log.Info("a fetch is taken over at once when its process ends, else after its last announcement", "within", time.Duration(c.AnnounceTimeout))
}
