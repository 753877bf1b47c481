//go:build !linux

package sdnotify

import "time"

// monotonic is asked by systemd alone, which runs on Linux.
func monotonic() (time.Duration, bool) { return 0, false }
