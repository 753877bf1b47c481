package protocol

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
)

// Entry is one peer's copy of a key's value, or, without a value, the term of the key's removal: an older [Update] is answered
// with a [Remove]. With Used alone neither a value nor a removal is known.
type Entry struct {
	Term   int64  // the term it was fetched in, or removed in
	Expire int64  // Unix milliseconds until which it is fresh; 0: there is no value
	Made   int64  // Unix milliseconds at which the fetch began; 0: unknown
	Digest uint64 // [Digest] of the value
	Value  []byte // never changed once it is here
	// Used is the highest term in which this peer has voted, stood or followed: no
	// vote is given in it again. It is neither sent nor stored: the ceiling of terms
	// covers it.
	Used int64
}

// IsZero reports whether there is nothing to keep: no value, no removal and no term that was used.
func (e Entry) IsZero() bool {
	return e.Term == 0 && e.Expire == 0 && e.Made == 0 && e.Digest == 0 && e.Used == 0 && len(e.Value) == 0
}

// Held reports whether there is a value, however old.
func (e Entry) Held() bool { return e.Expire > 0 }

// Fresh reports whether there is a value that has not expired at this wall clock
// in Unix milliseconds.
func (e Entry) Fresh(wall int64) bool { return e.Expire > wall }

// Newer reports whether e replaces old: copies are ordered by term, then expiry,
// then digest, so that every peer keeps the same one whatever the order in which
// they arrive.
func (e Entry) Newer(old Entry) bool {
	return cmp.Or(cmp.Compare(e.Term, old.Term), cmp.Compare(e.Expire, old.Expire), cmp.Compare(e.Digest, old.Digest)) > 0
}

// Digest is the first 8 bytes of the value's SHA-256, as a big-endian number.
func Digest(value []byte) uint64 {
	sum := sha256.Sum256(value)
	return binary.BigEndian.Uint64(sum[:8])
}

// Table is where a machine keeps its copies. It forgets what was used least
// recently when it is full.
type Table interface {
	// Get is the copy of a key; the zero Entry when there is none.
	Get(key string) Entry
	// Put replaces the copy of a key.
	Put(key string, e Entry)
	// Forgot is the highest Term and Used of all that it has forgotten by itself:
	// what is not there may have been used up to it.
	Forgot() int64
	// Match calls each for the copies whose key starts with prefix, until it
	// returns false. each may call Put for the same key.
	Match(prefix string, each func(key string, e Entry) bool)
}
