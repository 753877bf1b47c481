package cache

import (
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

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
	Stale From = "stale" // an old copy was here; a fetch has begun, if one can
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
	Key     string         `json:"key"`
	State   protocol.State `json:"-"`
	Doing   string         `json:"state"`          // the state's name
	Peer    string         `json:"peer,omitempty"` // who is followed
	Term    int64          `json:"term"`
	Size    int            `json:"size"`
	Digest  string         `json:"digest,omitempty"`
	Made    *time.Time     `json:"made,omitempty"`
	Expire  *time.Time     `json:"expire,omitempty"`
	Fresh   bool           `json:"fresh"`
	Waiting int            `json:"waiting"`
	Failure string         `json:"failure,omitempty"` // of the last fetch, while its back-off lasts
	Retry   *time.Time     `json:"retry,omitempty"`   // when the next may start
}

// PeerView is what a peer knows of another, or of itself.
type PeerView struct {
	URL     string         `json:"url"`
	API     string         `json:"api"`
	Self    bool           `json:"self,omitempty"`
	Link    string         `json:"link"`            // up, down or dead
	Since   *time.Time     `json:"since,omitempty"` // of the link's state
	Kind    string         `json:"kind"`            // understudy, other or unknown
	List    string         `json:"list,omitempty"`  // its list of members: same, or +URL and -URL of those it has more and less
	Skew    *time.Duration `json:"-"`               // the API gives skew_ms
	Busy    bool           `json:"busy,omitempty"`
	Dropped int64          `json:"dropped"` // messages to it that found its queue full
}

// ClusterView is a peer's view of the cluster.
type ClusterView struct {
	Self        string     `json:"self"`
	Member      bool       `json:"member"`
	Majority    int        `json:"majority"`
	Connected   int        `json:"connected"` // this peer included
	Partitioned bool       `json:"partitioned"`
	Abstaining  bool       `json:"abstaining"`
	Trouble     string     `json:"trouble,omitempty"` // what a person should look at
	Peers       []PeerView `json:"peers"`
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
	Partitions                              int64
	Saves, SaveFailures                     int64
	Removals                                int64
}

// Event is something that a watcher may want to see.
type Event struct {
	Time time.Time `json:"time"`
	Key  string    `json:"key,omitempty"`
	From string    `json:"from,omitempty"` // states
	To   string    `json:"to,omitempty"`
	Term int64     `json:"term,omitempty"`
	Peer string    `json:"peer,omitempty"`
	Why  string    `json:"why"`
}
