package elect

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// reportEvery is how often a standby says who is primary; a tenth of it is random, so that a crowd does not speak at once.
const reportEvery = time.Minute

// standbyReport says for a standby who holds the role, as the store last showed it to the campaign: it asks for nothing.
type standbyReport struct {
	mu    sync.Mutex
	shown map[lease.ID]lease.Lease
}

func (r *standbyReport) show(l lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown == nil {
		r.shown = map[lease.ID]lease.Lease{}
	}
	r.shown[l.ID] = l
}

// clear is for a campaign that contends no more: it will not see that another holds the role.
func (r *standbyReport) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = nil
}

// run logs until ctx ends.
func (r *standbyReport) run(ctx context.Context, c *campaign) {
	for wait := c.Keeper.Timing().Interval; lease.Sleep(ctx, c.Keeper.Clock(), wait); wait = reportEvery - backoff.Random(reportEvery/10) {
		switch places, held := r.places(c); {
		case places == 0 && c.With != "":
			c.log.Info("standby that waits for the companion role", "with", c.With)
		case places == 0: // the keeper reports a store that does not answer
		case len(held) == 0:
			c.log.Info("standby of a role that is vacant")
		case c.Holders > 1:
			names := make([]string, len(held))
			for i, l := range held {
				names[i] = l.Holder.Name
			}
			c.log.Info("standby", "primaries", strings.Join(names, ", "))
		default:
			l := held[0]
			c.log.Info("standby", "primary", l.Holder.Name, "term", l.Term, "since", l.Since.UTC().Format(time.RFC3339))
		}
	}
}

// places returns how many places of the role were shown, and those that are held, in their order.
func (r *standbyReport) places(c *campaign) (shown int, held []lease.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range Leases(c.Role, max(1, c.Holders)) {
		if l, ok := r.shown[id]; ok && l.HasLiveHolder() {
			held = append(held, l)
		}
	}
	return len(r.shown), held
}

// logBriefly writes to the log, and returns after an interval at the latest: a log whose reader has stalled must neither keep
// the work from starting, nor a role that nobody works for.
func (c *campaign) logBriefly(write func()) {
	written := make(chan struct{})
	go func() { defer close(written); write() }()
	timer, stop := c.Keeper.Clock().Timer(c.Keeper.Timing().Interval)
	defer stop()
	select {
	case <-written:
	case <-timer:
	}
}
