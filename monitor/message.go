package monitor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/lease"
)

// AlarmMessage is an alarm as sinks get it: the payload of a [Notification], from
// which each sink makes what its receiver reads. Its names are those of its JSON, in which a check is an event.
type AlarmMessage struct {
	Status    Transition `json:"status"` // ONSET or ABATED
	RequestID string     `json:"request_id"`
	Reason    Reason     `json:"reason"`
	Event     string     `json:"event"`
	Source    string     `json:"source,omitempty"`
	Group     string     `json:"group,omitempty"` // the value of the label that a group is of
	GroupBy   string     `json:"group_by,omitempty"`
	Members   []string   `json:"members,omitempty"` // sources of a group, at most MaxMembers
	Count     int        `json:"count,omitempty"`   // how many they are
	// What happened, in words, if the reason does not say it: in alarms of jobs.
	What string `json:"what,omitempty"`
	// End is why it ended, when no heartbeat did it: Retire, Forget or EndByConfiguration.
	End      Transition        `json:"end,omitempty"`
	Severity string            `json:"severity,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"` // the check's, and over them the source's
	// Started is when the outage began, Raised when it was found, Ended when it
	// ended, LastBeat when the source was last heard before.
	Started  time.Time  `json:"started"`
	Raised   time.Time  `json:"raised"`
	Ended    *time.Time `json:"ended,omitempty"`
	LastBeat *time.Time `json:"last_beat,omitempty"`
	// Reminder is which reminder this is of an alarm that no one has acknowledged, 1 for the first; the next one follows
	// RemindMS milliseconds later.
	Reminder int   `json:"reminder,omitempty"`
	RemindMS int64 `json:"remind_ms,omitempty"`
	// Acknowledge is a link by which anyone who has it acknowledges the alarm.
	Acknowledge string `json:"acknowledge,omitempty"`
	// Limit is how long the source may be quiet, in words.
	Limit       string      `json:"limit,omitempty"`
	ControlLoop ControlLoop `json:"control_loop,omitzero"`
}

// EndByConfiguration is the [AlarmMessage].End of an alarm that the configuration which holds now would not have raised.
const EndByConfiguration = Resume

// MaxMembers is how many members of a group a message names.
const MaxMembers = 1000

// message is what all messages about a check have in common.
func (c *Check) message(labels map[string]string) AlarmMessage {
	m := AlarmMessage{
		Event: c.Name, Severity: c.Severity, Tags: c.Tags, ControlLoop: c.ControlLoop,
		Labels: maps.Clone(c.Labels), Limit: c.FixedLimit().String(),
	}
	if c.Schedule != "" {
		m.Limit = c.Schedule
	}
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, labels)
	delete(m.Labels, PingLabel)
	return m
}

// Notifications are the message for each of some sinks.
func (m AlarmMessage) Notifications(sinks []string) []Notification {
	n := m.Notification()
	out := make([]Notification, 0, len(sinks))
	for _, n.Sink = range sinks {
		out = append(out, n)
	}
	return out
}

// Notification is the message for all sinks, in one order per subject.
func (m AlarmMessage) Notification() Notification {
	payload, err := json.Marshal(m)
	if err != nil {
		payload = []byte(`{}`) // cannot happen: all of it is text and times
	}
	subject := m.Source
	if subject == "" {
		subject = "group " + m.Group
	}
	id := m.RequestID + "/" + string(m.Status)
	if m.Reminder > 0 {
		id += "/" + strconv.Itoa(m.Reminder)
	}
	return Notification{Key: OrderKey(m.Event, subject), ID: id, Payload: payload}
}

// OrderKey is the key under which a subject's notices are in order: what people can
// read, unless that is too long or cannot be a key.
func OrderKey(event, subject string) string {
	key := event + "/" + subject
	if len(key) <= lease.MaxKey && lease.ValidateText("key", key, 1, lease.MaxKey) == nil {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	cut := key[:min(len(key), 100)]
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return cut + "~" + hex.EncodeToString(sum[:16])
}
