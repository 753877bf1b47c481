package sabledb

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
	"github.com/understudy-ha/understudy/lease"
)

var replyLimits = resp.ReplyLimits{Line: 64 << 10, Bulk: 64 << 20, Items: 1 << 20, Depth: 4, Total: 128 << 20}

// conn is a connection. It is for one goroutine.
type conn struct {
	net.Conn
	in *bufio.Reader
}

// dial connects to the server.
func (s *Store) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := &net.Dialer{}
	connect := d.DialContext
	if s.target.tls != nil {
		connect = (&tls.Dialer{NetDialer: d, Config: s.target.tls}).DialContext
	}
	nc, err := connect(ctx, "tcp", s.target.address)
	if err != nil {
		return nil, err
	}
	return &conn{nc, bufio.NewReader(nc)}, nil
}

// do sends commands together and returns an answer to each. An answer that is an error is one.
func (c *conn) do(ctx context.Context, commands ...[]string) ([]resp.Reply, error) {
	all, err := c.exchange(ctx, commands)
	for i := range all {
		if err := all[i].Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", commands[i][0], err)
		}
	}
	return all, err
}

// exchange sends commands together and returns an answer to each.
func (c *conn) exchange(ctx context.Context, commands [][]string) ([]resp.Reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var request []byte
	for _, words := range commands {
		request = resp.AppendCommand(request, words)
	}
	if _, err := c.Write(request); err != nil {
		return nil, cause(ctx, err)
	}
	r, all := resp.NewReplyReader(c.in, replyLimits), make([]resp.Reply, len(commands))
	for i := range commands {
		var err error
		if all[i], err = r.Reply(); err != nil {
			return nil, cause(ctx, err)
		}
	}
	return all, nil
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// failure turns an error of a connection into one of the port's. sent tells that a change may have been carried out.
func failure(err error, sent bool) error {
	if answer, ok := errors.AsType[resp.ServerError](err); ok {
		switch {
		case answer.Code() == "READONLY":
			err = fmt.Errorf("the server is a replica, name its primary: %w", err)
		case strings.Contains(string(answer), "AGAIN"):
			err = fmt.Errorf("another client holds the store's lock, and may hang: %w", err)
		case strings.Contains(strings.ToLower(string(answer)), "unknown command"):
			err = fmt.Errorf("it is not a SableDB, use redis://HOST:PORT: %w", err)
		}
	}
	if sent {
		return fmt.Errorf("%w: %w", lease.ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}
