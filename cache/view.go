package cache

import "time"

// KeyView is what a peer knows of a key.
type KeyView struct {
	Key     string
	Doing   string // the state's name
	Peer    string // who is followed
	Term    int64
	Size    int
	Digest  string
	Made    *time.Time
	Expire  *time.Time
	Fresh   bool
	Waiting int
	Failure string     // of the last fetch, while its back-off lasts
	Retry   *time.Time // when the next may start
}

// PeerView is what a peer knows of another, or of itself.
type PeerView struct {
	URL     string
	API     string
	Self    bool
	Link    string     // up, down or dead
	Why     string     // why nothing that it sends can be used, though it listens
	Since   *time.Time // of the link's state
	Kind    string     // understudy, other or unknown
	List    string     // its list of members: same, or +URL and -URL of those it has more and less
	Skew    *time.Duration
	Busy    bool
	Dropped int64 // messages to it that found its queue full
}

// ClusterView is a peer's view of the cluster.
type ClusterView struct {
	Self        string
	Member      bool
	Majority    int
	Connected   int // this peer included
	Partitioned bool
	Abstaining  bool
	Trouble     string // what an operator should look at
	Unready     string // why this peer may fetch nothing now; empty: it may, unless it is passive
	Peers       []PeerView
}
