package apitype

import (
	"encoding/json"
	"fmt"
	"time"
)

// Message is a message of a queue, without its payload.
type Message struct {
	Queue string `json:"queue"`
	Key   string `json:"key"`
	ID    string `json:"id"`
	Seq   int64  `json:"seq"` // its place in its key's order, from 1; of a scheduled message, among those
	// State; committed, invalid, failed and cancelled are final.
	State       string `json:"state" enum:"scheduled,queued,submitting,pending,valid,delayed,unknown,committed,invalid,failed,cancelled"`
	ContentType string `json:"content_type"`
	Size        int    `json:"size"`     // of the payload, in bytes
	Attempts    int    `json:"attempts"` // submissions so far
	// Term, Code and Detail are of the last submission.
	Term     int64     `json:"term"`
	Code     int       `json:"code,omitempty"`   // the target's last status
	Detail   string    `json:"detail,omitempty"` // what the target said last
	Link     string    `json:"link,omitempty"`   // where the target says that its status can be asked
	Blocks   bool      `json:"blocks"`           // its key waits for an operator because of it
	Enqueued time.Time `json:"enqueued"`
	Begun    time.Time `json:"begun,omitzero"` // when it was first submitted
	Ended    time.Time `json:"ended,omitzero"` // when it became final
	// NotBefore is until when a scheduled message waits. Then it joins its key.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Headers go with the message to its target; lists leave them out.
	Headers Headers `json:"headers,omitempty"`
	// Trail is its history, the oldest first; lists leave it out.
	Trail []MessageStep `json:"trail,omitempty"`
}

// MessageStep is one entry of a message's history.
type MessageStep struct {
	At      time.Time `json:"at"`
	State   string    `json:"state"`
	Term    int64     `json:"term,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Code    int       `json:"code,omitempty"`
	Detail  string    `json:"detail,omitempty"`
	// Action of the operator that this entry is of, if any; Detail names the operator.
	Action string `json:"action,omitempty" enum:"retry,retry-unknown,skip,cancel"`
}

// NewMessage is a message to enqueue. Give at most one of the three payloads.
type NewMessage struct {
	Key string `json:"key"`
	// ID is unique in the queue. Without one the server gives a random one, and a call without an answer cannot be
	// repeated safely.
	ID          string  `json:"id,omitempty"`
	ContentType string  `json:"content_type,omitempty"`
	Payload     *string `json:"payload,omitempty"`        // text
	Base64      []byte  `json:"payload_base64,omitempty"` // any bytes
	// JSON is any value; it is stored as it is written.
	JSON json.RawMessage `json:"payload_json,omitempty"`
	// Headers go with the message to its target, such as traceparent, or ce-type of CloudEvents.
	Headers Headers `json:"headers,omitempty"`
	// NotBefore is before when it is not sent, by the store's clock. Until then it is scheduled: in no key, and in nobody's way.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Headers of a message, by name.
type Headers map[string]string

// maxHeaders is more than the headers of a message can be, in bytes of JSON.
const maxHeaders = 64 << 10

// UnmarshalJSON implements [json.Unmarshaler]. It looks at the length first: what a caller sends never decides how much
// memory it takes.
func (h *Headers) UnmarshalJSON(text []byte) error {
	if len(text) > maxHeaders {
		return fmt.Errorf("the headers have %d bytes of JSON; at most %d are allowed", len(text), maxHeaders)
	}
	return json.Unmarshal(text, (*map[string]string)(h))
}

// AddedMessage says what became of a message to enqueue.
type AddedMessage struct {
	ID string `json:"id"`
	// Added is false when the queue already has a message with that id: then nothing was stored.
	Added bool `json:"added"`
}

// MessageAction says what was done with a message.
type MessageAction struct {
	Queue  string `json:"queue"`
	ID     string `json:"id"`
	Action string `json:"action" enum:"retry,retry-unknown,skip,cancel"`
}

// RetryMessage says who asks that a message be sent again, and whether that person knows what may happen.
type RetryMessage struct {
	By string `json:"by,omitempty"`
	// IKnow is needed where the target may have the message already: whoever says it has looked there, or accepts that
	// the target acts on it twice.
	IKnow bool `json:"i_know,omitempty"`
}

// Caller says who asks, for the history.
type Caller struct {
	By string `json:"by,omitempty"`
}

// Messages is a list of messages.
type Messages struct {
	Messages []Message `json:"messages"`
	Next     string    `json:"next,omitempty"`
}

// NewMessages are messages to enqueue, all or none.
type NewMessages struct {
	Messages []NewMessage `json:"messages"`
}

// AddedMessages says what became of messages to enqueue, in their order.
type AddedMessages struct {
	Messages []AddedMessage `json:"messages"`
}
