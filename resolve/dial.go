package resolve

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// dialTimeout bounds a dial whose context has no deadline.
const dialTimeout = 10 * time.Second

// SplitAddress reads an address as holders tell it: HOST:PORT, HOST, or a URL. port is "" when
// none is told. ok is false for what is none of these.
func SplitAddress(address string) (host, port string, ok bool) {
	if u, err := url.Parse(address); err == nil && u.Scheme != "" && u.Host != "" {
		port = u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443", "redis": "6379", "postgres": "5432", "postgresql": "5432"}[u.Scheme]
		}
		return u.Hostname(), port, u.Hostname() != ""
	}
	if h, p, err := net.SplitHostPort(address); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		return h, p, h != "" && err == nil && n > 0
	}
	if ip := net.ParseIP(address); ip != nil {
		return address, "", true
	}
	for _, c := range address {
		if c == '/' || c == ':' || c == '[' || c == ']' || c <= ' ' {
			return "", "", false
		}
	}
	return address, "", address != ""
}

// Dialer opens connections to the first holder of a name. It belongs to one client.
type Dialer struct {
	client *Client
	name   string
	dialer net.Dialer

	mu       sync.Mutex
	conns    map[*conn]struct{}
	watching bool
}

// Dialer makes one for a name. Errors wrap lease.ErrInvalid.
func (c *Client) Dialer(name string) (*Dialer, error) {
	n, err := ParseName(name)
	if err != nil {
		return nil, err
	}
	return &Dialer{client: c, name: n.String(), conns: map[*conn]struct{}{}}, nil
}

// DialContext dials the present holder of the name; with several the first that can be
// reached, each of them having its part of the time that is left (10 s if ctx has no deadline). The host in address is not looked at, its port only where the holder tells none: so
// it fits http.Transport and others that dial. The connection is closed when someone
// else stands behind the name, or the same under another term; while no server can
// say who does, it is left alone.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	a, err := d.client.Lookup(ctx, d.name)
	if err != nil {
		return nil, err
	}
	var failed error
	for i, h := range a.Holders {
		raw, err := d.dial(ctx, network, h, address, len(a.Holders)-i)
		if err != nil {
			failed = err
			continue
		}
		return d.track(raw, h), nil
	}
	return nil, fmt.Errorf("resolve: %s: %w", d.name, failed)
}

// dial tries one of so many holders that are left, for its part of the time: one whose host is silent must leave some
// to the others.
func (d *Dialer) dial(ctx context.Context, network string, h Holder, address string, left int) (net.Conn, error) {
	until, _ := ctx.Deadline() // DialContext has seen to it
	ctx, cancel := context.WithTimeout(ctx, time.Until(until)/time.Duration(left))
	defer cancel()
	host, port, ok := SplitAddress(h.Address)
	if _, asked, err := net.SplitHostPort(address); err == nil {
		port = cmp.Or(port, asked)
	}
	if !ok || port == "" {
		return nil, fmt.Errorf("%w: %s announces the address %q, which is not a valid HOST:PORT", lease.ErrInvalid, cmp.Or(h.Name, h.ID), h.Address)
	}
	return d.dialer.DialContext(ctx, network, net.JoinHostPort(host, port))
}

// conn is a connection that is closed once its peer no longer holds the name.
type conn struct {
	net.Conn
	of *Dialer
	to Holder
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is the connection itself.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (d *Dialer) track(raw net.Conn, to Holder) net.Conn {
	c := &conn{raw, d, to}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	if !d.watching {
		d.watching = true
		go d.watch()
	}
	return c
}

// watch runs as long as there are connections.
func (d *Dialer) watch() {
	ctx := context.Background()
	n, _ := ParseName(d.name)
	for {
		lease.Sleep(ctx, d.client.cfg.Clock, d.client.nextInterval())
		d.mu.Lock()
		if len(d.conns) == 0 {
			d.watching = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		if a, err := d.client.lookup(ctx, n, true); err == nil {
			d.closeStale(a)
		}
	}
}

// closeStale closes the connections to former holders of the name. A name without a holder closes all: the last holder has
// stopped, and must not get requests meant for its successor.
func (d *Dialer) closeStale(a Answer) {
	behind := map[Holder]bool{}
	for _, h := range a.Holders {
		behind[h] = true
	}
	d.mu.Lock()
	var over []*conn
	for c := range d.conns {
		if !behind[c.to] {
			over = append(over, c)
		}
	}
	d.mu.Unlock()
	for _, c := range over {
		_ = c.Close()
	}
}

// Close closes all connections. The dialer can be used again.
func (d *Dialer) Close() error {
	d.closeStale(Answer{})
	return nil
}
