package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// common is what all components share: the loop that runs them, and what no component changes.
type common struct {
	*loop
	cfg      Config
	log      *slog.Logger
	id       string         // of the node
	instance lease.Instance // this run of the agent
	folder   *folder
	node     shard.Engine
	stats    shard.Stats // the loop's
	// onRow is called with a row that this agent has written.
	onRow func(shard.Row)
}

func (c *common) now() time.Duration { return c.clock.Now() }

// withNodeTimeout runs one exchange with a node under its deadline.
func (c *common) withNodeTimeout(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max(c.cfg.nodeTimeout(), c.cfg.Timing.Interval))
	defer cancel()
	return f(ctx)
}

// knownEpoch is the highest epoch that this agent has seen, given the row that it read last.
func (c *common) knownEpoch(row shard.Row) int64 { return max(c.folder.state().Epoch, row.Epoch) }
