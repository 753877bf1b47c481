package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// Of many watchers that can do without, few listen; one that cannot always may.
func TestFewListen(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{"max_connections": "200"}})
	database := server.NewDatabase(t)
	s := open(t, database)
	type result struct {
		i   int
		err error
	}
	const many = 24
	over, ready := make(chan result, many+1), make(chan int, 10*many)
	cancels := map[int]context.CancelFunc{}
	watch := func(i int, f func(context.Context, func(lease.Change)) error) {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[i] = cancel
		go func() { over <- result{i, f(ctx, func(lease.Change) { ready <- i })} }()
	}
	for i := range many {
		watch(i, s.WatchIfFew)
	}
	listening, refused := map[int]bool{}, 0
	await := func(listeners, refusals int) {
		t.Helper()
		for deadline := time.After(ample); len(listening) < listeners || refused < refusals; {
			select {
			case i := <-ready:
				listening[i] = true
			case r := <-over:
				if r.err != nil && !errors.Is(r.err, lease.ErrCrowded) {
					t.Fatal(r.err)
				}
				if r.err != nil {
					refused++
				}
			case <-deadline:
				t.Fatalf("%d listen and %d were refused, want %d and %d", len(listening), refused, listeners, refusals)
			}
		}
	}
	await(8, many-8)
	watch(many, s.Watch)
	await(9, many-8)
	for i := range listening {
		if i != many { // its connection ends, and with it its place
			cancels[i]()
			delete(listening, i)
			break
		}
	}
	realserver.Eventually(t, ample, "a place is free", func() error {
		watch(many+1, s.WatchIfFew)
		select {
		case i := <-ready:
			listening[i] = true
			return nil
		case r := <-over:
			return fmt.Errorf("refused: %w", r.err)
		}
	})
}
