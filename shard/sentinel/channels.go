package sentinel

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/internal/glob"
	"github.com/understudy-ha/understudy/internal/resp"
)

// list of subscriptions that a command is about, with the lock held.
func (c *conn) list(kind string) *[]string {
	if kind[0] == 'p' {
		return &c.patterns
	}
	return &c.channels
}

// subscribe also tells of what has happened since the client asked: some ask for the address, then subscribe, and
// would miss for ever a switch in between. One that has not asked is not told: ioredis drops its
// connection to the primary at every such message, and subscribes again.
func (c *conn) subscribe(_ context.Context, args []string) {
	kind := strings.ToLower(args[0])
	fresh := !c.isSubscribedTo(switchMaster)
	defer func() {
		if fresh && c.isSubscribedTo(switchMaster) {
			for _, m := range c.srv.since(c.asked) {
				c.queueMessage(m)
			}
		}
	}()
	c.answer(func(w *resp.Writer) {
		list := c.list(kind)
		for _, name := range args[1:] {
			if !slices.Contains(*list, name) {
				if len(name) > maxChannel {
					w.Error("ERR the name of a channel is too long")
					continue
				}
				if len(c.channels)+len(c.patterns) >= maxSubscriptions {
					w.Error("ERR too many subscriptions of one connection")
					continue
				}
				*list = append(*list, name)
			}
			c.confirm(w, kind, name)
		}
	})
}

func (c *conn) unsubscribe(_ context.Context, args []string) {
	kind := strings.ToLower(args[0])
	c.answer(func(w *resp.Writer) {
		list := c.list(strings.TrimPrefix(kind, "un"))
		names := args[1:]
		if len(names) == 0 {
			names = slices.Clone(*list)
		}
		for _, name := range names {
			*list = slices.DeleteFunc(*list, func(s string) bool { return s == name })
			c.confirm(w, kind, name)
		}
		if len(names) == 0 {
			w.Push(3)
			w.Bulk(kind)
			w.Null()
			w.Int(int64(len(c.channels) + len(c.patterns)))
		}
	})
}

func (c *conn) confirm(w *resp.Writer, kind, name string) {
	w.Push(3)
	w.Bulk(kind)
	w.Bulk(name)
	w.Int(int64(len(c.channels) + len(c.patterns)))
}

// hears reports whether messages of a channel are subscribed to.
func (c *conn) isSubscribedTo(channel string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.channels, channel) || slices.ContainsFunc(c.patterns, func(p string) bool { return glob.MatchRedis(p, channel) })
}
