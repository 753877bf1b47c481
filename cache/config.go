package cache

import (
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/lease"
)

// Config says what a peer is and what it may use. Self and Members are
// needed, and Origin unless the peer is passive; every other field has a useful zero.
type Config struct {
	// Self is this peer's url, the name that the others know it by:
	// tcp://host:port, byte for byte as in their lists.
	Self string
	// Members are all peers of the cluster, this one included: the same list on every
	// peer, except while it changes by one member. See [Peer.ChangeMembers].
	Members []protocol.Member
	// BindURL and BindAPI are where to listen, when that differs from the
	// addresses by which the peer is known.
	BindURL, BindAPI string
	// Origin fetches values. Nil: the peer is passive. It votes, serves the copies it has, and leaves fetches to the others.
	Origin Origin
	// Fetches bounds the calls of Origin at one time; 64. What is beyond waits.
	Fetches int
	// Storage keeps copies across restarts. Nil: the peer starts empty.
	Storage Storage
	// Timings are the waits of the protocol.
	Timings protocol.Timings
	// Jitter is the part of a time to live that is taken off at random, 0 to 0.5,
	// so that what was fetched together does not expire together; 0.05. Below 0: none.
	Jitter float64

	// Secret authenticates the messages between peers: 16 to 1,024 bytes, the same on
	// every peer; nil: none. It hides nothing and does not protect clients: see Curve.
	Secret []byte
	// Curve encrypts and authenticates everything, on both sockets.
	Curve *Curve
	// Insecure allows to listen beyond loopback without Curve.
	Insecure bool
	// Mixed counts peers that never greet as peers of the system that this one is
	// compatible with. Their votes bind less: two fetches of a key can overlap.
	Mixed bool

	// MaxKeys bounds the copies held; 1,000,000.
	MaxKeys int
	// MaxBytes bounds the memory of keys and values; 256 MiB. What was used least
	// recently is forgotten first. A quarter of it, at least four of the largest values, bounds
	// in addition what waits to be written to clients, and as much, at least two of the largest values for each member, what
	// waits for peers. What has no room is refused, and those that read next to nothing meanwhile are disconnected.
	MaxBytes int64
	// MaxKey and MaxValue bound one key and one value; 1 KiB and 16 MiB. They are the same on every peer: a larger message
	// from another ends the connection.
	MaxKey, MaxValue int
	// MaxWaiting bounds the requests that wait for a value; 10,000.
	MaxWaiting int

	// Clock is the boot-time clock; nil: the machine's.
	Clock lease.Clock
	// Wall is the wall clock; nil: time.Now.
	Wall func() time.Time
	// Logger gets what concerns the whole peer at Info, and what concerns one key at
	// Debug; nil: nothing.
	Logger *slog.Logger
}

// Curve is this peer's key pair and who may talk to it.
type Curve struct {
	// Key is this peer's own long-term key.
	Key zmtp.CurveKey
	// Peers are the public keys of every peer, by url; Key's own may be among them.
	// Who was removed from the cluster can still listen until its key is taken out.
	Peers map[string][32]byte
	// Clients are the public keys of clients that may connect to the api socket;
	// peers' keys may always.
	Clients [][32]byte
}
