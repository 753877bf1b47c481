package intake

import (
	"context"

	"github.com/understudy-ha/understudy/monitor"
)

// Flow takes beats towards the store, as [monitor.IntakePath] does.
type Flow interface {
	// Record returns when the beats are stored.
	Record(ctx context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, error)
	// RecordProbe says that whatever was sent by this path has been taken.
	RecordProbe(ctx context.Context) error
}

var _ Flow = (*monitor.IntakePath)(nil)

const maxCode = 255 // of an exit status
