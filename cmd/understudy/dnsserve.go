package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/resolve/dns"
	"github.com/understudy-ha/understudy/store"
)

// defaultDNS is where names are answered when nothing else is said.
const defaultDNS = "127.0.0.1:7653"

// dnsConfig is the endpoint of a server that answers names over DNS.
type dnsConfig struct {
	// Listen is its address, HOST:PORT, for UDP and TCP. Default 127.0.0.1:7653.
	Listen string `yaml:"listen"`
	// Zone that it answers for. Default understudy.internal.
	Zone string `yaml:"zone"`
	// TTLMax is how long an answer may be believed at most. Default 5s.
	TTLMax duration `yaml:"ttl_max"`
	// Rate is how many answers a second one source gets that is not on this host. Default 200;
	// -1 is no limit.
	Rate int `yaml:"rate"`

	packets  net.PacketConn
	listener net.Listener
}

// complete fills the defaults, and checks.
func (d *dnsConfig) complete() error {
	d.Listen = cmp.Or(d.Listen, defaultDNS)
	d.Zone = cmp.Or(d.Zone, dns.DefaultZone)
	d.TTLMax = cmp.Or(d.TTLMax, duration(resolve.DefaultMost))
	d.Rate = cmp.Or(d.Rate, dns.DefaultRate)
	if _, _, err := net.SplitHostPort(d.Listen); err != nil {
		return usagef("listen %q: use HOST:PORT, as in %s", d.Listen, defaultDNS)
	}
	if err := dns.CheckZone(d.Zone); err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	if t := time.Duration(d.TTLMax); t < time.Second || t > time.Hour {
		return usagef("ttl_max is %v; use 1s to 1h", t)
	}
	if d.Rate < -1 {
		return usagef("rate is %d; use 1 or more answers a second, or -1 for no limit", d.Rate)
	}
	return nil
}

// open listens. There is nothing to open without a configuration.
func (d *dnsConfig) open() error {
	if d == nil {
		return nil
	}
	const tries = 20 // of a port that the system chooses for TCP, which may be taken for UDP
	_, port, _ := net.SplitHostPort(d.Listen)
	for try := 1; ; try++ {
		l, err := listenOn("dns", d.Listen)
		if err != nil {
			return err
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			d.listener, d.packets = l, p
			return nil
		}
		_ = l.Close()
		if port != "0" || try == tries {
			return fmt.Errorf("dns: %w", err)
		}
	}
}

func (d *dnsConfig) close() {
	if d != nil && d.listener != nil {
		_ = d.listener.Close()
		_ = d.packets.Close()
	}
}

// where it listens, for the log; "" is nowhere.
func (d *dnsConfig) where() string {
	if d == nil || d.listener == nil {
		return ""
	}
	return d.listener.Addr().String()
}

// servedNames answers names over DNS.
type servedNames struct {
	book   *resolve.Book
	server *dns.Server
	at     *dnsConfig
}

// serveNames makes it. Nothing runs yet. Without a configuration it is nil, which does
// nothing.
func (a *app) serveNames(d *dnsConfig, roles []string, st store.Store, k *lease.Keeper, shards *servedShards) (*servedNames, error) {
	if d == nil {
		return nil, nil
	}
	most := time.Duration(d.TTLMax)
	cfg := resolve.BookConfig{
		Store: st, Hub: k.Hub(), Roles: roles, Most: most, Interval: min(k.Timing().Interval, most/2), Logger: a.log,
	}
	if shards != nil {
		cfg.Shards = shards.dir
	}
	book, err := resolve.NewBook(cfg)
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	out := &servedNames{book: book, at: d}
	out.server, err = dns.New(dns.Config{Source: book, Zone: d.Zone, Address: reachable(d.listener), Rate: d.Rate, Logger: a.log})
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

func (n *servedNames) start(part func(string, func(context.Context) error)) {
	if n == nil {
		return
	}
	part("names", n.book.Run)
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
