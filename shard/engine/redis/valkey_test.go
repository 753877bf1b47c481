package redis_test

import (
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestValkey runs the suite on Valkey.
func TestValkey(t *testing.T) { realserver.OnValkey(t, ".") }
