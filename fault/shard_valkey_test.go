//go:build linux

package fault_test

import (
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestFaultShardOnValkey has the scenarios of shards on Valkey.
func TestFaultShardOnValkey(t *testing.T) {
	if !prove {
		t.Skip("only with UNDERSTUDY_PROVE=1")
	}
	realserver.OnValkey(t, "^TestFaultShard$")
}
