//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
)

// gate is where this process kills or stops itself: the environment's
// UNDERSTUDY_GATE is STEP:kill|stop:N, for the N-th time that the step is reached.
type gate struct {
	step   string
	signal syscall.Signal
	left   atomic.Int64
}

func readGate() (*gate, error) {
	g := &gate{}
	text := os.Getenv("UNDERSTUDY_GATE")
	if text == "" {
		return g, nil
	}
	var action string
	var n int64
	if _, err := fmt.Sscan(strings.ReplaceAll(text, ":", " "), &g.step, &action, &n); err != nil {
		return nil, fmt.Errorf("UNDERSTUDY_GATE=%q: %w", text, err)
	}
	g.left.Store(n)
	if g.signal = syscall.SIGSTOP; action == "kill" {
		g.signal = syscall.SIGKILL
	}
	return g, nil
}

// at is a step that has been reached.
func (g *gate) at(step string) {
	if g.step != step || g.left.Add(-1) != 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "GATE", step, g.signal)
	_ = syscall.Kill(os.Getpid(), g.signal)
	<-time.After(20 * time.Millisecond) // the signal may take another thread first
}

// gatedTable has the step "claimed".
type gatedTable struct {
	claim.KeyTable
	gate *gate
}

func (t gatedTable) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	claims, err := t.KeyTable.ClaimKeys(ctx, w)
	if len(claims) > 0 {
		t.gate.at("claimed")
	}
	return claims, err
}

// gatedQueue has the steps "begin", "begun", "record" and "recorded".
type gatedQueue struct {
	dispatch.Queue
	gate *gate
}

func (q gatedQueue) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	if len(t.Begin) > 0 {
		q.gate.at("begin")
	}
	if len(t.Results) > 0 {
		q.gate.at("record")
	}
	out, err := q.Queue.Exchange(ctx, t)
	if len(out.Begun) > 0 {
		q.gate.at("begun")
	}
	if len(out.Receipts) > 0 {
		q.gate.at("recorded")
	}
	return out, err
}

// gatedTarget has the steps "send" and "answered"; that between them is the
// target's to see.
type gatedTarget struct {
	dispatch.Target
	gate *gate
}

func (t gatedTarget) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	t.gate.at("send")
	answer := t.Target.Submit(ctx, a)
	t.gate.at("answered")
	return answer
}

func (t gatedTarget) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	t.gate.at("ask")
	return t.Target.Status(ctx, as)
}
