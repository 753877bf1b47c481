package checks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

var _ monitor.Store = (*Reference)(nil)

// Options of a [Reference]. All may be left out.
type Options struct {
	// Clock is the store's wall clock, which may be stepped; nil is time.Now.
	Clock func() time.Time
	// Sessions tells who lives, for members; nil: everybody does.
	Sessions lease.Roster
	// History gets the events; nil: they are dropped.
	History history.Log
	// Queues get the notices of sinks; nil: only Sent has them.
	Queues dispatch.Admin
}

// Reference is a [monitor.Store] in memory, with queues that nobody delivers.
type Reference struct {
	o Options

	mu     sync.Mutex
	last   monitor.StoreTime // the latest that was told
	ahead  monitor.StoreTime // by how much moments are ahead of the wall clock
	proven monitor.StoreTime // when any path was

	lastID     int64
	generation int64
	events     map[string]*event
	sources    map[int64]*source
	names      map[monitor.SourceRef]*source
	paths      map[string]*path
	alarms     map[string]*alarm
	sinks      map[string]bool
	members    map[string]monitor.Member
	sent       []monitor.Notification
	told       map[[2]string]bool // sink and id

	configured time.Time
	origin     string
	refused    string
}

// event is an event name. Its Paused is the one in force; configured is the event as
// it was configured.
type event struct {
	monitor.StoredCheck
	configured monitor.Check
	base       monitor.StoreTime
	again      map[int64]bool // sources that Sweep has still to look at
}

type path struct {
	monitor.PathStatus
	skipped bool // the clock has skipped since its proof: that was blind, whatever its gap
	dropped bool
}

type alarm struct {
	monitor.Alarm
	onset monitor.StoreTime
	over  monitor.StoreTime // when it ended, 0 while it stands
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
	due      monitor.StoreTime
	base     monitor.StoreTime
	until    monitor.StoreTime
	ended    monitor.StoreTime
	asked    bool
	note     string
	alarm    *alarm // that stands
	well     monitor.StoreTime
	onsets   []monitor.StoreTime
	beat
}

// beat is what the last one left.
type beat struct {
	stamp   int64
	at      monitor.StoreTime
	blind   time.Duration // of its path, by then
	path    *path
	sent    time.Time
	seq     int64
	failing bool
	code    int
	run     monitor.StoreTime
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
		events: map[string]*event{}, sources: map[int64]*source{}, names: map[monitor.SourceRef]*source{},
		paths: map[string]*path{}, alarms: map[string]*alarm{}, sinks: map[string]bool{},
		members: map[string]monitor.Member{}, told: map[[2]string]bool{},
	}
}

// Sent returns all notices that were enqueued, in that order.
func (r *Reference) Sent() []monitor.Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// SentTo returns those of one sink.
func (r *Reference) SentTo(sink string) []monitor.Notification {
	return slices.DeleteFunc(r.Sent(), func(n monitor.Notification) bool { return n.Sink != sink })
}

// step is one operation, at one moment.
type step struct {
	*Reference
	ctx  context.Context
	now  monitor.StoreTime
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
	at := monitor.StoreTime(wall.UnixMicro())
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
	s.sources[n.id], s.names[monitor.SourceRef{Check: e.Name, Source: name}] = n, n
	v := e.Evaluate(s.facts(n))
	n.due = v.Due
	if v.Transition != monitor.NoTransition {
		n.due = s.now
	}
	return n
}

func (s step) forget(n *source) {
	delete(s.sources, n.id)
	delete(s.names, monitor.SourceRef{Check: n.event.Name, Source: n.name})
	delete(n.event.again, n.id)
}

// way is the path by which a source is judged.
func (s step) way(n *source) (p monitor.PathStatus, blindThen time.Duration) {
	if n.path != nil && !n.path.dropped {
		return n.path.PathStatus, n.blind
	}
	var newest *path
	for _, name := range slices.Sorted(maps.Keys(s.paths)) {
		if p := s.paths[name]; newest == nil || p.LastSeen > newest.LastSeen {
			newest = p
		}
	}
	if newest == nil {
		return monitor.PathStatus{}, 0
	}
	return newest.PathStatus, newest.BlindTotal
}

func (s step) facts(n *source) monitor.Facts {
	f := monitor.Facts{
		Now: s.now, Wall: s.wall, State: n.state, ExpectedFrom: n.base, PausedUntil: n.until, RetiredAt: n.ended, RetireRequested: n.asked,
		LastBeat: n.at, Failing: n.failing, RunStarted: n.run, CheckChanged: n.event.base, Removed: n.event.Removed,
	}
	f.Path, f.BlindAtBeat = s.way(n)
	if n.alarm != nil {
		f.Alarm, f.Reason, f.OnsetAt, f.WellSince = n.alarm.ID, n.alarm.Reason, n.alarm.onset, n.well
		for _, at := range n.onsets {
			if n.event.Flaps > 0 && s.now.Sub(at) <= n.event.FlapWindow {
				f.RecentOnsets++
			}
		}
	}
	return f
}

func (s step) candidate(n *source) monitor.Candidate {
	c := monitor.Candidate{
		ID: n.id, CheckID: n.event.ID, Source: n.name, Labels: maps.Clone(n.labels),
		Rev: n.rev, BeatRev: n.stamp, CheckRev: n.event.Rev, Facts: s.facts(n),
	}
	if n.alarm != nil {
		c.AlarmHeld, c.Started = n.alarm.held, n.alarm.Started
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
func (s step) enqueue(notices []monitor.Notification) {
	for _, n := range notices {
		if key := [2]string{n.Sink, n.ID}; s.sinks[n.Sink] && !s.told[key] {
			s.told[key] = true
			n.Payload = slices.Clone(n.Payload)
			if s.o.Queues == nil {
				s.sent = append(s.sent, n)
				continue
			}
			// The queue is there: a sink gets it when it is registered. So this cannot fail once the context lives.
			_, _ = s.o.Queues.Add(context.WithoutCancel(s.ctx), []dispatch.Message{{
				Queue: monitor.SinkQueue(n.Sink), Key: n.Key, ID: n.ID, Payload: n.Payload, ContentType: "application/json",
			}})
		}
	}
}

// all are the sources, by event and name.
func (r *Reference) all() []*source {
	return slices.SortedFunc(maps.Values(r.sources), func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.event.Name, b.event.Name), cmp.Compare(a.name, b.name))
	})
}
