package dispatch_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// hungTable answers no release: whoever calls waits until its context ends.
type hungTable struct{ claim.KeyTable }

func (hungTable) Release(ctx context.Context, _, _ string, _ []claim.Claim) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStopsWithoutTheStore: a store that hangs holds up the end of a process no longer than StopGrace and five seconds.
func TestStopsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 3 * time.Second
		p.add("k", 9)
		i := p.start("a", g, func(c *dispatch.Config) { c.Claims, c.StopGrace = hungTable{c.Claims}, 4*time.Second })
		time.Sleep(time.Second)
		began := time.Now()
		i.stop()
		if took := time.Since(began); took > 9*time.Second+time.Millisecond {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// deafTarget answers after a while, whatever becomes of its context.
type deafTarget struct {
	*target
	takes  time.Duration
	answer dispatch.Answer
}

func (d deafTarget) Submit(context.Context, dispatch.Assignment) dispatch.Answer {
	time.Sleep(d.takes)
	return d.answer
}

// slowQueue takes a while.
type slowQueue struct{ dispatch.Queue }

func (q slowQueue) Exchange(ctx context.Context, x dispatch.Exchange) (dispatch.ExchangeResult, error) {
	time.Sleep(150 * time.Millisecond)
	return q.Queue.Exchange(ctx, x)
}

// What a target answers after its context has ended is recorded, and the store, which answers, is not blamed. Here it
// returns just before Run would give up.
func TestStopsWhileTheTargetIsDeaf(t *testing.T) {
	for answered, want := range map[dispatch.Outcome]dispatch.State{dispatch.Done: dispatch.Committed, dispatch.Uncertain: dispatch.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			p, log := newPlace(t), new(syncbuffer.Buffer)
			p.add("k", 1)
			deaf := deafTarget{newTarget(), 20 * time.Second, dispatch.Answer{Outcome: answered}}
			i := p.start("a", deaf, func(c *dispatch.Config) {
				c.Queue, c.StopGrace, c.Logger = slowQueue{c.Queue}, 5*time.Second, slog.New(slog.NewTextHandler(log, nil))
			})
			time.Sleep(200 * time.Millisecond) // it is sent after 150
			i.stop()
			r, err := p.store.QueueAdmin().Message(t.Context(), "q", "k-0001")
			if err != nil || r.State != want {
				t.Errorf("a target that answers %s late: the message is %s, %v", answered, r.State, err)
			}
			if text := log.String(); strings.Contains(text, "the store does not answer") || strings.Count(text, "the target has not returned") != 1 {
				t.Errorf("the log says: %s", text)
			}
		})
	}
}

// A dispatcher that can never have a session again does not wait for one.
func TestKeeperThatCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.add("k", 1)
		k := leasetest.NewDamagedKeeper(t, p.store, windows.Timing())
		d, err := dispatch.New(dispatch.Config{Name: "q", Keeper: k, Claims: p.store.Claims(), Queue: p.store.Queue(), Target: newTarget(), Windows: windows})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.Run(ctx); !errors.Is(err, lease.ErrDamaged) {
			t.Errorf("Run returned %v", err)
		}
	})
}
