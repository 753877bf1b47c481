package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/startlistener"
)

// entrance is all that a server listens on: opened before the store is reached.
type entrance struct {
	*startlistener.Door                     // of the page and the API
	cert                *certificate        // nil without TLS
	sentinel            net.Listener        // for Sentinel clients; nil without
	sockets             *nameSockets        // for DNS; nil without
	beside              []*shardagent.Flags // agents, which listen already
	demo                http.Handler        // of the demonstration whose page this is; nil in a server
}

// openEntrance listens for all that the configuration names; waits is what is answered until the
// store is there.
func openEntrance(cfg *settings.Server, waits string, log *slog.Logger) (_ *entrance, err error) {
	e := &entrance{}
	if cfg.TLSCert != "" {
		if e.cert, err = openCertificate(cfg.TLSCert, cfg.TLSKey, log); err != nil {
			return nil, err
		}
		if e.cert.clients, err = cfg.ClientCAs(); err != nil {
			return nil, err
		}
	}
	l, err := listen(cfg, e.cert)
	if err != nil {
		return nil, err
	}
	e.Door = startlistener.Open(l, log, waits)
	if err := e.openRest(cfg, log); err != nil {
		e.closeAll(context.Background())
		return nil, err
	}
	return e, nil
}

func (e *entrance) openRest(cfg *settings.Server, log *slog.Logger) (err error) {
	if c := cfg.Sentinel; c != nil {
		if e.sentinel, err = startlistener.Listen("sentinel", c.Listen); err != nil {
			return err
		}
	}
	if cfg.DNS != nil {
		if e.sockets, err = openNames(cfg.DNS.Listen); err != nil {
			return err
		}
	}
	for i := range cfg.Shards {
		c := &cfg.Shards[i]
		f, err := c.Agent(log)
		if err == nil {
			err = settings.AsKeys(f.Listen(log))
		}
		if err != nil {
			return fmt.Errorf("shard %q: %w", c.Shard, err)
		}
		e.beside = append(e.beside, f)
	}
	return nil
}

// closeAll lets go of everything.
func (e *entrance) closeAll(ctx context.Context) {
	for _, f := range e.beside {
		f.Close(ctx)
	}
	e.sockets.close()
	if e.sentinel != nil {
		_ = e.sentinel.Close()
	}
	e.Door.Close(ctx)
}

// sentinelAt is where Sentinel clients are answered, for the log; "" is nowhere.
func (e *entrance) sentinelAt() string {
	if e.sentinel == nil {
		return ""
	}
	return e.sentinel.Addr().String()
}

// listen refuses what is not safe to listen on.
func listen(cfg *settings.Server, cert *certificate) (net.Listener, error) {
	if err := cfg.CheckListen(); err != nil {
		return nil, err
	}
	l, err := startlistener.Listen("listen", cfg.Listen)
	if err != nil {
		return nil, err
	}
	if cert != nil {
		l = tls.NewListener(l, cert.config())
	}
	return l, nil
}
