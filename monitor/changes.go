package monitor

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// changeBuilder makes changes, with their notifications, from evaluations.
type changeBuilder struct {
	scan  Scan
	links Links
	id    func() string // of a new alarm
}

// wallTime is a time by the store's wall clock.
func (b *changeBuilder) wallTime(m StoreTime) time.Time { return b.scan.Wall.Add(-b.scan.Now.Sub(m)) }

func (b *changeBuilder) build(check *Check, c *Candidate) SourceChange {
	c.Now, c.Wall = b.scan.Now, b.scan.Wall
	v := check.Evaluate(c.Facts)
	change := SourceChange{
		ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev,
		Transition: v.Transition, Due: v.Due, WellSince: v.WellSince, At: b.wallTime(v.At),
	}
	switch v.Transition {
	case NoTransition:
		change.At = time.Time{}
	case Resume, Return:
		change.ExpectedFrom = v.At
	case Onset:
		b.onset(check, c, v, &change)
	case Abated, Retire, Forget:
		if c.Alarm != "" {
			b.end(check, c, v, &change)
		}
	}
	return change
}

// onset starts an alarm. One that may be reported with others is held: no sink hears of it yet.
func (b *changeBuilder) onset(check *Check, c *Candidate, v Evaluation, change *SourceChange) {
	change.Alarm, change.Reason = b.id(), v.Reason
	m := b.message(check, c, change.Alarm, v.Reason)
	m.Started, m.Raised, m.Acknowledge = change.At, b.scan.Wall, b.links.Acknowledge(change.Alarm)
	if value := m.Labels[check.GroupBy]; check.GroupBy != "" && value != "" {
		change.Group = groupKey(check.Name, value)
		return
	}
	change.Notifications = []Notification{m.Notification()}
}

// end ends an alarm. Sinks always see ONSET before ABATED.
func (b *changeBuilder) end(check *Check, c *Candidate, v Evaluation, change *SourceChange) {
	change.Alarm, change.Reason = c.Alarm, c.Reason
	if c.Group != "" && !c.AlarmHeld {
		return // it was reported as a member of its group, whose alarm ends when no member is down
	}
	m := b.message(check, c, c.Alarm, c.Reason)
	m.Started, m.Raised = c.Started, b.wallTime(c.OnsetAt)
	m.LastBeat = nil // that of the candidate ended the alarm; the last before it is not kept
	if c.AlarmHeld {
		// Its ONSET still waits for others: it goes first, in the same transaction.
		change.Notifications = append(change.Notifications, m.Notification())
	}
	m.Status, m.Ended = Abated, &change.At
	switch {
	case v.Transition != Abated:
		m.End = v.Transition
	case !c.BeatSinceOnset: // a changed configuration did it
		m.End = EndByConfiguration
	}
	change.Notifications = append(change.Notifications, m.Notification())
}

// message is the ONSET of a source.
func (b *changeBuilder) message(check *Check, c *Candidate, alarm string, r Reason) AlarmMessage {
	m := check.message(c.Labels)
	m.Status, m.RequestID, m.Reason, m.Source = Onset, alarm, r, c.Source
	if c.LastBeat != 0 {
		at := b.wallTime(c.LastBeat)
		m.LastBeat = &at
	}
	return m
}

// groupKey names a group, so that those of two checks never have the same name.
func groupKey(check, value string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(check) + "/" + value
}

// groupValue is the value of the label that a group is of.
func groupValue(check, group string) string { return strings.TrimPrefix(group, groupKey(check, "")) }

// newRequestID is a random UUID, version 4.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
