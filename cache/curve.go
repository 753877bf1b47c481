package cache

import (
	"errors"
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/cache/zmtp"
)

// errNoKey is that a member's public key is not known here.
var errNoKey = errors.New("cache: its public key is not known: add it to this peer's CURVE keys")

// server is the security of a socket that listens: for peers, and for clients too
// when it says so.
func (c *Curve) server(clients bool) zmtp.Security {
	allowed := append(slices.Collect(maps.Values(c.Peers)), c.Key.Public)
	if clients {
		allowed = append(allowed, c.Clients...)
	}
	slices.SortFunc(allowed, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	return zmtp.Curve{Secret: c.Key.Secret, Allow: zmtp.AllowKeys(slices.Compact(allowed)...)}
}

// clientSecurity is the security of a connection to a peer, which must prove to be that one.
func (c *Curve) clientSecurity(url string) (zmtp.Security, error) {
	key, ok := c.Peers[url]
	if !ok {
		return nil, errNoKey
	}
	return zmtp.Curve{Secret: c.Key.Secret, ServerKey: key}, nil
}
