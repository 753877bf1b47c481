package elect

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStandby: this instance does not hold the role now.
var ErrStandby = errors.New("elect: this instance is not primary")

// Candidate campaigns for a role on behalf of code that others call: the jobs of a scheduler, the handlers of requests.
type Candidate struct {
	cfg Config

	mu     sync.Mutex
	tenure *tenure // nil: not primary
}

// tenure is one term of a candidate.
type tenure struct {
	ctx   context.Context
	term  Term
	works sync.WaitGroup
}

// NewCandidate checks the configuration.
func NewCandidate(cfg Config) (*Candidate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Candidate{cfg: cfg}, nil
}

// Run campaigns as [Run] does until ctx ends, and returns its cause.
func (c *Candidate) Run(ctx context.Context) error {
	err := Run(ctx, c.cfg, c.hold)
	if ctx.Err() != nil {
		return context.Cause(ctx) // not that the role was lost at that moment
	}
	return err
}

// hold is the work of the campaign: it admits others, and waits for those that it has admitted.
func (c *Candidate) hold(ctx context.Context, term Term) error {
	t := &tenure{ctx: ctx, term: term}
	c.admit(t)
	<-ctx.Done()
	c.admit(nil)
	t.works.Wait()
	return context.Cause(ctx)
}

func (c *Candidate) admit(t *tenure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenure = t
}

// RunIfPrimary runs the work if this instance is primary now, and is [ErrStandby] otherwise. The role is not released
// before the work has returned; what holds for the work of [Campaign] holds for it, too.
func (c *Candidate) RunIfPrimary(work Work) error {
	t, err := c.enter()
	if err != nil {
		return err
	}
	defer t.works.Done()
	return work(t.ctx, t.term)
}

func (c *Candidate) enter() (*tenure, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenure
	switch {
	case t == nil:
		return nil, fmt.Errorf("%w: it stands by for role %q", ErrStandby, c.cfg.Role)
	case t.ctx.Err() != nil: // asks the clock: a process that was paused learns it here
		return nil, fmt.Errorf("%w: role %q: %w", ErrStandby, c.cfg.Role, context.Cause(t.ctx))
	}
	t.works.Add(1)
	return t, nil
}
