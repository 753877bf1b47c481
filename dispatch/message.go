package dispatch

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/lease"
)

// Limits of a message.
const (
	MaxID          = 200      // bytes
	MaxContentType = 200      // bytes
	MaxPayload     = 16 << 20 // bytes
	MaxDetail      = 2000     // bytes of what a target said; more is cut
	MaxTrail       = 50       // entries of a message's history that are kept
)

// DefaultContentType of a payload.
const DefaultContentType = "application/octet-stream"

// Message is what a queue delivers: opaque bytes with a key.
type Message struct {
	Queue string
	// Key orders: messages with one key are delivered one after the other.
	Key string
	// ID is unique in its queue; a second message with the same ID is not stored.
	// Default: a random one ([lease.NewID]).
	ID string
	// ContentType of the payload; default [DefaultContentType].
	ContentType string
	Payload     []byte
	// Headers go with the message to its target, such as traceparent, or ce-type and others of CloudEvents; see
	// [ValidateHeaders].
	Headers map[string]string
	// NotBefore, if it lies ahead by the store's clock, keeps the message out of its key until then: it is [Scheduled],
	// holds nothing up, and then joins its key at the end, as if it were enqueued at that moment. Several of one key join
	// in the order of their times, and those of one time in the order in which they were enqueued. A
	// message without it that has the same ID is enqueued all the same, and the scheduled one is dropped when it is due. It
	// is rounded up to whole microseconds.
	NotBefore time.Time
}

// WithDefaults fills what is empty.
func (m Message) WithDefaults() Message {
	if m.ID == "" {
		m.ID = lease.NewID()
	}
	m.ContentType = cmp.Or(m.ContentType, DefaultContentType)
	if !m.NotBefore.IsZero() {
		m.NotBefore = m.NotBefore.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC() // up: not a moment too early
	}
	return m
}

// Validate returns an error that wraps [lease.ErrInvalid] and says which field
// is wrong, and how.
func (m Message) Validate() error {
	if err := ValidateQueue(m.Queue); err != nil {
		return err
	}
	if err := lease.ValidateText("key", m.Key, 1, lease.MaxKey); err != nil {
		return err
	}
	if err := lease.ValidateText("message id", m.ID, 1, MaxID); err != nil {
		return err
	}
	if err := lease.ValidateText("content type", m.ContentType, 1, MaxContentType); err != nil {
		return err
	}
	if len(m.Payload) > MaxPayload {
		return fmt.Errorf("%w: the payload has %d bytes; at most %d are allowed", lease.ErrInvalid, len(m.Payload), MaxPayload)
	}
	if year := m.NotBefore.UTC().Year(); year > maxYear {
		return fmt.Errorf("%w: not before the year %d; at most %d is allowed", lease.ErrInvalid, year, maxYear)
	}
	return ValidateHeaders(m.Headers)
}

// maxYear is the last that RFC 3339 can write.
const maxYear = 9999

// CutDetail bounds what a target said to [MaxDetail] bytes of valid UTF-8.
func CutDetail(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxDetail {
		return s
	}
	end := MaxDetail
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// ValidateQueue checks a queue's name: as a space of leases, 1 to 32 of a–z, 0–9,
// '-', '_' and '.', starting with a letter.
func ValidateQueue(name string) error {
	if err := lease.ValidateSpace(name); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// Space is the space of package claim in which a queue's keys are. No user's own
// space can have this name.
func Space(queue string) string { return "queue/" + queue }

// State of a message; see the package's documentation.
type State string

// States of a message.
const (
	Scheduled  State = "scheduled"
	Queued     State = "queued"
	Submitting State = "submitting"
	Pending    State = "pending"
	Valid      State = "valid"
	Delayed    State = "delayed"
	Unknown    State = "unknown"
	Committed  State = "committed"
	Invalid    State = "invalid"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
)

// States in the order of a message's life.
func States() []State {
	return []State{Scheduled, Queued, Submitting, Pending, Valid, Delayed, Unknown, Committed, Invalid, Failed, Cancelled}
}

// IsAtTarget reports that the target has the message and has not decided.
func (s State) IsAtTarget() bool { return s == Pending || s == Valid }

// IsFinal reports that a dispatcher has nothing more to do with the message. An
// operator may still retry invalid, failed and cancelled ones.
func (s State) IsFinal() bool {
	return s == Committed || s == Invalid || s == Failed || s == Cancelled
}

// TrailEntry is one entry of a message's own history.
type TrailEntry struct {
	At      time.Time `json:"at"`
	State   State     `json:"state"`
	Term    int64     `json:"term,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Code    int       `json:"code,omitempty"`
	Detail  string    `json:"detail,omitempty"`
	// Action of the operator that this entry is of, if any; Detail names the operator.
	Action Action `json:"action,omitempty"`
}

// Record is a message as the store shows it.
type Record struct {
	Message // lists leave payload and headers out; NotBefore is that of a scheduled message alone
	Size    int
	// Seq is its place in its key's order, counted from 1; of a scheduled message, its place among those that are.
	Seq   int64
	State State
	// Term, Attempts, Code and Detail are those of the last submission: attempts
	// count from 1, Code is the target's status, 0 when there was no answer.
	Term     int64
	Attempts int
	Code     int
	Detail   string
	// Link is where the target said that its status can be asked.
	Link string
	// Enqueued, Begun and Ended are times by the store's wall clock; zero when
	// that has not happened. Enqueued is when it joined its key, for one that was scheduled its time; Ended is when it
	// reached a final state.
	Enqueued time.Time
	Begun    time.Time
	Ended    time.Time
	// Blocks: its key waits for an operator because of it.
	Blocks bool
	// Trail is its history, oldest first; List leaves it out. Of a message that
	// was committed at the first attempt it is made up of the times above.
	Trail []TrailEntry
}
