package protocol

import "time"

// Effect is what the runner does after a step: one of [Send], [Reply],
// [KeepAlive], [Refuse], [KeysRemoved], [MembersChanged], [StartFetch], [Trust], [Abort],
// [Save], [Raise], [SaveRemovals], [SaveMembers] and [StateChanged].
type Effect interface{ effect() }

// Send gives a message to a peer, or, without To, to all of them.
type Send struct {
	To      string
	Message Message
}

// Reply gives a value to who asked for it.
type Reply struct {
	Token Token
	Entry Entry
}

// KeepAlive tells someone that the wait continues.
type KeepAlive struct{ Token Token }

// Refuse tells someone that there is no value, why, and when to ask again.
type Refuse struct {
	Token  Token
	Reason Reason
	Why    string
	Wait   time.Duration
}

// Reason is why a request was refused.
type Reason byte

// Reasons to refuse a request.
const (
	OriginFailed Reason = iota + 1
	Partitioned
	Overloaded
	TimedOut
	Broken // this peer cannot do its part: its storage or its clock
	// For these, another peer may do what this one does not.
	NotMember
	Stopping
	Passive
)

// KeysRemoved says how many of the members have confirmed a removal, this one included.
type KeysRemoved struct {
	Token         Token
	Confirmed, Of int
}

// MembersChanged answers a [ChangeMembers].
type MembersChanged struct {
	Token Token
	Err   string // why the list was refused, and what to do; empty: it is in force
}

// StartFetch calls the origin; it ends with a [Fetched] input of the same term. The call
// must not outlive Until, which [Trust] moves and [Abort] ends. The runner bounds how many calls run at
// once (cache/fetches.go, Config.Fetches): a won key may wait there for a place, while
// its votes stay bound and Until comes nearer.
type StartFetch struct {
	Key   string
	Term  int64
	Stale Entry // what is being replaced
	Until time.Duration
	// Deadline is [Timings.FetchTimeout] after the start, and never before Until: a call that lasts to it was too slow, one that
	// must stop before has lost its majority.
	Deadline time.Duration
}

// Trust moves the time, on the boot clock, at which a fetch must have stopped.
type Trust struct {
	Key   string
	Term  int64
	Until time.Duration
}

// Abort ends a fetch early: trust or its time ran out, another peer fetched or may, or the key was removed.
// Its result is ignored.
type Abort struct {
	Key  string
	Term int64
	Why  string
}

// Save says that the entry of a key has changed. The runner stores, when there is time, what the table has of it then.
type Save struct {
	Key   string
	Entry Entry
}

// Raise stores that terms up to To may have been used, before it is reported by
// [Raised]: it must be safe from a crash of the machine.
type Raise struct{ To int64 }

// SaveRemovals stores all removals that are known. The effects that follow wait until it has been tried (see [Barrier]).
type SaveRemovals struct{ All []Removal }

// SaveMembers stores the list of members in force, safe from a crash of the machine. The effects that follow wait until it
// has been tried. They go on after a failure, too: a peer that starts with another list than the stored one abstains first
// (restoreMembers), so no promise rests on the list being stored.
type SaveMembers struct{ State MembersState }

// StateChanged tells of a change of a key's state, for logs and for operators who watch. Without a key it concerns the whole
// peer, and only Why is set.
type StateChanged struct {
	Key      string
	From, To State
	Term     int64
	Peer     string // who is followed
	Why      string
}

func (Send) effect()           {}
func (Reply) effect()          {}
func (KeepAlive) effect()      {}
func (Refuse) effect()         {}
func (KeysRemoved) effect()    {}
func (MembersChanged) effect() {}
func (StartFetch) effect()     {}
func (Trust) effect()          {}
func (Abort) effect()          {}
func (Save) effect()           {}
func (Raise) effect()          {}
func (SaveRemovals) effect()   {}
func (SaveMembers) effect()    {}
func (StateChanged) effect()   {}
