package redis

import (
	"time"

	"github.com/understudy-ha/understudy/store"
)

// SetPlainSkew adds to the wall clock that a store without scripts takes for the
// store's.
func SetPlainSkew(s store.Store, skew func() time.Duration) { s.(*plain).skew = skew }

// EndChunk is how many leases one step of EndSession releases.
const EndChunk = endChunk
