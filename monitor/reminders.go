package monitor

import (
	"context"
	"time"
)

// maxReminders is how many alarms are reminded of at once; housekeeping has more to do.
const maxReminders = 200

// Reminder notifies sinks once more of an alarm that stands. It is made only if the alarm still stands, no one has
// acknowledged it, and it is the next in number.
type Reminder struct {
	Alarm         string
	Number        int // 1 for the first
	Notifications []Notification
}

// remindOfAlarms reminds of alarms that no one has acknowledged, and returns when to run again. It asks the store once for each
// check with reminders, and for all of them as often as the one that reminds most often needs: a few hundred such
// checks are cheap, thousands with a short time are not.
func (w *Watcher) remindOfAlarms(ctx context.Context) (every time.Duration, err error) {
	now, s, err := w.nowAndSettings(ctx)
	if err != nil {
		return 0, err // the back-off is what counts
	}
	every = sweepEvery
	for _, check := range s.checks {
		if check.Remind == 0 || check.Removed || check.Paused || check.inMaintenance(now) {
			continue
		}
		every = min(every, max(check.Remind/20, time.Second))
		more, err := w.remindOfCheck(ctx, s, &check.Check, now)
		if err != nil {
			return 0, err
		}
		if more {
			every = soon
		}
	}
	return every, nil
}

// remindOfCheck reminds of the alarms of one check.
func (w *Watcher) remindOfCheck(ctx context.Context, s settingsCache, check *Check, now time.Time) (more bool, err error) {
	due, err := withinTimeout(ctx, func(ctx context.Context) ([]Alarm, error) {
		return w.cfg.Store.Alarms(ctx, AlarmQuery{Check: check.Name, Standing: true, NotifiedBefore: now.Add(-check.Remind), Limit: maxReminders})
	})
	if err != nil {
		return false, err
	}
	links := w.links(s)
	for i := range due {
		a := &due[i]
		m := check.reminder(a)
		m.Acknowledge = links.Acknowledge(a.ID)
		r := Reminder{Alarm: a.ID, Number: m.Reminder, Notifications: []Notification{m.Notification()}}
		made, err := withinTimeout(ctx, func(ctx context.Context) (bool, error) { return w.cfg.Store.Remind(ctx, r) })
		if err != nil {
			return false, err
		}
		more = more || made && len(due) == maxReminders
	}
	return more, nil
}

// reminder is the ONSET of an alarm once more. Receivers that know of no reminders take it for that.
func (c *Check) reminder(a *Alarm) AlarmMessage {
	m := c.message(a.Labels)
	m.Status, m.RequestID, m.Reason, m.Source = Onset, a.ID, a.Reason, a.Source
	m.Started, m.Raised, m.Reminder = a.Started, a.Raised, a.Reminders+1
	m.RemindMS = c.Remind.Milliseconds()
	if a.Source == "" {
		m.Group, m.GroupBy, m.Count = groupValue(c.Name, a.Group), c.GroupBy, a.Members
	}
	return m
}
