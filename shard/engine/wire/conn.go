package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
	"github.com/understudy-ha/understudy/shard"
)

// DefaultTimeout of an exchange.
const DefaultTimeout = time.Second

// maxAttempts: the connection that was kept is closed, the next one was still accepted by
// a server that is ending, the third tells that nobody listens.
const maxAttempts = 3

// Config tells how to reach servers.
type Config struct {
	// Username and Password for AUTH; without a password none is sent.
	Username, Password string
	// TLS; nil is a plain connection. Without a ServerName it is the address's host.
	TLS *tls.Config
	// Timeout of an exchange, connecting included. Default 1 s.
	Timeout time.Duration
	// Dial replaces net.Dialer, in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a connection to one server, made when it is first needed. It is safe to use from
// several goroutines, which wait for each other.
type Conn struct {
	address string
	cfg     Config
	ended   context.Context
	end     context.CancelFunc
	turn    chan struct{} // held by whoever uses what follows
	nc      net.Conn
	buf     *bufio.Reader
}

// New returns a connection to address, which is not yet made.
func New(address string, cfg Config) *Conn {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	c := &Conn{address: address, cfg: cfg, turn: make(chan struct{}, 1)}
	c.ended, c.end = context.WithCancel(context.Background())
	return c
}

// Do sends the commands together and returns an answer to each.
func (c *Conn) Do(ctx context.Context, commands ...[]string) ([]Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, c.why(ctx, ctx.Err())
	}
	for attempt := 1; ; attempt++ {
		replies, heard, err := c.try(ctx, commands)
		if err == nil {
			return replies, nil
		}
		c.drop()
		if attempt == maxAttempts || heard || ctx.Err() != nil || !broken(err) {
			return nil, c.why(ctx, err)
		}
	}
}

// Close ends what is under way and gives the connection up. Later exchanges fail.
func (c *Conn) Close() error {
	c.end()
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.drop()
	return nil
}

func (c *Conn) drop() {
	if c.nc != nil {
		_ = c.nc.Close()
		c.nc, c.buf = nil, nil
	}
}

// try makes one attempt; heard tells that a byte of an answer came.
func (c *Conn) try(ctx context.Context, commands [][]string) (replies []Reply, heard bool, err error) {
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	if c.nc == nil {
		if err := c.connect(ctx); err != nil {
			return nil, false, err
		}
	}
	return c.exchange(ctx, commands)
}

func (c *Conn) exchange(ctx context.Context, commands [][]string) (replies []Reply, heard bool, err error) {
	nc := c.nc
	_ = nc.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	// One that is already setting the deadline would set it for the next exchange.
	defer func() {
		if !stop() && err == nil {
			c.drop()
		}
	}()
	var request []byte
	for _, command := range commands {
		request = resp.AppendCommand(request, command)
	}
	// An answer may be there although the request could not be written: a server that
	// turns us away says why, and closes.
	_, werr := nc.Write(request)
	r := resp.NewReplyReader(c.buf, limits)
	for range commands {
		reply, err := r.Reply()
		if err == nil {
			replies = append(replies, reply)
			err = werr
		}
		if err == nil {
			continue
		}
		if len(replies) > 0 && replies[0].Err() != nil && broken(err) {
			err = replies[0].Err()
		}
		return nil, r.Started(), err
	}
	return replies, true, nil
}

func (c *Conn) connect(ctx context.Context) error {
	nc, err := c.cfg.Dial(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	if c.cfg.TLS != nil {
		if nc, err = c.handshake(ctx, nc); err != nil {
			return err
		}
	}
	c.nc, c.buf = nc, bufio.NewReaderSize(nc, limits.Line)
	if c.cfg.Password == "" {
		return nil
	}
	auth := []string{"AUTH", c.cfg.Password}
	if c.cfg.Username != "" {
		auth = []string{"AUTH", c.cfg.Username, c.cfg.Password}
	}
	replies, _, err := c.exchange(ctx, [][]string{auth})
	if err != nil {
		return err
	}
	if err := replies[0].Err(); err != nil {
		return fmt.Errorf("%w: AUTH: %w", shard.ErrNodeAccess, err)
	}
	return nil
}

func (c *Conn) handshake(ctx context.Context, nc net.Conn) (net.Conn, error) {
	cfg := c.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(c.address)
	}
	t := tls.Client(nc, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		// Package tls has its alerts look like an operation of the network.
		op, network := errors.AsType[*net.OpError](err)
		network = network && (op.Op == "read" || op.Op == "write")
		if ctx.Err() != nil || broken(err) || network {
			return nil, err
		}
		return nil, fmt.Errorf("%w: TLS: %w", shard.ErrNodeAccess, err)
	}
	return t, nil
}

// broken tells that the other side closed the connection.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// why puts an error in the words of package shard.
func (c *Conn) why(ctx context.Context, err error) error {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case c.ended.Err() != nil:
		err = net.ErrClosed
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("%w: %w", shard.ErrNodeGone, err)
	case errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout():
		err = context.DeadlineExceeded
	}
	return fmt.Errorf("node %s: %w", c.address, err)
}
