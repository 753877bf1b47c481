package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// Page is a server that looks on, in the process of someone who needs its store, too.
type Page struct {
	host *instance.Host
	cfg  *settings.Server
	at   *entrance
}

// OpenPage listens for one with the settings of a file's text. It answers from now on, and has something to say
// from Serve on.
func OpenPage(text []byte, h *instance.Host) (*Page, error) {
	cfg := &settings.Server{}
	if err := settings.Parse(text, cfg); err != nil {
		return nil, err
	}
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	at, err := openEntrance(cfg, "the store has not been reached yet", h.Log)
	if err != nil {
		return nil, fmt.Errorf("%w; another address can be chosen with --listen", err)
	}
	on := *h
	on.Connections = cfg.Connections()
	return &Page{host: &on, cfg: cfg, at: at}, nil
}

// Addr is where it listens, HOST:PORT.
func (p *Page) Addr() string { return p.at.Addr }

// Open opens its store. Who called closes it.
func (p *Page) Open(ctx context.Context) (store.Store, error) {
	return p.host.Open(ctx, instance.Opening{})
}

// Serve serves the store until ctx ends, and acts at /v1/demo.
func (p *Page) Serve(ctx context.Context, st store.Store, acts http.Handler) error {
	p.at.demo = acts
	return p.host.WithKeeper(ctx, st, p.cfg.Instance(), func(ctx context.Context, k *lease.Keeper) error {
		return serveOn(ctx, p.host, p.cfg, p.at, st, k, nil)
	})
}

// Close lets go of the address.
func (p *Page) Close(ctx context.Context) { p.at.closeAll(ctx) }
