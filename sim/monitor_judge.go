package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// monitorJudge stands between the instances and the table, and keeps books of its
// own: of what was acknowledged, when which path could not see, and what was expected
// when. What it asks for follows from the documentation of package monitor alone.
// Times are true ones. Its lock makes each request and what is noted of it one step.
type monitorJudge struct {
	monitor.Store
	world *monitorWorld
	begin time.Time

	mu      sync.Mutex
	r       MonitorResult
	events  map[string]*eventBook
	sources map[monitor.SourceRef]*sourceBook
	ids     map[int64]monitor.SourceRef
	names   map[int64]string // of events
	alarms  map[string]*sourceBook
	paths   map[string]*pathBook
	proven  time.Time     // when any path was
	touched time.Time     // when the store was, last
	stepped time.Duration // its clock, since
	sinks   map[string]*sinkBook
	lost    []lostTime
}

// lostTime is time that the store's clock did not count: it was stepped back.
type lostTime struct {
	at time.Time
	d  time.Duration
}

// eventBook is what is expected of the sources of one name.
type eventBook struct {
	monitor.Check
	removed time.Time // zero while it is configured
	since   time.Time // configured without a break
	base    time.Time // of a shorter limit, or when it was resumed
	back    time.Time // when it was configured again, whose sources may live on
	changed time.Time // when it got a longer limit
	paused  bool
}

// sourceBook is what the judge knows of a source.
type sourceBook struct {
	ref      monitor.SourceRef
	from     *monitorSource
	known    bool
	learned  time.Time // from what it sent, at the latest; zero if it was declared
	declared bool
	fresh    time.Time // what came before does not count: it was forgotten
	base     time.Time // of a declaration, a resumption
	baseUp   time.Time // … at the latest
	paused   bool
	until    time.Time
	retired  bool
	asked    time.Time // a person wants it retired; zero when nobody does
	notes    []*sending

	alarm  string
	reason monitor.Reason
	onset  time.Time
	held   bool
	told   bool // what it is about, once
}

// sending is one beat on its way to an instance, until someone hears of it.
type sending struct {
	book   *sourceBook
	signal monitor.Signal
	again  bool
	sent   time.Time
	open   bool
	acked  time.Time                  // zero when it was not
	until  time.Time                  // it may be stored, when nobody knows
	copies bool                       // it was said again, elsewhere, when it was not answered
	late   time.Time                  // until when an instance that was stopped may store it still
	held   map[*monitorNode]time.Time // by instances that did not answer, each until when
	own    time.Time                  // by its sender's clock
	seq    int64
}

// pathBook is when a path was blind.
type pathBook struct {
	proof   time.Time
	counted time.Duration // that has passed since on the monitor's clock, at least
	maybe   bool          // the store counts as if its clock was stepped ahead
	hidden  bool          // … stepped back: no time may have passed for it
	blind   []blindness
}

type blindness struct {
	from, to time.Time
	sure     bool
}

// sinkBook is what a sink was told.
type sinkBook struct {
	stands map[string]string // request id, by key
	ids    map[string]bool
	count  int
}

func newMonitorJudge(w *monitorWorld) *monitorJudge {
	j := &monitorJudge{
		Store: w.table, world: w, begin: time.Now(), events: map[string]*eventBook{}, sources: map[monitor.SourceRef]*sourceBook{},
		ids: map[int64]monitor.SourceRef{}, names: map[int64]string{}, alarms: map[string]*sourceBook{}, paths: map[string]*pathBook{},
		sinks: map[string]*sinkBook{}, touched: time.Now(),
	}
	for _, s := range monitorSinks {
		j.sinks[s] = &sinkBook{stands: map[string]string{}, ids: map[string]bool{}}
	}
	return j
}

func (j *monitorJudge) trace(format string, args ...any) {
	if t := j.world.setup.Trace; t != nil {
		t("%8.3f "+format, append([]any{time.Since(j.begin).Seconds()}, args...)...)
	}
}

func (j *monitorJudge) says(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breach(format, args...)
}

func (j *monitorJudge) breach(format string, args ...any) {
	text := fmt.Sprintf("%.3f: ", time.Since(j.begin).Seconds()) + fmt.Sprintf(format, args...)
	j.trace("BROKEN %s", text)
	if len(j.r.Broken) < 100 {
		j.r.Broken = append(j.r.Broken, text)
	}
}

func (j *monitorJudge) result() MonitorResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.r
}

// at is a moment as the trace shows it.
func (j *monitorJudge) at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%.3f", t.Sub(j.begin).Seconds())
}

func (j *monitorJudge) source(ref monitor.SourceRef) *sourceBook {
	b := j.sources[ref]
	if b == nil {
		b = &sourceBook{ref: ref}
		for _, s := range j.world.sources {
			if s.ref == ref {
				b.from = s
			}
		}
		j.sources[ref] = b
	}
	return b
}

// sends notes that a beat is on its way.
func (j *monitorJudge) sends(s *monitorSource, b monitor.Heartbeat, again bool) *sending {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.source(s.ref).notes {
		again = again || !b.Sent.IsZero() && m.own.Equal(b.Sent) && m.seq == b.Seq // a copy came first
	}
	n := &sending{book: j.source(s.ref), signal: b.Signal, again: again, sent: time.Now(), open: true, own: b.Sent, seq: b.Seq}
	n.book.notes = append(n.book.notes, n)
	return n
}

func (j *monitorJudge) answered(n *sending, o monitor.Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n.open = false
	now := time.Now()
	if o == monitor.Accepted {
		n.acked = now
		if !n.book.known {
			n.book.known, n.book.learned = true, now
		}
		j.r.Beats++
		j.trace("%v: %d of %s is acknowledged, %d, again %v", n.book.ref, n.signal, j.at(n.sent), n.seq, n.again)
		return
	}
	n.until = n.sent // it was not stored
	j.trace("%v: %d of %s is refused: %d", n.book.ref, n.signal, j.at(n.sent), o)
	e := j.events[n.book.ref.Check]
	if e != nil && e.removed.IsZero() && n.sent.Sub(e.since) > 3*time.Second && n.sent.After(j.world.health.since()) &&
		(!e.Fixed || n.book.declared) {
		j.breach("%v: a beat was answered %d, and it is configured since %s", n.book.ref, o, j.at(e.since))
	}
}

func (j *monitorJudge) unanswered(n *sending, horizon time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n.open, n.until = false, horizon
	j.trace("%v: %d of %s is not answered", n.book.ref, n.signal, j.at(n.sent))
}

// tries notes that a try was not answered; late is until when it may be stored nevertheless.
func (j *monitorJudge) tries(n *sending, by *monitorNode, late time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n.copies, n.late = true, maxTime(n.late, late)
	if n.held == nil {
		n.held = map[*monitorNode]time.Time{}
	}
	n.held[by] = maxTime(late, time.Now().Add(lateBy))
}

// hindered notes that an instance is stopped or cut off until then. What it holds although its sender gave up
// before that, it may store afterwards: "A heartbeat its sender gave up on may still be stored" (docs/monitor.md).
func (j *monitorJudge) hindered(by *monitorNode, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.sources {
		for _, n := range b.notes {
			if end, ok := n.held[by]; ok && !time.Now().After(end) {
				n.held[by] = maxTime(end, until.Add(lateBy))
				n.late = maxTime(n.late, n.held[by])
			}
		}
	}
}

// steps steps the store's wall clock.
func (j *monitorJudge) steps(by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("the store's clock steps by %v", by)
	j.world.stepped.Add(int64(by))
	j.stepped += by
	if by < 0 {
		j.lost = append(j.lost, lostTime{time.Now(), time.Since(j.touched)})
		for _, p := range j.paths {
			p.hidden = true
		}
	}
}

// touch notes that the store was asked, and its clock read: what steps back take away of
// the time since it was read last nobody has seen. That others have read it meanwhile can
// only have made that less.
func (j *monitorJudge) touch(err error) {
	if err != nil {
		return
	}
	now := time.Now()
	counted := max(0, now.Sub(j.touched)+j.stepped)
	for _, p := range j.paths {
		p.counted += counted
	}
	j.touched, j.stepped = now, 0
}

// applies makes the changes of an instance, each of which it judged on what it read
// when it looked.
func (j *monitorJudge) applies(ctx context.Context, n *monitorNode, cs []monitor.SourceChange, looked []time.Time) ([]bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	made, err := j.Store.ApplyChanges(ctx, cs)
	j.touch(err)
	if err != nil {
		return made, err
	}
	j.reads()
	for i, c := range cs {
		if !made[i] || c.Transition == monitor.NoTransition {
			continue
		}
		b, at := j.source(j.ids[c.ID]), looked[i]
		if at.IsZero() {
			at = time.Now()
		}
		j.trace("%s: %s of %v (%s), looked at %s", n.name, c.Transition, b.ref, c.Reason, j.at(at))
		j.turned(b, c, at)
	}
	return made, err
}

// turned notes what became of a source.
func (j *monitorJudge) turned(b *sourceBook, c monitor.SourceChange, looked time.Time) {
	now := time.Now()
	if c.Transition == monitor.Onset {
		j.onset(b, c, looked)
		return
	}
	if b.alarm != "" && (c.Transition == monitor.Abated || c.Transition == monitor.Retire || c.Transition == monitor.Forget) {
		j.ended(b, c)
	}
	switch c.Transition {
	case monitor.Abated:
		if !b.asked.IsZero() && looked.After(b.asked) {
			j.breach("%v: its alarm ends by itself, and it was to be retired", b.ref)
		}
	case monitor.Resume:
		// A clock that is stepped ahead ends it early.
		if !b.paused || b.until.IsZero() || !j.world.setup.Steps && looked.Before(b.until.Add(-time.Millisecond)) {
			j.breach("%v: its pause ends, and it lasts until %s", b.ref, j.at(b.until))
		}
		b.paused, b.until, b.base, b.baseUp = false, time.Time{}, looked, now
	case monitor.Return:
		b.retired, b.baseUp = false, now
	case monitor.Retire:
		e := j.events[b.ref.Check]
		if b.asked.IsZero() && (e.RetireAfter == 0 || looked.Before(b.onset.Add(e.RetireAfter-time.Millisecond))) {
			j.breach("%v: it was retired, and nobody asked for that", b.ref)
		}
		b.retired, b.paused, b.until, b.asked = true, false, time.Time{}, time.Time{}
	case monitor.Forget:
		if j.events[b.ref.Check].removed.IsZero() {
			j.breach("%v: it was forgotten, and its event is configured", b.ref)
		}
		*b = sourceBook{ref: b.ref, from: b.from, fresh: now, notes: b.notes}
	}
}

func (j *monitorJudge) onset(b *sourceBook, c monitor.SourceChange, looked time.Time) {
	now, e := time.Now(), j.events[b.ref.Check]
	j.r.Onsets++
	if b.alarm != "" {
		j.breach("%v: a second alarm", b.ref)
	}
	switch {
	case !e.removed.IsZero() || e.paused || b.paused || b.retired:
		j.breach("%v: an alarm of what is not judged", b.ref)
	default:
		j.early(b, c.Reason, looked)
	}
	b.alarm, b.reason, b.onset, b.held, b.told = c.Alarm, c.Reason, now, c.Group != "", false
	j.alarms[c.Alarm] = b
	if !b.held {
		j.mustBeTold(b, c.Alarm, monitor.Onset)
	}
}

func (j *monitorJudge) ended(b *sourceBook, c monitor.SourceChange) {
	j.r.Abated++
	if c.Alarm != b.alarm {
		j.breach("%v: alarm %s ends, and %s stands", b.ref, c.Alarm, b.alarm)
	}
	hook := j.sinks[monitorSinks[0]]
	if b.held || hook.ids[b.alarm+"/"+string(monitor.Onset)] {
		j.mustBeTold(b, b.alarm, monitor.Onset)
		j.mustBeTold(b, b.alarm, monitor.Abated)
	}
	b.alarm, b.held, b.told = "", false, false
}

func (j *monitorJudge) mustBeTold(b *sourceBook, alarm string, status monitor.Transition) {
	for _, s := range monitorSinks {
		if !j.sinks[s].ids[alarm+"/"+string(status)] {
			j.breach("%v: %s was not told the %s", b.ref, s, status)
		}
	}
}
