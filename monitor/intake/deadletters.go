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
	defaultLetters = 100
	maxLetter      = 1 << 10 // bytes of a message that are kept
)

// DeadLetter is a message that was not taken.
type DeadLetter struct {
	At     time.Time
	Path   string // by which it came
	Cause  Cause
	Detail string
	Body   []byte // cut to 1 KiB
}

// DeadLetters are the dead letters of a process: the newest of each cause, so that a
// flood of one kind does not wash the others away. The zero value is not usable; nil takes
// letters and forgets them.
type DeadLetters struct {
	size int

	mu     sync.Mutex
	kept   map[Cause][]DeadLetter // a ring each
	counts map[string]int64
}

// NewDeadLetters keeps up to size letters of each cause; 0 is 100.
func NewDeadLetters(size int) *DeadLetters {
	if size <= 0 {
		size = defaultLetters
	}
	return &DeadLetters{size: size, kept: map[Cause][]DeadLetter{}, counts: map[string]int64{}}
}

// Add keeps a copy of a letter, in place of the oldest of its cause if need be.
func (l *DeadLetters) Add(letter DeadLetter) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.counts[string(letter.Cause)]
	l.counts[string(letter.Cause)] = n + 1
	kept := l.kept[letter.Cause]
	if len(kept) < l.size {
		letter.Body = bytes.Clone(letter.Body[:min(len(letter.Body), maxLetter)])
		l.kept[letter.Cause] = append(kept, letter)
		return
	}
	old := &kept[n%int64(l.size)]
	letter.Body = append(old.Body[:0], letter.Body[:min(len(letter.Body), maxLetter)]...)
	*old = letter
}

// List returns all that are kept, the newest first.
func (l *DeadLetters) List() []DeadLetter {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []DeadLetter
	for cause, kept := range l.kept {
		next := int(l.counts[string(cause)] % int64(l.size)) // the oldest, once the ring is full
		for i := range kept {
			letter := kept[(next-1-i+2*len(kept))%len(kept)]
			letter.Body = bytes.Clone(letter.Body)
			out = append(out, letter)
		}
	}
	slices.SortStableFunc(out, func(a, b DeadLetter) int { return b.At.Compare(a.At) })
	return out
}

// Counts are how many there ever were, by cause.
func (l *DeadLetters) Counts() map[string]int64 {
	out := map[string]int64{}
	if l == nil {
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(out, l.counts)
	return out
}
