package settings

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// Shown is the configuration as a file would have it, without secrets.
func (c *Server) Shown() *yaml.Node { return strict.Render(reflect.ValueOf(c).Elem(), "", strict.Hide) }

// Fill says what is otherwise left to the parts: their defaults.
func (c *Server) Fill(storeURL string) (err error) {
	if c.StoreFile != "" {
		c.Store = ""
	} else if c.Store == "" {
		if c.Store = storeURL; storeURL == "" {
			if c.Store, err = open.DefaultURL(); err != nil {
				return err
			}
		}
	}
	if c.TokenFile != "" {
		c.Token = ""
	}
	fillTiming(&c.Interval, &c.Timeout, c.Timing())
	orDefault(&c.LogLevel, "info")
	orDefault(&c.LogFormat, "text")
	for i := range c.Roles {
		orDefault(&c.Roles[i].Holders, 1)
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		q.FirstWindow, q.SecondWindow = strict.Duration(q.Windows().First), strict.Duration(q.Windows().Second)
		orDefault(&q.SubmitTimeout, strict.Duration(q.Deadline()))
	}
	if m := c.Monitor; m != nil {
		m.FirstWindow = strict.Duration(m.Windows().First)
		for i := range m.Sinks {
			q := m.Sinks[i].Queue()
			m.Sinks[i].FirstWindow, m.Sinks[i].SecondWindow, m.Sinks[i].SubmitTimeout = q.FirstWindow, q.SecondWindow, q.SubmitTimeout
		}
	}
	if c.Cache != nil {
		t := c.cacheTimings()
		c.Cache.TTL, c.Cache.FetchTimeout, c.Cache.AnnounceTimeout = strict.Duration(t.TTL), strict.Duration(t.Fetch), strict.Duration(t.Source)
	}
	for i := range c.Shards {
		s := &c.Shards[i]
		fillTiming(&s.Interval, &s.Timeout, s.timing())
	}
	return nil
}

func (c *Server) cacheTimings() protocol.Timings { return c.Cache.timings().WithDefaults() }

func fillTiming(interval, timeout *strict.Duration, t lease.Timing) {
	*interval, *timeout = strict.Duration(t.Interval), strict.Duration(t.Timeout)
}

func orDefault[T comparable](v *T, to T) {
	var none T
	if *v == none {
		*v = to
	}
}
