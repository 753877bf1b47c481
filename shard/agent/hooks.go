package agent

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/shard"
)

// callHookBefore calls the hook before a promotion; its error makes the promotion fail.
func (r *reconciler) callHookBefore(ctx context.Context, call shard.HookCall) error {
	if r.cfg.Hooks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.HookTimeout)
	defer cancel()
	if err := r.cfg.Hooks.Before(ctx, call); err != nil {
		return fmt.Errorf("the hook before the promotion failed: %w", err)
	}
	return nil
}

// callHookAfter calls the hook after a change of role, without waiting for it.
func (r *reconciler) callHookAfter(call shard.HookCall) {
	if r.cfg.Hooks == nil {
		return
	}
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.cfg.HookTimeout)
		defer cancel()
		r.cfg.Hooks.After(ctx, call)
	})
}
