package shardagent

import (
	"context"

	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/shard/agent"
)

// watchAgent vouches for an agent: while its loop goes round. What it takes for alive is what load balancers are told of a replica.
func watchAgent(ctx context.Context, running *agent.Agent) error {
	sdnotify.Watchdog(ctx, func() bool {
		s := running.Status()
		return s.LoopAge <= 2*s.Timeout
	})
	return nil
}
