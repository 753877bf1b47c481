package job

import (
	"context"
	"errors"
	"testing"

	"github.com/understudy-ha/understudy/lease"
)

// emptyStore has no job any more.
type emptyStore struct {
	CombinedStore
	lease.Acquirer
	released int
}

func (s *emptyStore) ChangeAndRelease(context.Context, string, Decision, lease.ReleaseRequest) error {
	return ErrNotFound
}

func (s *emptyStore) Release(context.Context, lease.ReleaseRequest) error {
	s.released++
	return nil
}

// A job that is gone from the store when its run ends does not keep its lease.
func TestJobIsGoneWhenItEnds(t *testing.T) {
	s := new(emptyStore)
	a := acquirer{Acquirer: s, store: s, name: "j", finish: Finish(at("09:00:00"), 1, Result{State: Succeeded})}
	if err := a.Release(t.Context(), lease.ReleaseRequest{}); err != nil || s.released != 1 || !a.stored {
		t.Errorf("released %d times: %v", s.released, err)
	}
	if err := a.Release(t.Context(), lease.ReleaseRequest{}); err != nil || errors.Is(err, ErrNotFound) || s.released != 2 {
		t.Errorf("asked again, released %d times: %v", s.released, err)
	}
}
