package elect_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// node is one instance with its keeper running in the bubble.
type node struct {
	*lease.Keeper
	stop func()
}

func start(t *testing.T, st *memory.Store, name string) *node {
	t.Helper()
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Roster: st, Instance: lease.NewInstance(name, name+":80")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	n := &node{Keeper: k, stop: func() { cancel(); <-done }}
	t.Cleanup(n.stop)
	return n
}

func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		a, b := start(t, st, "a"), start(t, st, "b")
		ctx, stopA := context.WithCancel(t.Context())
		var lastA int64
		doneA := make(chan error, 1)
		go func() {
			doneA <- elect.Campaign(ctx, elect.Config{Keeper: a.Keeper, Role: "r"}, func(ctx context.Context, term elect.Term) error {
				lastA = term.Number
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		time.Sleep(3 * time.Second)
		startB := make(chan elect.Term, 1)
		ctxB, stopB := context.WithCancel(t.Context())
		doneB := make(chan error, 1)
		go func() {
			doneB <- elect.Campaign(ctxB, elect.Config{Keeper: b.Keeper, Role: "r"}, func(ctx context.Context, term elect.Term) error {
				startB <- term
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		time.Sleep(30 * time.Second)
		p, err := elect.Resolve(t.Context(), st, "r")
		if err != nil || p.Name != "a" {
			t.Fatalf("primary is %+v, %v; want a", p, err)
		}
		began := time.Now()
		stopA()
		term := <-startB
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the hand-over took %v", took)
		}
		if term.Number <= lastA {
			t.Errorf("term %d after %d", term.Number, lastA)
		}
		if err := <-doneA; !errors.Is(err, context.Canceled) {
			t.Errorf("the stopped campaign returned %v", err)
		}
		stopB()
		<-doneB
	})
}
