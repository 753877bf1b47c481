package protocol

// State is what a peer does about a key.
type State byte

// The states of a key. A follower follows a candidate that it voted for, or a peer
// that fetches.
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
