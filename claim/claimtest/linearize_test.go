package claimtest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestLinearizableCatches proves the check: each broken table is caught.
func TestLinearizableCatches(t *testing.T) {
	for name, broken := range map[string]twin{
		"begun by the lapsed":          {begin: lapsedBegins},
		"begun by the deposed":         {begin: deposedBegins},
		"begun twice":                  {begin: beginsTwice},
		"finished by the deposed":      {finish: deposedFinishes},
		"taken from the living":        {take: takesFromTheLiving},
		"taken within the window":      {take: ignoresWindows},
		"taken before it is ready":     {take: takesUnready},
		"an interruption is forgotten": {take: forgetsInterruptions},
		"a term is used again":         {take: reusesTerms},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := broken
				s.Memory, s.calls = claims.NewMemory(memory.New(nil), nil), new(atomic.Int64)
				problem := linearize(t.Context(), func() Store { return s }, Concurrent{Length: 2 * time.Second})
				if problem == "" {
					t.Fatal("not caught")
				}
				t.Logf("caught: %.300s", problem)
			})
		})
	}
}

// twin is a Memory that is broken in one place: before a call, or instead of it.
type twin struct {
	*claims.Memory
	calls  *atomic.Int64
	take   func(*claims.Step, claim.ClaimRequest)
	begin  func(s *claims.Step, k *claims.Key, session string, c claim.Claim) bool // tells that it was started
	finish func(s *claims.Step, k *claims.Key, session string, f claim.StepResult) bool
}

func (w twin) Claims() claim.KeyTable { return twinTable{w.Memory.Claims(), w} }

type twinTable struct {
	claim.KeyTable
	twin
}

func (t twinTable) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	if t.take != nil && t.calls.Add(1)%3 == 0 {
		_ = t.Do(ctx, func(s *claims.Step) error { t.take(s, w); return nil })
	}
	return t.KeyTable.ClaimKeys(ctx, w)
}

func (t twinTable) StartSteps(ctx context.Context, space, session string, hold time.Duration, wanted []claim.Claim) ([]claim.Claim, error) {
	began := false
	if t.begin != nil {
		_ = t.Do(ctx, func(s *claims.Step) error {
			if k := s.Key(space, wanted[0].Key); k != nil && t.begin(s, k, session, wanted[0]) {
				s.StartStep(k, hold)
				began = true
			}
			return nil
		})
	}
	if began {
		return wanted, nil
	}
	return t.KeyTable.StartSteps(ctx, space, session, hold, wanted)
}

func (t twinTable) FinishSteps(ctx context.Context, space, session string, done []claim.StepResult) ([]string, error) {
	finished := false
	if t.finish != nil {
		_ = t.Do(ctx, func(s *claims.Step) error {
			if k := s.Key(space, done[0].Key); k != nil && t.finish(s, k, session, done[0]) {
				s.FinishStep(k)
				finished = true
			}
			return nil
		})
	}
	if finished {
		return []string{done[0].Key}, nil
	}
	return t.KeyTable.FinishSteps(ctx, space, session, done)
}

func lapsedBegins(s *claims.Step, k *claims.Key, session string, c claim.Claim) bool {
	return !s.IsLive(session) && k.Session == session && k.Term == c.Term && !k.InStep
}

func deposedBegins(s *claims.Step, k *claims.Key, session string, c claim.Claim) bool {
	return s.IsLive(session) && c.Term != 0 && k.Session != session && !k.InStep
}

func beginsTwice(s *claims.Step, k *claims.Key, session string, c claim.Claim) bool {
	return s.IsLive(session) && k.Session == session && k.Term == c.Term && k.InStep
}

func deposedFinishes(_ *claims.Step, k *claims.Key, session string, f claim.StepResult) bool {
	return f.Term != 0 && k.Session != session && k.InStep
}

func takesFromTheLiving(s *claims.Step, w claim.ClaimRequest) {
	for _, k := range s.Keys(w.Space) {
		if s.IsLive(k.Session) && !k.InStep {
			k.Session = ""
		}
	}
}

func ignoresWindows(s *claims.Step, w claim.ClaimRequest) {
	for _, k := range s.Keys(w.Space) {
		if k.Session != "" && !s.IsLive(k.Session) {
			k.Until = s.Now
		}
	}
}

func takesUnready(s *claims.Step, w claim.ClaimRequest) {
	for _, k := range s.Keys(w.Space) {
		k.Idle, k.Ready = false, s.Now.Add(-time.Second)
	}
}

func forgetsInterruptions(s *claims.Step, w claim.ClaimRequest) {
	for _, k := range s.Keys(w.Space) {
		if s.Row(k).IsFree() {
			k.Interrupted, k.InStep = false, false
		}
	}
}

func reusesTerms(s *claims.Step, w claim.ClaimRequest) {
	for _, k := range s.Keys(w.Space) {
		if k.Session == "" && k.Term > 0 {
			k.Term = min(k.Term, s.Now.UnixMilli()) - 1000
		}
	}
}
