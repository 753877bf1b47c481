package checks

import (
	"cmp"
	"context"
	"crypto/rand"
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

var _ monitor.Store = (*Memory)(nil)

// Options of a [Memory]. All may be left out.
type Options struct {
	// Clock is the store's wall clock, which may be stepped; nil is time.Now.
	Clock func() time.Time
	// Sessions lists the live sessions, for members; nil: every session is live.
	Sessions lease.Roster
	// History gets the events; nil: they are dropped.
	History history.Log
	// Queues receive the notifications of sinks; nil: only Sent returns them.
	Queues dispatch.Admin
}

// Memory is a [monitor.Store] in memory, to be used through [monitor.Validated].
type Memory struct {
	o Options

	mu        sync.Mutex
	last      monitor.StoreTime // the latest time returned
	ahead     monitor.StoreTime // how far the store time is ahead of the wall clock
	lastProbe monitor.StoreTime // when any path was last seen

	lastID     int64
	generation int64
	checks     map[string]*check
	sources    map[int64]*source
	names      map[monitor.SourceRef]*source
	paths      map[string]*path
	alarms     map[string]*alarm
	sinks      map[string]bool
	members    map[string]monitor.Member
	sent       []monitor.Notification
	enqueued   map[[2]string]bool // by sink and notification ID

	secret     []byte
	configured time.Time
	origin     string
	refused    string
}

// check is a check as it is in force; configured is what the last configuration said. They differ in Paused.
type check struct {
	monitor.StoredCheck
	configured   monitor.Check
	expectedFrom monitor.StoreTime
	sources      int64          // how many it has
	reschedule   map[int64]bool // sources that Sweep must make due
}

type path struct {
	monitor.PathStatus
	skipped bool // the clock has skipped since its last probe: the time between counts as blind, however short
	removed bool
}

type alarm struct {
	monitor.Alarm
	onset    monitor.StoreTime
	beats    int64             // of its source, when it was raised
	endedAt  monitor.StoreTime // 0 while it is open
	held     bool
	notified time.Time // when sinks were last notified of it; zero: when it was raised
	group    *alarm    // the group alarm that reported it
}

type source struct {
	id              int64
	check           *check
	name            string
	labels          map[string]string
	declared        bool
	rev             int64
	state           monitor.State
	due             monitor.StoreTime
	expectedFrom    monitor.StoreTime
	pausedUntil     monitor.StoreTime
	retiredAt       monitor.StoreTime
	retireRequested bool
	note            string
	alarm           *alarm // open
	wellSince       monitor.StoreTime
	onsets          []monitor.StoreTime
	beat
}

// beat is what the last heartbeat left.
type beat struct {
	beatRev    int64
	lastBeat   monitor.StoreTime
	blind      time.Duration // total of its path at that time
	path       *path
	sent       time.Time
	seq        int64
	failing    bool
	code       int
	runStarted monitor.StoreTime
	run        int64 // key of the run that was started
	report     monitor.Report
	beats      int64
	slot       int64
	recent     uint64 // bit 0 is slot, higher bits are the slots before it
}

// NewMemory returns an empty table.
func NewMemory(o Options) *Memory {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Memory{
		o: o, generation: 1, secret: []byte(rand.Text()),
		checks: map[string]*check{}, sources: map[int64]*source{}, names: map[monitor.SourceRef]*source{},
		paths: map[string]*path{}, alarms: map[string]*alarm{}, sinks: map[string]bool{},
		members: map[string]monitor.Member{}, enqueued: map[[2]string]bool{},
	}
}

// Sent returns all notifications in the order in which they were enqueued.
func (r *Memory) Sent() []monitor.Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// SentTo returns the notifications of one sink.
func (r *Memory) SentTo(sink string) []monitor.Notification {
	return slices.DeleteFunc(r.Sent(), func(n monitor.Notification) bool { return n.Sink != sink })
}

// step is one operation, at one moment.
type step struct {
	*Memory
	ctx  context.Context
	now  monitor.StoreTime
	wall time.Time
}

// atomically runs one operation under the lock. An operation that fails must not have changed anything.
func (r *Memory) atomically(ctx context.Context, op func(step) error) error {
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

// invalid returns an error about the caller's request.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", lease.ErrInvalid, fmt.Sprintf(format, args...))
}

func (r *Memory) newID() int64 {
	r.lastID++
	return r.lastID
}

// configuredCheck returns the check of that name, or nil when it is not configured or was removed.
func (r *Memory) configuredCheck(name string) *check {
	if e := r.checks[name]; e != nil && !e.Removed {
		return e
	}
	return nil
}

// addSource adds a source that has not sent a heartbeat yet.
func (s step) addSource(e *check, name string) *source {
	n := &source{id: s.newID(), check: e, name: name, state: monitor.Up, expectedFrom: s.now, rev: 1}
	s.sources[n.id], s.names[monitor.SourceRef{Check: e.Name, Source: name}] = n, n
	v := e.Evaluate(s.facts(n))
	e.sources++
	n.due = v.Due
	if v.Transition != monitor.NoTransition {
		n.due = s.now
	}
	return n
}

func (s step) forgetSource(n *source) {
	n.check.sources--
	delete(s.sources, n.id)
	delete(s.names, monitor.SourceRef{Check: n.check.Name, Source: n.name})
	delete(n.check.reschedule, n.id)
}

// pathOf returns the intake path of the source's last heartbeat, or the most recently seen path if it has none.
func (s step) pathOf(n *source) (p monitor.PathStatus, blindThen time.Duration) {
	if n.path != nil && !n.path.removed {
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
		Now: s.now, Wall: s.wall, State: n.state, ExpectedFrom: n.expectedFrom, PausedUntil: n.pausedUntil, RetiredAt: n.retiredAt, RetireRequested: n.retireRequested,
		LastBeat: n.lastBeat, Failing: n.failing, RunStarted: n.runStarted, CheckChanged: n.check.expectedFrom, Removed: n.check.Removed,
		WellSince: n.wellSince,
	}
	f.Path, f.BlindAtBeat = s.pathOf(n)
	if n.alarm != nil {
		f.Alarm, f.Reason, f.OnsetAt = n.alarm.ID, n.alarm.Reason, n.alarm.onset
		for _, at := range n.onsets {
			if n.check.Flaps > 0 && s.now.Sub(at) <= n.check.FlapWindow {
				f.RecentOnsets++
			}
		}
	}
	return f
}

func (s step) candidate(n *source) monitor.Candidate {
	c := monitor.Candidate{
		ID: n.id, CheckID: n.check.ID, Source: n.name, Labels: maps.Clone(n.labels),
		Rev: n.rev, BeatRev: n.beatRev, CheckRev: n.check.Rev, Facts: s.facts(n),
	}
	if n.alarm != nil {
		c.AlarmHeld, c.Started, c.BeatSinceOnset = n.alarm.held, n.alarm.Started, n.beats > n.alarm.beats
		if n.alarm.group != nil {
			c.Group = n.alarm.group.ID
		}
	}
	return c
}

// recordEvent adds an event to the history.
func (s step) recordEvent(subject, reason string, lasted time.Duration) {
	if s.o.History != nil {
		_ = s.o.History.Append(s.ctx, history.Event{Part: "monitor", Subject: subject, Reason: reason, Duration: max(0, lasted)})
	}
}

// enqueue gives each notification to its sink once, by ID.
func (s step) enqueue(notices []monitor.Notification) {
	for _, n := range notices {
		if n.Sink != "" {
			s.enqueueOne(n)
			continue
		}
		for _, n.Sink = range slices.Sorted(maps.Keys(s.sinks)) {
			s.enqueueOne(n)
		}
	}
}

func (s step) enqueueOne(n monitor.Notification) {
	key := [2]string{n.Sink, n.ID}
	if !s.sinks[n.Sink] || s.enqueued[key] {
		return
	}
	s.enqueued[key] = true
	n.Payload = slices.Clone(n.Payload)
	if s.o.Queues == nil {
		s.sent = append(s.sent, n)
		return
	}
	// Registering a sink creates its queue, and [monitor.Validated] has seen the message, so this cannot fail.
	_, _ = s.o.Queues.Add(context.WithoutCancel(s.ctx), []dispatch.Message{n.Message(n.Sink)})
}

// sortedSources returns the sources by check and name.
func (r *Memory) sortedSources() []*source {
	return slices.SortedFunc(maps.Values(r.sources), func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.check.Name, b.check.Name), cmp.Compare(a.name, b.name))
	})
}
