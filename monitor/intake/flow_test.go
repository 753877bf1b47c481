package intake

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
	"github.com/understudy-ha/understudy/monitor"
)

// flow remembers what it took. Events that begin with "x" are unknown.
type flow struct {
	mu     sync.Mutex
	beats  []monitor.Heartbeat
	proofs int
	takes  int
	// fail, if set, is asked before each Take; an error means that nothing is taken.
	fail func(take int, beats []monitor.Heartbeat) error
	// block, if set, holds up each Take until it can be received from.
	block chan struct{}
}

func (f *flow) Record(ctx context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, error) {
	f.mu.Lock()
	f.takes++
	take, fail, block := f.takes, f.fail, f.block
	f.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(take, beats); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	outcomes := make([]monitor.Outcome, len(beats))
	for i, b := range beats {
		switch {
		case b.Check == "xfull":
			outcomes[i] = monitor.Full
			continue
		case strings.HasPrefix(b.Check, "x"):
			outcomes[i] = monitor.Unknown
			continue
		}
		f.beats = append(f.beats, b)
	}
	return outcomes, nil
}

func (f *flow) RecordProbe(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proofs++
	return ctx.Err()
}

func (f *flow) taken() []monitor.Heartbeat {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.beats)
}

func (f *flow) proven() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proofs
}

func (f *flow) want(t *testing.T, beats ...monitor.Heartbeat) {
	t.Helper()
	if diff := cmp.Diff(beats, f.taken()); diff != "" {
		t.Errorf("beats (-want +got):\n%s", diff)
	}
}

// journal is a logger whose lines can be read.
type journal struct{ syncbuffer.Buffer }

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
