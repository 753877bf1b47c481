package zmtp

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
)

// CurveKey is a long-term key pair. Formatted in any way, it shows its public half alone.
type CurveKey struct{ Public, Secret [32]byte }

// NewCurveKey makes a key pair from the system's randomness.
func NewCurveKey() CurveKey {
	public, secret, err := box.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // rand.Reader never fails
	}
	return CurveKey{*public, *secret}
}

// Format implements fmt.Formatter.
func (k CurveKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// String shows the public key.
func (k CurveKey) String() string { return "CURVE key " + EncodeKey(k.Public) }

// MarshalText shows the public key: a pair is written to a file by EncodeKey, on purpose.
func (k CurveKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Curve is the mechanism CURVE. The side that listens is the server.
type Curve struct {
	// Secret is this side's long-term key.
	Secret [32]byte
	// ServerKey is the public key that the server must prove to have. Dial only.
	ServerKey [32]byte
	// Allow reports whether a client, which has proven to have this key, may connect; nil: nobody
	// may. It is called once per handshake, from many goroutines, and may change its mind about
	// later ones. Listen only.
	Allow func(public [32]byte) bool

	public [32]byte // the other half of Secret
}

// AllowKeys is an Allow for a fixed list.
func AllowKeys(keys ...[32]byte) func([32]byte) bool {
	return func(public [32]byte) bool {
		found := 0
		for _, k := range keys {
			found |= subtle.ConstantTimeCompare(k[:], public[:])
		}
		return found == 1
	}
}

// Format implements fmt.Formatter: no verb shows the keys.
func (c Curve) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// String does not show the keys.
func (Curve) String() string { return "CURVE" }

// MarshalText does not show the keys.
func (c Curve) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (Curve) mechanism() string { return "CURVE" }

func (c Curve) resolve(server bool) (Security, error) {
	var zero [32]byte
	if c.Secret == zero {
		return nil, fmt.Errorf("%w: Curve has no Secret; make a key with NewCurveKey", ErrConfig)
	}
	public, err := curve25519.X25519(c.Secret[:], curve25519.Basepoint)
	if err != nil {
		return nil, fmt.Errorf("%w: the Secret of Curve cannot be used", ErrConfig)
	}
	c.public = [32]byte(public)
	if !server && c.ServerKey == zero {
		return nil, fmt.Errorf("%w: Curve has no ServerKey, so whoever answers could not be trusted", ErrConfig)
	}
	return c, nil
}

func (c Curve) begin(server bool, own Kind) handshake {
	if server {
		return &curveServer{Curve: c, own: own}
	}
	return &curveClient{Curve: c, own: own}
}
