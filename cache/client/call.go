package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// call is one request, tried at one server after the other. It is used again for
// other requests.
type call struct {
	request wire.Request
	enc     wire.Encoder
	id      uint32 // of this try
	idText  []byte
	key     []byte
	timer   *time.Timer

	alive atomic.Int64  // when the last keep-alive came, since the client's epoch; 0: none did
	done  chan struct{} // one for every try that left the pending ones by itself
	reply reply         // written before done, read after it
}

// reply is what a try came to. Nothing of it is part of a connection's buffer.
type reply struct {
	wire.Reply
	lost error // the connection broke
}

func newCall() any {
	c := &call{timer: time.NewTimer(time.Hour), done: make(chan struct{}, 1)}
	c.timer.Stop()
	return c
}

// frames are the bytes of this try, valid until the next.
func (c *call) frames() zmtp.Message {
	c.idText = wire.AppendID(c.idText[:0], c.id)
	c.request.ID = c.idText
	return c.enc.Request(&c.request)
}

// finish hands the outcome to whoever waits. It is called once for a try, by who took
// it from the pending ones.
func (c *call) finish(r reply) {
	c.reply = r
	c.done <- struct{}{}
}

// verdict is how waiting for a try ended.
type verdict int

const (
	replied verdict = iota
	silent          // nothing came in time: another server
	expired         // no time is left
	stopped         // the context was cancelled
)

// wait returns when the try has an outcome, or will have none in time. Keep-alives
// move the time until which a server may be silent, and never the deadline.
func (c *call) wait(ctx context.Context, cl *Client, deadline time.Duration) verdict {
	limit := cl.now() + cl.cfg.rules.first
	for {
		c.timer.Reset(min(limit, deadline) - cl.now())
		select {
		case <-c.done:
			c.timer.Stop()
			return replied
		case <-ctx.Done():
			c.timer.Stop()
			return stopped
		case <-c.timer.C:
		}
		now := cl.now()
		if now >= deadline {
			return expired
		}
		if at := time.Duration(c.alive.Load()); at > 0 {
			limit = at + cl.cfg.rules.alive
		}
		if now >= limit {
			return silent
		}
	}
}
