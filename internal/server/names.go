package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/startlistener"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/resolve/dns"
	"github.com/understudy-ha/understudy/store"
)

// nameSockets are where names are asked for: one port, for UDP and TCP.
type nameSockets struct {
	packets  net.PacketConn
	listener net.Listener
}

func openNames(address string) (*nameSockets, error) {
	const tries = 20 // of a port that the system chooses for TCP, which may be taken for UDP
	_, port, _ := net.SplitHostPort(address)
	for try := 1; ; try++ {
		l, err := startlistener.Listen("dns", address)
		if err != nil {
			return nil, err
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return &nameSockets{p, l}, nil
		}
		_ = l.Close()
		if port != "0" || try == tries {
			return nil, fmt.Errorf("dns: %w", err)
		}
	}
}

func (n *nameSockets) close() {
	if n != nil {
		_ = n.listener.Close()
		_ = n.packets.Close()
	}
}

// where they are, for the log; "" is nowhere.
func (n *nameSockets) where() string {
	if n == nil {
		return ""
	}
	return n.listener.Addr().String()
}

// servedNames answers names over DNS.
type servedNames struct {
	resolver *resolve.Resolver
	server   *dns.Server
	at       *nameSockets
}

// serveNames makes it. Nothing runs yet. Without a configuration it is nil, which does
// nothing.
func serveNames(d *settings.DNS, at *nameSockets, log *slog.Logger, roles []string, st store.Store, k *lease.Keeper, shards *servedShards) (*servedNames, error) {
	if d == nil {
		return nil, nil
	}
	most := time.Duration(d.TTLMax)
	cfg := resolve.ResolverConfig{
		Store: st, Notifier: k.Notifier(), Roles: roles, MaxAge: most, Interval: min(k.Timing().Interval, most/2), Logger: log,
	}
	if shards != nil {
		cfg.Shards = shards.catalog
	}
	resolver, err := resolve.NewResolver(cfg)
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	out := &servedNames{resolver: resolver, at: at}
	out.server, err = dns.New(dns.Config{Source: resolver, Zone: d.Zone, Address: reachable(at.listener), Rate: d.Rate, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	return out, nil
}

// reachable is the address of a listener that others can ask for, the zero one if it listens on all.
func reachable(l net.Listener) netip.Addr {
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsUnspecified() {
		return at.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// setRoles tells which roles the file has now.
func (n *servedNames) setRoles(names []string) {
	if n != nil {
		n.resolver.SetRoles(names)
	}
}

func (n *servedNames) start(part func(string, func(context.Context) error)) {
	if n == nil {
		return
	}
	part("names", n.resolver.Run)
	part("dns", func(ctx context.Context) error {
		err := n.server.Serve(ctx, n.at.packets, n.at.listener)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	})
}

// counters for the metrics.
func (n *servedNames) counters() []api.Counter {
	if n == nil {
		return nil
	}
	s := n.server.Stats()
	const answers, help = "understudy_dns_answers_total", "Answers given over DNS, by outcome."
	by := func(outcome string, count uint64) api.Counter {
		return api.Counter{Name: answers, Help: help, Label: "outcome", Value: outcome, Count: count}
	}
	return []api.Counter{
		by("answered", s.Answered), by("unknown", s.Unknown), by("failed", s.Failed), by("refused", s.Refused),
		{Name: "understudy_dns_limited_total", Help: "DNS queries of sources that asked for more than the rate.", Count: s.Limited},
		{Name: "understudy_dns_overflow_total", Help: "DNS connections closed because there were too many.", Count: s.Overflow},
	}
}
