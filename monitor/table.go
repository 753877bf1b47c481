package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

var (
	// ErrNoSource: no such source, or it was forgotten.
	ErrNoSource = errors.New("monitor: no such source")
	// ErrNoEvent: no such event name is configured.
	ErrNoEvent = errors.New("monitor: no such event name")
	// ErrNoAlarm: no such alarm, or it was pruned.
	ErrNoAlarm = errors.New("monitor: no such alarm")
)

// Limits of one call. Callers split what is more.
const (
	MaxBeats   = 10_000 // of one Store
	MaxSources = 1000   // of one Resolve, Due, Apply or Declare
	MaxPage    = 1000   // rows of a list
)

// Space is the space of package claim in which the sources are divided. No user's
// own space can have this name.
const Space = "monitor/sources"

// Partitions is into how many parts the sources are divided; see [Keys].
const Partitions = 64

// SweepKey is claimed by the instance that does what is done once: see
// [Detection.Sweep] and [Detection.Held].
const SweepKey = "sweep"

// PartitionKey is the key of a partition in [Space].
func PartitionKey(partition int) string { return fmt.Sprintf("%02d", partition) }

// Keys are all keys of [Space].
func Keys() []string {
	keys := make([]string, 0, Partitions+1)
	for i := range Partitions {
		keys = append(keys, PartitionKey(i))
	}
	return append(keys, SweepKey)
}

// QueueOf is the queue of package dispatch from which a sink is told.
func QueueOf(sink string) string { return "alarms." + sink }

// ValidateSink checks a sink's name: what a queue of it can be made from.
func ValidateSink(name string) error {
	if len(name) > 25 {
		return fmt.Errorf("%w: sink %q: use at most 25 bytes", lease.ErrInvalid, name)
	}
	if err := lease.ValidateSpace(name); err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	return nil
}

// Signal is what a beat says besides that its source is alive.
type Signal uint8

// Signals.
const (
	Fine  Signal = 0 // all is well; it ends a run, and what had failed before
	Start Signal = 1 // a run begins. It is no beat: a run that hangs is found by the one that misses
	Fail  Signal = 2 // what it does has failed; it ends a run
)

// Ref names a source.
type Ref struct {
	Event  string
	Source string
}

// Resolved is what is known of a [Ref].
type Resolved struct {
	// ID of the source, never used again for another; 0 when it is not known, and
	// not learned, because its event is not configured or fixed.
	ID int64
	// SenderClock is that of its event.
	SenderClock bool
}

// Stamp is a beat on its way into the store.
type Stamp struct {
	Source int64
	// Path is its place in Delivery.Proofs.
	Path   int
	Signal Signal
	// Code is the exit status of a run, 0 without one.
	Code int
	// Sent is the sender's time, and Seq its number; zero when it did not say. A
	// beat that has a Sent, and both the same as the last one, is a replay: it is
	// counted as one, and changes nothing about its source.
	Sent time.Time
	Seq  int64
	// BySender judges by Sent: the beat counts from then, but not before the last
	// one and not in the future.
	BySender bool
	// Count is how many beats it stands for, at least 1: several of one source that
	// came together are one.
	Count int
}

// Proof says that a path works.
type Proof struct {
	Path  string
	Trust time.Duration // see [Path]
	Gap   time.Duration
	// Unproven: it only names the path of beats, of which others may still be on
	// their way. Nothing is known of the path by it, but that it exists.
	Unproven bool
}

// Delivery is what an instance took in since the last one.
type Delivery struct {
	// Proofs of paths, each once. They are recorded before the beats.
	Proofs []Proof
	// Beats of sources, each once, in the order of their ids; at most MaxBeats.
	Beats []Stamp
}

// Stored is the store's answer to a [Delivery].
type Stored struct {
	// Unknown are sources that are not there (any more): resolve them anew.
	Unknown []int64
	// Replayed is how many beats were replays.
	Replayed int
	// Generation: see [Settings].
	Generation int64
}

// Intake stores beats. Methods of this port and the others return
// [lease.ErrUnavailable] when nothing can have been done, [lease.ErrUnknown] when
// it may have been, and [lease.ErrInvalid], with nothing done, for more than a call
// may bring or a path that is none of its proofs; they are safe to use from many
// goroutines, and each is atomic. Any text is only data to a store.
type Intake interface {
	// Resolve finds sources, and learns those whose event is configured and not
	// fixed. At most MaxSources, in any order; a Ref may be given twice. One that
	// cannot be a name is not known, and no error.
	Resolve(ctx context.Context, refs []Ref) ([]Resolved, error)

	// Store records proofs and beats in one statement. A beat moves nothing but its
	// own row, unless an alarm of its source stands, it is [Retired] or in a run, or
	// the signal is not [Fine]: then the source becomes due at once. A Start moves
	// neither the last beat nor what is known of it.
	//
	// The first proof of a path resumes it. When more time than its gap lies between a proof and
	// the one before, all of it was blind. When nothing at all was proven for
	// longer than the gap of the proof that comes, because no instance was up or the
	// store's clock skipped that time, every path was blind until its next proof.
	Store(ctx context.Context, d Delivery) (Stored, error)
}

// Settings are what all instances share.
type Settings struct {
	// Generation changes with every change of the rest.
	Generation int64
	Events     []Expected
	// Sinks that are told of alarms.
	Sinks []string
}

// Expected is an event name as the store has it.
type Expected struct {
	Event // with defaults
	ID    int64
	// Rev changes with every change of the event.
	Rev int64
	// Removed events are those whose sources are still to be forgotten.
	Removed bool
}

// Candidate is a source that may have to turn, with all that its rule needs.
type Candidate struct {
	ID     int64
	Event  int64 // id
	Source string
	Labels map[string]string
	// Rev, Stamp and EventRev are versions of what was read: of the source, its
	// last beat, and its event.
	Rev, Stamp, EventRev int64
	Facts
	// Held: its alarm waits to be reported with others. Group is the alarm of the
	// group that it was reported with.
	Held  bool
	Group string
	// Started is when the outage that stands began, by the wall clock.
	Started time.Time
}

// Look is the answer to [Detection.Due] and Sweep.
type Look struct {
	Now        Moment
	Wall       time.Time
	Generation int64
	Candidates []Candidate
	// Next is when the next source will be due that is not among these; before
	// Now if there are more already.
	Next Moment
}

// Change is what becomes of a candidate. It is made if nothing of what was judged
// has changed meanwhile: neither the source, nor its beat, nor its event.
type Change struct {
	ID                   int64
	Rev, Stamp, EventRev int64
	Turn                 Turn
	Due                  Moment
	Well                 Moment
	// Base is the new one, with Resume and Return.
	Base Moment
	// Of an alarm that begins or ends: Alarm is its id, which Onset gives it.
	Alarm  string
	Reason Reason
	At     time.Time // when it began or ended, by the wall clock
	// Group: the alarm is held, to be reported with others of this group: the event,
	// '/', and the value of its label.
	Group string
	// Notices are enqueued if the change is made, in this order.
	Notices []Notice
}

// Notice is what a sink is told: a batch in the queue of [QueueOf], ordered by Key
// and recognised by ID.
type Notice struct {
	Sink    string
	Key     string
	ID      string
	Payload []byte
}

// HeldGroup are alarms that wait to be reported together, or were and have ended.
type HeldGroup struct {
	Group string
	Event string // its name
	// Alarm of the group, "" when it was not reported; Started is when it began.
	Alarm   string
	Started time.Time
	// Oldest is how long the oldest of Members has waited.
	Oldest time.Duration
	// Members are the alarms that are held, the oldest first, at most MaxSources of
	// them; Count is how many there are. Of a group that was reported, they are those
	// that joined since.
	Members []Alarm
	Count   int
	// Standing is how many alarms that were reported with the group still stand.
	Standing int
}

// Report tells that held alarms were reported: as the members of a group, or, with
// Alarm "", each by itself. It is made if all Members are still held, and End only
// if none of the group stands.
type Report struct {
	Group string
	// Alarm of the group: a new one, or the one that stands.
	Alarm   string
	Members []string
	// End ends the alarm of the group.
	End     bool
	At      time.Time
	Notices []Notice
}

// Detection finds and turns sources.
type Detection interface {
	// Settings reads what all instances share.
	Settings(ctx context.Context) (Settings, error)

	// Due returns up to limit sources of the partitions whose time has come, those
	// first that are due for longest. Its cost grows with these, not with the sources that there are.
	Due(ctx context.Context, partitions []int, limit int) (Look, error)

	// Apply makes changes, each if what it was judged on still holds, and tells
	// which were made; the others stay due as they were. A change that only moves
	// Due leaves Rev alone. An Onset makes the source [Down] and begins an alarm;
	// Abated ends it; Retire and Forget end it if one stands. Notices for a sink that
	// is not registered are left out. Each alarm that begins or ends is an event of the history:
	// part "monitor", subject event + "/" + source, reason the Reason, or the Turn.
	Apply(ctx context.Context, changes []Change) ([]bool, error)

	// Sweep does up to limit of what is left to do behind people's backs: it looks
	// again at sources whose event's timing changed, and deletes alarms that ended
	// longer than keep ago. It returns sources for [Forget]: those of removed events,
	// and those that were learned and have been retired for longer than keep. Next is
	// not after Now while more is left. A removed event is gone with its last source,
	// at the next Sweep.
	Sweep(ctx context.Context, keep time.Duration, limit int) (Look, error)

	// Held lists groups of alarms that have members held or none left standing.
	Held(ctx context.Context) ([]HeldGroup, error)

	// Report reports held alarms, or ends a group's, and tells whether it was made.
	Report(ctx context.Context, r Report) (bool, error)
}

// Table is all that a store keeps for the monitor.
type Table interface {
	Intake
	Detection
	Desk
}
