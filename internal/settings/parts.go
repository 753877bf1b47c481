package settings

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
)

// Part is a part that would run, and how long its work rests at worst.
type Part struct {
	Part string `json:"part"`
	Name string `json:"name"`
	// WorstMS is the takeover at worst, in milliseconds: of several bounds the longest.
	WorstMS int64 `json:"worst_ms"`
	// Means says when that is.
	Means string `json:"means"`
}

func partOf(part, name string, worst time.Duration, format string, args ...any) Part {
	return Part{part, name, worst.Milliseconds(), fmt.Sprintf(format, args...)}
}

// silentSlack is what a silent host costs besides T + I: to knock once more, and the wait for
// the fence of a host that cannot be asked. See docs/shard.md.
const silentSlack = 2500 * time.Millisecond

// Parts are what the server would run, in the file's order.
func (c *Server) Parts() []Part {
	var out []Part
	t := c.Timing()
	for _, r := range c.Roles {
		out = append(out, partOf("role", r.Role, t.WorstTakeover(), "T + I: timeout %s, interval %s", termtext.Duration(t.Timeout), termtext.Duration(t.Interval)))
	}
	for _, j := range c.Jobs {
		out = append(out, partOf("job", j.Job, t.WorstTakeover(), "T + I, of a run that is due or repeated"))
	}
	for i := range c.Queues {
		out = append(out, c.Queues[i].part("queue", c.Queues[i].Queue))
	}
	if m := c.Monitor; m != nil {
		idle, _ := m.Windows().WorstTakeover()
		out = append(out, partOf("monitor", "sources", idle, "first window %s, and a look", termtext.Duration(m.Windows().First)))
		out = append(out, partOf("monitor", "configuration", t.WorstTakeover(), "T + I, of the role %q", ActiveRole))
		for i := range m.Sinks {
			out = append(out, m.Sinks[i].Queue().part("sink", m.Sinks[i].Sink))
		}
	}
	if c.Cache != nil {
		p := c.Cache.timings().WithDefaults()
		out = append(out, partOf("cache", c.Cache.URL, p.AnnounceTimeout, "a fetch of a peer that hangs: announce timeout; one whose process ends is taken over at once"))
	}
	for i := range c.Shards {
		s := &c.Shards[i]
		t := lease.Timing{Interval: s.Interval, Timeout: s.Timeout}.WithDefaults()
		out = append(out, partOf("shard", s.Shard+" at "+s.Node, t.WorstTakeover()+silentSlack,
			"a host that falls silent: T + I + 2.5s; a process that dies: 0.3s, 2s more if an agent has died as well"))
	}
	if c.Sentinel != nil {
		out = append(out, partOf("sentinel", c.Sentinel.Listen, 0, "each server answers by itself"))
	}
	if c.DNS != nil {
		out = append(out, partOf("dns", c.DNS.Zone+" at "+c.DNS.Listen, 0, "each server answers by itself; an answer is believed for %s at most", termtext.Duration(c.DNS.TTLMax)))
	}
	for _, h := range c.Hooks {
		out = append(out, h.part(t))
	}
	return out
}

func (q *Queue) part(part, name string) Part {
	idle, submitting := q.Windows().WorstTakeover()
	return partOf(part, name, submitting, "a key with a submission under way; %s without: first window %s, second %s, and a look",
		termtext.Duration(idle), termtext.Duration(q.Windows().First), termtext.Duration(q.Windows().Second))
}

func (h Hook) part(t lease.Timing) Part {
	name := filepath.Base(h.Command[0])
	if h.OnlyPrimaryOf == "" {
		return partOf("hook", name, 0, "each server runs it by itself")
	}
	return partOf("hook", name, t.WorstTakeover(), "with the role %q", h.OnlyPrimaryOf)
}
