package agent

import (
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// trust is until when the node may be open, on the agent's clock: as long as its session is trusted, or all
// other members promise not to replace it.
type trust struct {
	clock lease.Clock

	mu       sync.Mutex
	session  *lease.ActiveSession
	promised time.Duration
	moved    chan struct{}
}

func newTrust(clock lease.Clock) *trust { return &trust{clock: clock, moved: make(chan struct{})} }

// until is the end of trust, with channels that are closed when it moves.
func (t *trust) until() (until time.Duration, moved, renewed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until = t.promised
	if t.session != nil {
		end, changed := t.session.Until()
		until, renewed = max(until, end), changed
	}
	return until, t.moved, renewed
}

func (t *trust) remaining() time.Duration {
	until, _, _ := t.until()
	return max(0, until-t.clock.Now())
}

// update changes what trust rests on. A nil session is none.
func (t *trust) update(edit func(t *trust)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	edit(t)
	close(t.moved)
	t.moved = make(chan struct{})
}
