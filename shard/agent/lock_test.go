package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

// lockRegistry keeps one lock, unless it is to fail.
type lockRegistry struct {
	shard.Registry
	lock string
	fail error
}

func (r *lockRegistry) Lock(_ context.Context, l shard.Lock) error {
	switch {
	case r.fail != nil:
		return r.fail
	case l.Instead != r.lock:
		return shard.ErrLocked
	}
	r.lock = l.Value
	return nil
}

// One renewal that fails does not cost an orchestrator its lock: nobody else would go on with its plan for T.
func TestRenewalOfTheFailoverLockFails(t *testing.T) {
	for _, failure := range []error{lease.ErrUnavailable, lease.ErrUnknown} {
		t.Run(fmt.Sprint(failure), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, store := shardtest.NewWorld(), memory.New(nil)
				r := &lockRegistry{Registry: store.Registry()}
				world.Add("10.0.0.1:6379")
				a := newStill(t, Config{Node: "10.0.0.1:6379", Engines: world.Engines("10.0.0.1:6379"), Registry: r}, store)
				a.view.Row = shard.Row{Name: "s", Rev: 7, Epoch: 2, Primary: a.id}
				set := func(instead string) {
					a.lock.set(a.now(), instead)
					(<-a.posts)()
				}
				read := func() {
					a.view.Lock = r.lock
					a.lock.recognise()
				}
				set("")
				read()
				r.fail = failure
				set(a.lock.heldValue)
				r.fail = nil
				read()
				if !a.lock.isHeld() {
					t.Fatalf("the lock is %q, and its holder does not know it", a.view.Lock)
				}
				if set(a.lock.heldValue); !a.lock.isHeld() {
					t.Error("it cannot be renewed any more")
				}
			})
		})
	}
}
