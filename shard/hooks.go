package shard

import (
	"context"
	"fmt"
)

// before calls the hook in front of a promotion; its error makes that fail.
func (a *Agent) before(ctx context.Context, call HookCall) error {
	if a.cfg.Hooks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.HookTimeout)
	defer cancel()
	if err := a.cfg.Hooks.Before(ctx, call); err != nil {
		return fmt.Errorf("the hook before the promotion failed: %w", err)
	}
	return nil
}

// after calls the hook behind a change of role, in its own time.
func (a *Agent) after(call HookCall) {
	if a.cfg.Hooks == nil {
		return
	}
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), a.cfg.HookTimeout)
		defer cancel()
		a.cfg.Hooks.After(ctx, call)
	})
}

// role tells that the node has become a replica.
func (a *Agent) demoted(epoch int64, primary string) {
	a.after(HookCall{Event: OnRole, Shard: a.cfg.Shard, Node: a.cfg.Announced, Role: Replica, Epoch: epoch, From: a.id, To: primary})
}
