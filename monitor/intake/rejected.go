package intake

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"
)

// Cause is why a message was not taken.
type Cause string

// Causes, all there are.
const (
	Syntax     Cause = "syntax"        // it is not JSON
	Kind       Cause = "kind"          // it is JSON, but neither a beat nor a VES event
	NoEvent    Cause = "no_event"      // the event's name is missing
	NoSource   Cause = "no_source"     // the source's name is missing
	NoTime     Cause = "no_time"       // a VES event has no lastEpochMicrosec
	NoSequence Cause = "no_sequence"   // a VES event has no sequence
	BadName    Cause = "name"          // an event or a source that nothing can be called
	BadTime    Cause = "time"          // no time
	BadNumber  Cause = "number"        // a code or a sequence that is none
	BadSignal  Cause = "signal"        // neither ok nor start nor fail
	NotKnown   Cause = "unknown_event" // not configured; or fixed, and the source is not declared
	CheckFull  Cause = "check_full"    // its check has learned as many sources as it may
	Forbidden  Cause = "forbidden"     // the key is not for this event
	Answer     Cause = "answer"        // a router's answer that is broken or too large
	Refused    Cause = "refused"       // the store does not take it
	NoDomain   Cause = "no_domain"     // a VES event has no domain
	// OtherDomain is no fault: a VES event of another domain than heartbeat, which is counted and not kept.
	OtherDomain Cause = "other_domain"
)

// isUnknown reports whether a heartbeat of this cause counts as unknown: its source is not known, and was not learned.
func (c Cause) isUnknown() bool { return c == NotKnown || c == CheckFull }

const (
	defaultRejected = 100
	maxBody         = 1 << 10 // bytes of a message that are kept
)

// RejectedInput is a message that was not taken.
type RejectedInput struct {
	At     time.Time
	Path   string // by which it came
	Cause  Cause
	Detail string
	Body   []byte // cut to 1 KiB
}

// RejectedInputs is what a process rejected: the newest of each cause, so that a
// flood of one kind does not wash the others away. The zero value is not usable; nil takes
// inputs and forgets them.
type RejectedInputs struct {
	size int

	mu     sync.Mutex
	kept   map[Cause][]RejectedInput // a ring each
	counts map[string]int64
}

// NewRejectedInputs keeps up to size inputs of each cause; 0 is 100.
func NewRejectedInputs(size int) *RejectedInputs {
	if size <= 0 {
		size = defaultRejected
	}
	return &RejectedInputs{size: size, kept: map[Cause][]RejectedInput{}, counts: map[string]int64{}}
}

// Add keeps a copy of an input, in place of the oldest of its cause if need be.
func (l *RejectedInputs) Add(input RejectedInput) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.counts[string(input.Cause)]
	l.counts[string(input.Cause)] = n + 1
	kept := l.kept[input.Cause]
	if len(kept) < l.size {
		input.Body = bytes.Clone(input.Body[:min(len(input.Body), maxBody)])
		l.kept[input.Cause] = append(kept, input)
		return
	}
	old := &kept[n%int64(l.size)]
	input.Body = append(old.Body[:0], input.Body[:min(len(input.Body), maxBody)]...)
	*old = input
}

// List returns all that are kept, the newest first.
func (l *RejectedInputs) List() []RejectedInput {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []RejectedInput
	for cause, kept := range l.kept {
		next := int(l.counts[string(cause)] % int64(l.size)) // the oldest, once the ring is full
		for i := range kept {
			input := kept[(next-1-i+2*len(kept))%len(kept)]
			input.Body = bytes.Clone(input.Body)
			out = append(out, input)
		}
	}
	slices.SortStableFunc(out, func(a, b RejectedInput) int { return b.At.Compare(a.At) })
	return out
}

// Counts are how many there ever were, by cause.
func (l *RejectedInputs) Counts() map[string]int64 {
	out := map[string]int64{}
	if l == nil {
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(out, l.counts)
	return out
}
