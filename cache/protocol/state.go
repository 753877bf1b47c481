package protocol

// State is what a peer does about a key.
type State byte

// The states of a key. A follower is bound in one of two ways: to a candidate that it voted for, or to a peer that
// fetches, which it follows (key.boundToFetch). The order counts: from Candidate on, the peer stands or fetches (setState).
const (
	Idle State = iota
	Follower
	Candidate
	Fetching
)

// String is the state's name.
func (s State) String() string {
	return [...]string{"idle", "follower", "candidate", "fetching"}[s]
}
