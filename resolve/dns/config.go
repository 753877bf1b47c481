package dns

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve"
)

// DefaultZone is the zone unless told otherwise. internal. is reserved for private use.
const DefaultZone = "understudy.internal."

// Defaults of a [Config].
const (
	DefaultRate  = 200 // answers in a second to one source
	DefaultConns = 256 // connections at a time
)

// Source is what knows the answers, such as a [resolve.Resolver].
type Source interface {
	// Find returns what stands behind a name, whatever the case of its letters; of one
	// that is resolve.ErrUnknown, whether names end in it.
	Find(n resolve.Name) (a resolve.Answer, above bool, err error)
}

// Config is what a server needs.
type Config struct {
	// Source of the answers. Required.
	Source Source
	// Zone that is answered for. Default DefaultZone.
	Zone string
	// Address of this server as others reach it, for ns.<zone>. Default: it has none.
	Address netip.Addr
	// Rate is how many answers a second one source gets (an IPv4 address, or the 64 bits of an IPv6
	// network) by UDP, and as many by TCP; twice as many at once. Default DefaultRate; negative is no limit.
	// Loopback has none.
	Rate int
	// Conns is how many TCP connections there may be. Default DefaultConns.
	Conns int
	// Idle is how long a TCP connection may be silent. Default 5 s.
	Idle time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Stats of a server since it was made.
type Stats struct {
	Answered uint64 // with records, or without where there are none
	Unknown  uint64 // NXDOMAIN
	Failed   uint64 // SERVFAIL
	Refused  uint64 // anything else
	Limited  uint64 // queries of sources that asked too much
	Overflow uint64 // connections beyond the limit
}

// Validate returns an error that wraps lease.ErrInvalid.
func (c Config) Validate() error {
	if c.Source == nil {
		return fmt.Errorf("%w: a DNS server needs a source of answers", lease.ErrInvalid)
	}
	if c.Conns < 0 || c.Idle < 0 {
		return fmt.Errorf("%w: conns and idle of a DNS server cannot be negative", lease.ErrInvalid)
	}
	return CheckZone(c.Zone)
}

// CheckZone returns an error that wraps lease.ErrInvalid unless the text can be a zone: a
// host name of at most 100 bytes, with a dot at its end or without. "" is DefaultZone.
func CheckZone(zone string) error {
	if zone == "" {
		return nil
	}
	if len(zone) > 100 || !isHostName(strings.TrimSuffix(zone, ".")) {
		return fmt.Errorf("%w: zone %.120q: use a host name of at most 100 letters, such as %s", lease.ErrInvalid, zone, DefaultZone)
	}
	return nil
}

// isHostName tells that a name, without a dot at its end, is one that hosts have.
func isHostName(name string) bool {
	if len(name) > 250 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			if !letter && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
