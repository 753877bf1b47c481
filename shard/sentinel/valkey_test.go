package sentinel_test

import (
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestValkey runs the suite before nodes of Valkey, and compares it with the Sentinel of that.
func TestValkey(t *testing.T) { realserver.OnValkey(t, ".") }
