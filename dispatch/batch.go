package dispatch

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/lease"
)

// Limits of a batch.
const (
	MaxID          = 200      // bytes
	MaxContentType = 200      // bytes
	MaxPayload     = 16 << 20 // bytes
	MaxDetail      = 2000     // bytes of what a target said; more is cut
	MaxTrail       = 50       // entries of a batch's history that are kept
)

// DefaultContentType of a payload.
const DefaultContentType = "application/octet-stream"

// Batch is what is delivered: opaque bytes with a key, within a queue.
type Batch struct {
	Queue string
	// Key orders: batches of one key are delivered one after the other.
	Key string
	// ID is unique in its queue; given twice, the second batch is not stored.
	// Default: a random one ([lease.NewID]).
	ID string
	// ContentType of the payload; default [DefaultContentType].
	ContentType string
	Payload     []byte
}

// WithDefaults fills what is empty.
func (b Batch) WithDefaults() Batch {
	if b.ID == "" {
		b.ID = lease.NewID()
	}
	if b.ContentType == "" {
		b.ContentType = DefaultContentType
	}
	return b
}

// Validate returns an error that wraps [lease.ErrInvalid] and says which field
// is wrong, and how.
func (b Batch) Validate() error {
	if err := ValidateQueue(b.Queue); err != nil {
		return err
	}
	if err := lease.ValidateText("key", b.Key, 1, lease.MaxKey); err != nil {
		return err
	}
	if err := lease.ValidateText("batch id", b.ID, 1, MaxID); err != nil {
		return err
	}
	if err := lease.ValidateText("content type", b.ContentType, 1, MaxContentType); err != nil {
		return err
	}
	if len(b.Payload) > MaxPayload {
		return fmt.Errorf("%w: the payload has %d bytes; at most %d are allowed", lease.ErrInvalid, len(b.Payload), MaxPayload)
	}
	return nil
}

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

// QueueOf is the reverse of [Space]; ok is false for other spaces.
func QueueOf(space string) (queue string, ok bool) { return strings.CutPrefix(space, "queue/") }

// State of a batch; see the package's documentation.
type State string

// States of a batch.
const (
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

// States in the order of a batch's life.
func States() []State {
	return []State{Queued, Submitting, Pending, Valid, Delayed, Unknown, Committed, Invalid, Failed, Cancelled}
}

// Final tells that the batch needs nothing more from a dispatcher. A person may
// still ask for invalid, failed and cancelled ones to be tried again.
func (s State) Final() bool {
	return s == Committed || s == Invalid || s == Failed || s == Cancelled
}

// Step is one entry of a batch's own history.
type Step struct {
	At      time.Time `json:"at"`
	State   State     `json:"state"`
	Term    int64     `json:"term,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Code    int       `json:"code,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

// Record is a batch as the store shows it.
type Record struct {
	Batch // List leaves the payload out
	Size  int
	// Seq is its place in its key's order, counted from 1.
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
	// that has not happened. Ended is when it reached a final state.
	Enqueued time.Time
	Begun    time.Time
	Ended    time.Time
	// Blocks: its key waits for a person because of it.
	Blocks bool
	// Trail is its history, oldest first; List leaves it out. Of a batch that
	// was committed at the first attempt it is made up of the times above.
	Trail []Step
}
