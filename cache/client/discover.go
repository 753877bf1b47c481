package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
)

// discover asks who else there is, until Close.
func (c *Client) discover() {
	for {
		err := c.askServers()
		if c.ctx.Err() != nil {
			return
		}
		if err != nil {
			c.cfg.Log.Debug("client: the servers were not discovered", "err", err)
		} else if c.cfg.Discover < 0 {
			return
		}
		// Up to a tenth later, so that clients that start together drift apart.
		wait := max(c.cfg.Discover, minDiscover)
		timer := time.NewTimer(wait + rand.N(wait/10))
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (c *Client) askServers() error {
	call := c.calls.Get().(*call)
	defer c.recycle(call)
	call.request = wire.Request{Op: wire.OpDiscover, Extended: true}
	r, err := c.do(c.ctx, call, c.cfg.Timeout)
	if err != nil {
		return err
	}
	if r.Kind != wire.ReplyServers {
		return errors.New("client: a server answered with something else than a list")
	}
	if err := c.checkList(r.Servers); err != nil {
		c.counts.badLists.Add(1)
		return err
	}
	c.counts.lists.Add(1)
	return c.adopt(r.Servers)
}

// checkList refuses a list that nobody should follow.
func (c *Client) checkList(list []string) error {
	if len(list) == 0 || len(list) > maxServers {
		return fmt.Errorf("client: a list of %d servers was ignored; 1 to %d are allowed", len(list), maxServers)
	}
	known := false
	for _, addr := range list {
		if err := checkAddr(addr); err != nil {
			return fmt.Errorf("client: a list of servers was ignored: %w", err)
		}
		known = known || slices.Contains(c.cfg.Servers, addr)
	}
	if !known {
		return fmt.Errorf("client: a list of servers was ignored: none of the %d is in the configuration", len(list))
	}
	return nil
}

// adopt follows a list: it adds, removes what was added before, and makes what is
// configured and not in it spare.
func (c *Client) adopt(list []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	var keep, gone []*server
	for _, s := range *c.servers.Load() {
		listed := slices.Contains(list, s.addr)
		if !listed && !s.configured {
			gone = append(gone, s)
			continue
		}
		s.spare.Store(!listed)
		keep = append(keep, s)
	}
	var failed error
	for _, addr := range list {
		if slices.ContainsFunc(keep, func(s *server) bool { return s.addr == addr }) {
			continue
		}
		s := c.newServer(addr, false)
		if err := s.open(); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		keep = append(keep, s)
	}
	c.servers.Store(&keep)
	for _, s := range gone {
		s.close(errGone)
	}
	return failed
}

var errGone = errors.New("client: the server is in the list no more")
