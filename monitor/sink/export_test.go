package sink

import (
	"testing"
	"time"
)

// SetGrace changes how much longer other members are waited for, until the test ends.
func SetGrace(t *testing.T, d time.Duration) {
	old := grace
	grace = d
	t.Cleanup(func() { grace = old })
}
