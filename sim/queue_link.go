package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// carried takes a request of an instance to the store: over its link, and no
// further while the instance or the store is frozen.
func carried[T any](ctx context.Context, n *queueNode, op func(context.Context) (T, error)) (T, error) {
	return through(&n.process, func() (T, error) {
		return leasetest.Send(ctx, n.link, func(ctx context.Context) (T, error) {
			n.world.server.gate.wait()
			return op(ctx)
		})
	})
}

// queueView is an instance's view of the claims and of the queue.
type queueView struct {
	claim.KeyTable // no dispatcher uses its other methods
	node           *queueNode
}

func (v queueView) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	return carried(ctx, v.node, func(ctx context.Context) (claim.Share, error) { return v.node.world.judge.join(ctx, m) })
}

func (v queueView) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	return carried(ctx, v.node, func(ctx context.Context) ([]claim.Claim, error) { return v.node.world.judge.take(ctx, w) })
}

func (v queueView) Release(ctx context.Context, space, session string, claims []claim.Claim) error {
	_, err := carried(ctx, v.node, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, v.node.world.judge.release(ctx, space, session, claims)
	})
	return err
}

func (v queueView) List(ctx context.Context, q claim.Query) ([]claim.Row, error) {
	return carried(ctx, v.node, func(ctx context.Context) ([]claim.Row, error) { return v.node.world.judge.claims.List(ctx, q) })
}

func (v queueView) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	return carried(ctx, v.node, func(ctx context.Context) (dispatch.ExchangeResult, error) { return v.node.world.judge.turn(ctx, t) })
}

type pruned struct {
	deleted int
	through bool
}

func (v queueView) Prune(ctx context.Context, queue string, keep time.Duration, limit int) (int, bool, error) {
	p, err := carried(ctx, v.node, func(ctx context.Context) (p pruned, err error) {
		p.deleted, p.through, err = v.node.world.judge.queue.Prune(ctx, queue, keep, limit)
		return p, err
	})
	return p.deleted, p.through, err
}
