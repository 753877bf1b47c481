package apitype

import "time"

// CacheKey is what a peer of a cache knows of a key.
type CacheKey struct {
	Key     string    `json:"key"`
	Base64  string    `json:"key_base64,omitempty"` // the key exactly, when it is not UTF-8
	State   string    `json:"state" enum:"idle,follower,candidate,fetching"`
	Peer    string    `json:"peer,omitempty"` // that this peer follows: it fetches, or wants to
	Term    int64     `json:"term"`
	Size    int       `json:"size"`
	Digest  string    `json:"digest,omitempty"`
	Made    time.Time `json:"made,omitzero"`
	Expire  time.Time `json:"expire,omitzero"`
	Fresh   bool      `json:"fresh"`
	Waiting int       `json:"waiting"`           // requests that wait for it here
	Failure string    `json:"failure,omitempty"` // of the last fetch, while its back-off lasts
	Retry   time.Time `json:"retry,omitzero"`    // when the next fetch may start
}

// CacheKeys is a list of keys.
type CacheKeys struct {
	Keys []CacheKey `json:"keys"`
	Next string     `json:"next,omitempty"`
	// NextBase64 is Next exactly, when it is not UTF-8.
	NextBase64 string `json:"next_base64,omitempty"`
}

// CacheItem is a copy, without its value.
type CacheItem struct {
	Key    string    `json:"key"`
	Base64 string    `json:"key_base64,omitempty"` // the key exactly, when it is not UTF-8
	Term   int64     `json:"term"`
	Size   int       `json:"size"`          // of the value, in bytes
	Digest string    `json:"digest"`        // the first 64 bits of its SHA-256, in hexadecimal
	Made   time.Time `json:"made,omitzero"` // when its fetch started
	Expire time.Time `json:"expire"`        // until then it is fresh
	From   string    `json:"from" enum:"hit,stale,miss"`
}

// CacheRemoved says how many of how many members have removed copies; the others remove them when they are back.
type CacheRemoved struct {
	Confirmed int `json:"confirmed"` // the answering peer included
	Of        int `json:"of"`
}

// CachePeer is what a peer knows of another, or of itself.
type CachePeer struct {
	URL     string    `json:"url"` // tcp://host:port: its name, and where other peers connect to
	API     string    `json:"api"` // tcp://host:port: where clients connect to
	Self    bool      `json:"self,omitempty"`
	Link    string    `json:"link" enum:"up,down,dead"`
	Why     string    `json:"why,omitempty"`  // why nothing that it sends can be used, though it listens
	Since   time.Time `json:"since,omitzero"` // of the link's state
	Kind    string    `json:"kind" enum:"understudy,other,unknown"`
	List    string    `json:"list,omitempty"`    // its list of members: same, or +URL and -URL of those it has more and less
	SkewMS  *int64    `json:"skew_ms,omitempty"` // how far its clock is ahead
	Busy    bool      `json:"busy,omitempty"`
	Dropped int64     `json:"dropped"` // messages to it that found its queue full
}

// CacheCluster is a peer's view of its cluster.
type CacheCluster struct {
	Self        string      `json:"self"`
	Member      bool        `json:"member"`
	Majority    int         `json:"majority"`          // how many members make one
	Connected   int         `json:"connected"`         // members that are reached, this one included
	Partitioned bool        `json:"partitioned"`       // no majority is reached: this peer must not fetch
	Abstaining  bool        `json:"abstaining"`        // it has started lately and does not vote yet
	Trouble     string      `json:"trouble,omitempty"` // what an operator should look at
	Unready     string      `json:"unready,omitempty"` // why this peer may fetch nothing now
	Peers       []CachePeer `json:"peers"`
}

// CacheEvent is something that a peer did.
type CacheEvent struct {
	Time time.Time `json:"time"`
	Key  string    `json:"key,omitempty"`
	From string    `json:"from,omitempty"` // state before
	To   string    `json:"to,omitempty"`   // state after
	Term int64     `json:"term,omitempty"`
	Peer string    `json:"peer,omitempty"`
	Why  string    `json:"why"`
}

// CacheStats are the counts of a peer since its start, and its levels.
type CacheStats struct {
	Hits           int64 `json:"hits"`
	Stales         int64 `json:"stales"`
	Misses         int64 `json:"misses"`
	Referred       int64 `json:"referred"`
	Refused        int64 `json:"refused"`
	Waiting        int64 `json:"waiting"` // level
	Keys           int64 `json:"keys"`    // level
	Bytes          int64 `json:"bytes"`   // level
	Evicted        int64 `json:"evicted"`
	Elections      int64 `json:"elections"`
	Won            int64 `json:"won"`
	Yielded        int64 `json:"yielded"`
	ElectionMS     int64 `json:"election_ms"` // sum over the elections that were won
	Fetches        int64 `json:"fetches"`
	FetchFailures  int64 `json:"fetch_failures"`
	FetchesAborted int64 `json:"fetches_aborted"`
	Fetching       int64 `json:"fetching"` // level
	FetchMS        int64 `json:"fetch_ms"` // sum over the fetches
	Clients        int64 `json:"clients"`  // level
	Dropped        int64 `json:"dropped"`
	Malformed      int64 `json:"malformed"`
	Partitions     int64 `json:"partitions"`
	Removals       int64 `json:"removals"`
	SaveFailures   int64 `json:"save_failures"`
}

// CacheState is what the page shows of a peer, apart from its keys.
type CacheState struct {
	Version string        `json:"version"`
	At      time.Time     `json:"at"`
	Cluster *CacheCluster `json:"cluster,omitempty"` // missing while the peer does not answer
	Error   string        `json:"error,omitempty"`   // why it does not
	Stats   CacheStats    `json:"stats"`
}
