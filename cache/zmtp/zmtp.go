package zmtp

import (
	"errors"
	"slices"
)

// Message is the frames of one message: at least one, each may be empty.
type Message [][]byte

// Kind is the kind of a socket, which says what kinds it talks to.
type Kind string

// The kinds of sockets that are implemented.
const (
	PUB    Kind = "PUB"    // sends to SUB and XSUB what they subscribed to
	SUB    Kind = "SUB"    // receives from PUB and XPUB
	ROUTER Kind = "ROUTER" // talks to DEALER, ROUTER and REQ
	DEALER Kind = "DEALER" // talks to ROUTER, DEALER and REP
)

// accepts reports whether a peer may be of the kind that it says it is.
func (k Kind) accepts(other Kind) bool { return slices.Contains(partners[k], other) }

// partners are the kinds that each kind talks to.
var partners = map[Kind][]Kind{
	PUB:    {SUB, "XSUB"},
	SUB:    {PUB, "XPUB"},
	ROUTER: {DEALER, ROUTER, "REQ"},
	DEALER: {ROUTER, DEALER, "REP"},
}

// Handler is told what happens on a socket's connections. The calls for one
// connection come one after the other, from the goroutine that reads it (Connected
// first, Disconnected last, exactly once each); calls for different connections come
// at the same time. Nil fields are skipped.
//
// A handler may call any method of Conn, but not Close of the Listener or Dialer, which
// waits for the handler to return.
type Handler struct {
	// Connected says that the handshake has ended. Send works from here on, and Conn.Value
	// may be set.
	Connected func(c *Conn)
	// Message hands over one message. Its frames are part of the connection's buffer:
	// they are valid until return.
	Message func(c *Conn, m Message)
	// Subscribed says that the connection now has (on) or no longer has (off) the
	// subscription, which is valid until return. PUB only. A subscription made twice is
	// told once, and over when it was cancelled twice.
	Subscribed func(c *Conn, prefix []byte, on bool)
	// Disconnected says why the connection has ended: io.EOF when the other side closed.
	Disconnected func(c *Conn, err error)
	// Failed says why an attempt to connect failed; the next one is made after a
	// back-off. Dial only, from the goroutine that makes the attempts.
	// errors.Is(err, syscall.ECONNREFUSED) proves that nobody listens there.
	Failed func(addr string, err error)
}

// The ways in which a connection ends, beside io.EOF and the errors of the network.
var (
	// ErrConfig wraps everything that is wrong with a Config or an address.
	ErrConfig = errors.New("zmtp: configuration")
	// ErrProtocol wraps whatever the other side sent against the rules.
	ErrProtocol = errors.New("zmtp: protocol violated")
	// ErrVersion: the other side speaks ZMTP 1 or 2, or something else.
	ErrVersion = errors.New("zmtp: not ZMTP 3")
	// ErrMechanism: the two sides are configured for different mechanisms.
	ErrMechanism = errors.New("zmtp: mechanisms differ")
	// ErrKind: the other side's socket is of a kind that does not fit.
	ErrKind = errors.New("zmtp: socket kinds do not fit")
	// ErrRefused: the other side sent an ERROR command.
	ErrRefused = errors.New("zmtp: refused by the peer")
	// ErrAccess: CURVE could not establish who the other side is, or it is not allowed.
	ErrAccess = errors.New("zmtp: access denied")
	// ErrTooLarge: the other side sent more than Config allows.
	ErrTooLarge = errors.New("zmtp: too large")
	// ErrSlow: the other side read nothing for WriteTimeout, or next to nothing for a fifth of it while a [Budget] has no room.
	ErrSlow = errors.New("zmtp: peer does not read")
	// ErrSilent: nothing came from the other side although a heartbeat was due.
	ErrSilent = errors.New("zmtp: peer is silent")
	// ErrClosed: this side closed.
	ErrClosed = errors.New("zmtp: closed")
)
