//go:build !linux

package lease

import "time"

// processStart anchors the runtime's monotonic clock. On macOS and Windows that
// clock may stop while the host sleeps (docs/install.md).
var processStart = time.Now()

func sinceBoot() time.Duration { return time.Since(processStart) }
