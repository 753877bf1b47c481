package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// Sweep implements [monitor.Detection].
func (m *monitors) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	out, err := m.scan(ctx, `{{rules}}.monitor_sweep($1, $2, $3, $4)`, m.latest.Load(), keep.Microseconds(), limit, lockTimeout{})
	if err != nil {
		return monitor.Scan{}, fmt.Errorf("sweeping: %w", err)
	}
	return out, nil
}
