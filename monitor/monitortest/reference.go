package monitortest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

var _ monitor.Table = (*Reference)(nil)

// Options of a [Reference]. All may be left out.
type Options struct {
	// Clock is the store's wall clock, which may be stepped; nil is time.Now.
	Clock func() time.Time
	// Sessions tells who lives, for members; nil: everybody does.
	Sessions lease.Roster
	// History gets the events; nil: they are dropped.
	History history.Log
}

// Reference is a [monitor.Table] in memory, with queues that nobody delivers.
type Reference struct {
	o Options

	mu     sync.Mutex
	last   monitor.Moment // the latest that was told
	ahead  monitor.Moment // by how much moments are ahead of the wall clock
	proven monitor.Moment // when any path was

	lastID     int64
	generation int64
	events     map[string]*event
	sources    map[int64]*source
	names      map[monitor.Ref]*source
	paths      map[string]*path
	alarms     map[string]*alarm
	sinks      map[string]bool
	members    map[string]monitor.Member
	sent       []monitor.Notice
	told       map[[2]string]bool // sink and id

	configured time.Time
	origin     string
	refused    string
}

// event is an event name. Its Paused is the one in force; configured is the event as
// it was configured.
type event struct {
	monitor.Expected
	configured monitor.Event
	base       monitor.Moment
	again      map[int64]bool // sources that Sweep has still to look at
}

type path struct {
	monitor.Path
	skipped bool // the clock has skipped since its proof: that was blind, whatever its gap
	dropped bool
}

type alarm struct {
	monitor.Alarm
	onset monitor.Moment
	over  monitor.Moment // when it ended, 0 while it stands
	held  bool
	group *alarm // that it was reported with
}

type source struct {
	id       int64
	event    *event
	name     string
	labels   map[string]string
	declared bool
	rev      int64
	state    monitor.State
	due      monitor.Moment
	base     monitor.Moment
	until    monitor.Moment
	ended    monitor.Moment
	asked    bool
	note     string
	alarm    *alarm // that stands
	well     monitor.Moment
	onsets   []monitor.Moment
	beat
}

// beat is what the last one left.
type beat struct {
	stamp   int64
	at      monitor.Moment
	blind   time.Duration // of its path, by then
	path    *path
	sent    time.Time
	seq     int64
	failing bool
	code    int
	run     monitor.Moment
	beats   int64
	slot    int64
	recent  uint64 // of the slot, and of those before it in the higher bits
}

// NewReference returns an empty table.
func NewReference(o Options) *Reference {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Reference{
		o: o, generation: 1,
		events: map[string]*event{}, sources: map[int64]*source{}, names: map[monitor.Ref]*source{},
		paths: map[string]*path{}, alarms: map[string]*alarm{}, sinks: map[string]bool{},
		members: map[string]monitor.Member{}, told: map[[2]string]bool{},
	}
}

// Sent returns all notices that were enqueued, in that order.
func (r *Reference) Sent() []monitor.Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// SentTo returns those of one sink.
func (r *Reference) SentTo(sink string) []monitor.Notice {
	return slices.DeleteFunc(r.Sent(), func(n monitor.Notice) bool { return n.Sink != sink })
}

// step is one operation, at one moment.
type step struct {
	*Reference
	ctx  context.Context
	now  monitor.Moment
	wall time.Time
}

// do carries out one operation. One that fails must not have changed anything.
func (r *Reference) do(ctx context.Context, op func(step) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wall := r.o.Clock().Round(0).Truncate(time.Microsecond)
	at := monitor.Moment(wall.UnixMicro())
	if at+r.ahead < r.last { // the clock was stepped back
		r.ahead = r.last - at
	}
	r.last = at + r.ahead
	return op(step{r, ctx, r.last, wall})
}

// invalid is an error of a caller.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
}

// wallAt is a moment by the wall clock as it goes now; zero for none.
func (s step) wallAt(m monitor.Moment) time.Time {
	if m == 0 || m == monitor.Never {
		return time.Time{}
	}
	return s.wall.Add(-s.now.Sub(m))
}

func (r *Reference) newID() int64 {
	r.lastID++
	return r.lastID
}

// named finds an event name that is configured.
func (r *Reference) named(name string) *event {
	if e := r.events[name]; e != nil && !e.Removed {
		return e
	}
	return nil
}

// add makes a source known.
func (s step) add(e *event, name string) *source {
	n := &source{id: s.newID(), event: e, name: name, state: monitor.Up, base: s.now, rev: 1}
	s.sources[n.id], s.names[monitor.Ref{Event: e.Name, Source: name}] = n, n
	v := e.Judge(s.facts(n))
	n.due = v.Due
	if v.Turn != monitor.Stay {
		n.due = s.now
	}
	return n
}

func (s step) forget(n *source) {
	delete(s.sources, n.id)
	delete(s.names, monitor.Ref{Event: n.event.Name, Source: n.name})
	delete(n.event.again, n.id)
}

// way is the path by which a source is judged.
func (s step) way(n *source) (p monitor.Path, blindThen time.Duration) {
	if n.path != nil && !n.path.dropped {
		return n.path.Path, n.blind
	}
	var newest *path
	for _, name := range slices.Sorted(maps.Keys(s.paths)) {
		if p := s.paths[name]; newest == nil || p.Proof > newest.Proof {
			newest = p
		}
	}
	if newest == nil {
		return monitor.Path{}, 0
	}
	return newest.Path, newest.Blind
}

func (s step) facts(n *source) monitor.Facts {
	f := monitor.Facts{
		Now: s.now, Wall: s.wall, State: n.state, Base: n.base, Until: n.until, Ended: n.ended, Asked: n.asked,
		Beat: n.at, Failing: n.failing, Run: n.run, EventBase: n.event.base, Removed: n.event.Removed,
	}
	f.Path, f.BlindThen = s.way(n)
	if n.alarm != nil {
		f.Alarm, f.Reason, f.Onset, f.Well = n.alarm.ID, n.alarm.Reason, n.alarm.onset, n.well
		for _, at := range n.onsets {
			if n.event.Flaps > 0 && s.now.Sub(at) <= n.event.FlapWindow {
				f.Onsets++
			}
		}
	}
	return f
}

func (s step) candidate(n *source) monitor.Candidate {
	c := monitor.Candidate{
		ID: n.id, Event: n.event.ID, Source: n.name, Labels: maps.Clone(n.labels),
		Rev: n.rev, Stamp: n.stamp, EventRev: n.event.Rev, Facts: s.facts(n),
	}
	if n.alarm != nil {
		c.Held, c.Started = n.alarm.held, n.alarm.Started
		if n.alarm.group != nil {
			c.Group = n.alarm.group.ID
		}
	}
	return c
}

// record adds an event to the history.
func (s step) record(subject, reason string) {
	if s.o.History != nil {
		_ = s.o.History.Append(s.ctx, history.Event{Part: "monitor", Subject: subject, Reason: reason})
	}
}

// enqueue tells sinks, each of an id once.
func (s step) enqueue(notices []monitor.Notice) {
	for _, n := range notices {
		if key := [2]string{n.Sink, n.ID}; s.sinks[n.Sink] && !s.told[key] {
			s.told[key] = true
			n.Payload = slices.Clone(n.Payload)
			s.sent = append(s.sent, n)
		}
	}
}

// all are the sources, by event and name.
func (r *Reference) all() []*source {
	return slices.SortedFunc(maps.Values(r.sources), func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.event.Name, b.event.Name), cmp.Compare(a.name, b.name))
	})
}
