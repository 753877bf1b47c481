package redis_test

import (
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestValkey runs what every store must do on Valkey.
func TestValkey(t *testing.T) {
	realserver.OnValkey(t, "^Test(Conformance|ShardConformance|Linearizable|Jobs|Access|ScriptFlush|SentinelFailover)$")
}
