package agent

import (
	"slices"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// viewCache is the shard as the store showed it last. Times are readings of the agent's clock.
type viewCache struct {
	*common
	shard.View
	at            time.Duration
	noShardSince  time.Duration // since when there is no such shard
	unbrokenSince time.Duration // since when views have come, with gaps below T; before the first, when the agent started
	wasAway       bool          // before that none came for longer than T
	// stale: an update of the row was refused or its outcome is unknown. The orchestrator takes no decision
	// from this view.
	stale          bool
	replaced       chan struct{}  // closed and replaced with each view
	pendingMembers []shard.Member // of admissions to the row of pendingRev whose outcome is not known
	pendingRev     int64
	rejected       int // views in a row, which were older than this agent's own update

	ownRev int64 // of this agent's latest update of the row
	ownAt  time.Duration
}

func newViewCache(c *common) *viewCache {
	return &viewCache{common: c, replaced: make(chan struct{})}
}

// replace takes a view that was read at now. It is false for one that was read before this agent's own
// latest update of the row.
func (c *viewCache) replace(v shard.View, now time.Duration) bool {
	// After T the store is believed whatever it says: it may have lost that update.
	if v.Row.Rev < c.ownRev && now-c.ownAt < c.cfg.Timing.Timeout {
		c.rejected++
		return false
	}
	// As long as the row is the one that an admission was decided about, it may still be made.
	if v.Row.Rev != c.pendingRev {
		c.pendingMembers = nil
	}
	if v.Row.Rev == 0 && (c.Row.Rev != 0 || c.at == 0) {
		c.noShardSince = now
	}
	if gap := now - max(c.at, c.unbrokenSince); c.at == 0 || gap > c.cfg.Timing.Timeout {
		c.unbrokenSince, c.wasAway = now, gap > c.cfg.Timing.Timeout
	}
	c.View, c.at, c.stale, c.rejected = v, now, false, 0
	return true
}

// addPending adds members whose admission to the present row has been sent.
func (c *viewCache) addPending(members []shard.Member) {
	if c.pendingRev != c.Row.Rev {
		c.pendingMembers, c.pendingRev = nil, c.Row.Rev
	}
	for _, m := range members {
		if !slices.ContainsFunc(c.pendingMembers, func(p shard.Member) bool { return p.ID == m.ID }) {
			c.pendingMembers = append(c.pendingMembers, m)
		}
	}
}

// announce wakes those who wait for a new view.
func (c *viewCache) announce() {
	close(c.replaced)
	c.replaced = make(chan struct{})
}

// setRow takes a row that this agent has just written.
func (c *viewCache) setRow(row shard.Row, now time.Duration) {
	c.ownRev, c.ownAt, c.Row = row.Rev, now, row
}

// isPrimary reports whether the row names this agent's node.
func (c *viewCache) isPrimary() bool { return c.Row.Primary == c.id }

// idOf returns the node at a private address.
func (c *viewCache) idOf(address string) string {
	for _, r := range c.Nodes {
		if r.Address == address {
			return r.ID
		}
	}
	for _, m := range c.Row.Members {
		if m.Address == address {
			return m.ID
		}
	}
	return ""
}
