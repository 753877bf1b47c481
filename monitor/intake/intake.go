package intake

import (
	"context"

	"github.com/understudy-ha/understudy/monitor"
)

// Flow takes beats towards the store, as [monitor.Inflow] does.
type Flow interface {
	// Take returns when the beats are stored.
	Take(ctx context.Context, beats []monitor.Beat) ([]monitor.Outcome, error)
	// Prove says that whatever was sent by this path has been taken.
	Prove(ctx context.Context) error
}

var _ Flow = (*monitor.Inflow)(nil)

const maxCode = 255 // of an exit status
