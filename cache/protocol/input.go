package protocol

import "time"

// Now is the time of a step, by both of the peer's clocks.
type Now struct {
	// Boot only moves forward and counts suspend; every wait is measured on it.
	Boot time.Duration
	// Wall is Unix milliseconds; copies expire by it, and terms start from it.
	Wall int64
}

// Token names someone who waits: chosen by the runner, unique while it is in use.
type Token uint64

// Input is what happens to a peer: [Get], [Cancel], [RemoveKeys], [Received], [Link], [Unusable],
// [Fetched], [Raised], [ChangeMembers], [Stop] or [Tick].
type Input interface{ input() }

// Get asks for a value that expires later than MinExpire. Every Get is answered by exactly
// [Reply] or [Refuse], unless a [Cancel] comes first.
type Get struct {
	Key       string
	MinExpire int64 // Unix milliseconds, now at most; 0: any copy, however stale
	// Refresh asks for a fetch that starts from now on, even where a fresh copy is held.
	Refresh bool
	// Until bounds the wait, on the boot clock.
	Until time.Duration
	Token Token
}

// Cancel forgets a Get.
type Cancel struct{ Token Token }

// RemoveKeys removes copies here and on every peer that can be reached, now or
// later. It is answered by [KeysRemoved].
type RemoveKeys struct {
	Scope Scope
	Name  string
	// Until bounds the wait for the others' confirmations, on the boot clock.
	Until time.Duration
	Token Token
}

// Received is a message from a peer.
type Received struct {
	From    string
	Message Message
}

// LinkState is what the transport knows of a peer.
type LinkState byte

// States of a link.
const (
	Down LinkState = iota // nothing is known of the peer itself
	Up                    // what the peer says is heard
	Dead                  // its address refuses connections: the process has ended
)

// Link is a change of a link.
type Link struct {
	Peer  string
	State LinkState
}

// Unusable says why this peer can use nothing of what another sends, though that one listens: another secret or key, for
// instance. Empty: nothing is known to be wrong.
type Unusable struct{ Peer, Why string }

// Fetched is the end of the fetch that [StartFetch] asked for.
type Fetched struct {
	Key   string
	Term  int64
	Value []byte
	// TTL overrides the configured time to live when it is above 0: at least a second, at most [Timings].MaxTTL.
	TTL time.Duration
	// NoStore: the value answers the requests that wait here, and no copy of it is kept anywhere.
	NoStore bool
	// Err is why there is no value; empty: there is one.
	Err string
	// Stopped: the peer stops, and the call was ended or never made. That is not a failure of the origin.
	Stopped bool
	// TrustEnded: the call was ended or never made because its Until had come. That is not a failure of the origin, either.
	TrustEnded bool
	// Wait overrides the back-off after a failure when it is above 0.
	Wait time.Duration
}

// Raised says that terms up to To are stored, or, when Err is not empty, that they
// could not be.
type Raised struct {
	To  int64
	Err string
}

// ChangeMembers replaces the list of members, by one that differs by one member. It is
// answered by [MembersChanged].
type ChangeMembers struct {
	Members []Member
	Token   Token
}

// Stop is that the peer is about to stop. It makes the peer passive: it stands for no key any more. Its fetches are still
// announced until the runner reports their calls as ended ([Fetched]), so that no other peer calls the origin while this
// peer's call may still run.
type Stop struct{}

// Tick is that time has passed: at [Machine.Next], or at any time.
type Tick struct{}

func (Get) input()           {}
func (Cancel) input()        {}
func (RemoveKeys) input()    {}
func (Received) input()      {}
func (Link) input()          {}
func (Unusable) input()      {}
func (Fetched) input()       {}
func (Raised) input()        {}
func (ChangeMembers) input() {}
func (Stop) input()          {}
func (Tick) input()          {}
