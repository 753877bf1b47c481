package cache

import "time"

// Item is a copy as it is given to whoever asked.
type Item struct {
	Key    string
	Value  []byte // must not be changed
	Term   int64
	Digest uint64    // of the value: protocol.Digest
	Expire time.Time // until then it is fresh
	Made   time.Time // when its fetch began; zero: unknown
	// From says where it was found.
	From From
}

// From is how a request was served.
type From string

// Ways to serve a request.
const (
	Hit   From = "hit"   // a fresh copy was here
	Stale From = "stale" // an old copy was here; a fetch has started, if one can
	Miss  From = "miss"  // it was waited for
)

// GetOptions say which copy will do.
type GetOptions struct {
	// After asks for a copy that expires after this; zero: any copy, however stale.
	After time.Time
	// Refresh asks for a fetch even where a fresh copy is held.
	Refresh bool
}

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
	Unready     string // why this peer may fetch nothing now; empty: it may
	Peers       []PeerView
}

// Stats are counters since the start, and levels.
type Stats struct {
	Hits, Stales, Misses, Referred, Refused int64
	Waiting                                 int64 // level
	Keys                                    int64 // level
	Bytes                                   int64 // level
	Evicted                                 int64
	Elections, Won, Yielded                 int64
	Fetches, FetchFailures, FetchAborted    int64
	Fetching                                int64         // level
	ElectionTime, FetchTime                 time.Duration // sums
	Sent, Received, Dropped, Malformed      int64         // messages between peers; of clients: Requests
	Requests, BadRequests                   int64
	Clients                                 int64 // level
	Slow                                    int64 // clients disconnected because they did not read
	Partitions                              int64
	Saves, SaveFailures                     int64
	Removals                                int64
}

// Event is something that a watcher may want to see.
type Event struct {
	Time time.Time
	Key  string
	From string // states
	To   string
	Term int64
	Peer string
	Why  string
}
