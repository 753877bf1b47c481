package monitor

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// turner makes changes, with all that is told about them, from verdicts.
type turner struct {
	look  Look
	sinks []string
	id    func() string // of a new alarm
}

// wall is a moment by the store's wall clock.
func (t *turner) wall(m Moment) time.Time { return t.look.Wall.Add(-t.look.Now.Sub(m)) }

func (t *turner) turn(e *Event, c *Candidate) Change {
	c.Now, c.Wall = t.look.Now, t.look.Wall
	v := e.Judge(c.Facts)
	change := Change{
		ID: c.ID, Rev: c.Rev, Stamp: c.Stamp, EventRev: c.EventRev,
		Turn: v.Turn, Due: v.Due, Well: v.Well, At: t.wall(v.At),
	}
	switch v.Turn {
	case Stay:
		change.At = time.Time{}
	case Resume, Return:
		change.Base = v.At
	case Onset:
		t.onset(e, c, v, &change)
	case Abated, Retire, Forget:
		if c.Alarm != "" {
			t.end(e, c, v, &change)
		}
	}
	return change
}

// onset begins an alarm. One that may be reported with others is held.
func (t *turner) onset(e *Event, c *Candidate, v Verdict, change *Change) {
	change.Alarm, change.Reason = t.id(), v.Reason
	m := t.message(e, c, change.Alarm, v.Reason)
	m.Started, m.Raised = change.At, t.look.Wall
	if value := m.Labels[e.GroupBy]; e.GroupBy != "" && value != "" {
		change.Group = groupKey(e.Name, value)
		return
	}
	change.Notices = m.Notices(t.sinks)
}

// end ends an alarm. Who was not told of it yet is told of both; a member of a
// group is told of with the group.
func (t *turner) end(e *Event, c *Candidate, v Verdict, change *Change) {
	change.Alarm, change.Reason = c.Alarm, c.Reason
	if c.Group != "" && !c.Held {
		return
	}
	m := t.message(e, c, c.Alarm, c.Reason)
	m.Started, m.Raised, m.LastBeat = c.Started, t.wall(c.Onset), nil
	if c.Held {
		change.Notices = m.Notices(t.sinks)
	}
	m.Status, m.Ended = Abated, &change.At
	switch {
	case v.Turn != Abated:
		m.End = v.Turn
	case c.Beat < c.Onset: // no beat did it: it is expected anew
		m.End = Resume
	}
	change.Notices = append(change.Notices, m.Notices(t.sinks)...)
}

// message is the ONSET of a source.
func (t *turner) message(e *Event, c *Candidate, alarm string, r Reason) Message {
	m := e.message(c.Labels)
	m.Status, m.RequestID, m.Reason, m.Source = Onset, alarm, r, c.Source
	if c.Beat != 0 {
		at := t.wall(c.Beat)
		m.LastBeat = &at
	}
	return m
}

// groupKey names a group, so that those of two events never have the same name.
func groupKey(event, value string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(event) + "/" + value
}

// newRequestID is a random UUID, version 4.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
