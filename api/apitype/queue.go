package apitype

import "time"

// Queue is a queue at a glance.
type Queue struct {
	Queue string `json:"queue"`
	Depth int64  `json:"depth"` // messages that are not final
	Done  int64  `json:"done"`  // messages that were committed or cancelled, ever
	// DeadLetters are messages that ended as invalid or failed and are not pruned yet, 10000 at most.
	DeadLetters int64 `json:"dead_letters"`
	// Scheduled messages wait for their time; they are not in Depth. 10000 at most are counted.
	Scheduled int64 `json:"scheduled"`
	OldestMS  int64 `json:"oldest_ms"` // how long the oldest waiting message waits, those of blocked keys too; or how overdue a scheduled one is
	Keys      int64 `json:"keys"`      // keys that have messages waiting
	InFlight  int64 `json:"in_flight"` // keys whose message is being submitted
	Pending   int64 `json:"pending"`   // keys whose message the target has and has not decided, without blocked ones
	Delayed   int64 `json:"delayed"`   // keys that wait for another attempt
	// Blocked keys wait for an operator, or for a target that has had their message for too long: when it decides, they go on.
	Blocked int64 `json:"blocked"`
	// Refused counts delayed keys whose message the target refuses, among the first 100 keys.
	Refused int64    `json:"refused,omitempty"`
	Holders []Holder `json:"holders"`
	// BlockedKeys are the first of them; only the state has them.
	BlockedKeys []Key `json:"blocked_keys,omitempty"`
	// RefusedKeys are those of Refused; only the state has them.
	RefusedKeys []Key `json:"refused_keys,omitempty"`
}

// Queues is a list of queues.
type Queues struct {
	// At is when the queues were read: from a store that takes long to count them, up to 3 min ago.
	At     time.Time `json:"at,omitzero"`
	Queues []Queue   `json:"queues"`
	Next   string    `json:"next,omitempty"`
}

// QueueName names a queue.
type QueueName struct {
	Queue string `json:"queue"`
}

// Holder is an instance and how many keys of a queue it holds.
type Holder struct {
	Instance Instance `json:"instance"`
	Keys     int      `json:"keys"`
	Asleep   bool     `json:"asleep"`
}

// Key is a key of a queue.
type Key struct {
	Key       string    `json:"key"`
	Depth     int64     `json:"depth"`           // messages that are not final
	Head      string    `json:"head,omitempty"`  // id of the next message
	State     string    `json:"state,omitempty"` // of that message
	Holder    *Instance `json:"holder,omitempty"`
	Term      int64     `json:"term"`
	InFlight  bool      `json:"in_flight"`
	Blocked   bool      `json:"blocked"`           // it waits for an operator, or for a target that decides late
	Reason    string    `json:"reason,omitempty"`  // why, or what its head waits for, in the target's words
	WaitingMS int64     `json:"waiting_ms"`        // how long its head has waited
	NextMS    int64     `json:"next_ms,omitempty"` // until its head is tried again
}

// Keys is a list of keys.
type Keys struct {
	Keys []Key  `json:"keys"`
	Next string `json:"next,omitempty"`
}
