package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/shard"
)

// otherShards finds out whether another shard has the node already, under another of its addresses: two agents would open
// and close one fence. It looks once for each run of a node that is not a member yet, after that was reported: of two
// that start together, each finds the other.
type otherShards struct {
	*common
	probe  *nodeProbe
	view   *viewCache
	report *reporter

	askedRun string        // the run that was looked for last
	askedAt  time.Duration // … and when
	conflict string        // where it was found; "": nowhere

	retry   backoff.Backoff // of reads that fail
	retryAt time.Duration
	limiter logLimiter
}

// step reports whether the agent may act on the node, and starts a search when one is due.
func (o *otherShards) step(now time.Duration) (mayAct bool) {
	if _, member := o.view.Row.Member(o.id); member {
		return true
	}
	run := o.probe.state.Run
	if run == "" || o.askedRun == run && o.conflict == "" {
		return true
	}
	due := o.retryAt
	if o.askedRun == run {
		due = max(due, o.askedAt+o.cfg.Timing.Timeout) // where it was found it may be forgotten
	}
	if now >= due {
		o.startSearch(run)
	} else {
		o.wakeBy(due)
	}
	if o.askedRun == run {
		o.report.trouble = o.conflict
	}
	return false
}

func (o *otherShards) startSearch(run string) {
	again := o.askedRun == run
	o.background(workFindOtherShards, o.cfg.storeTimeout(), func(ctx context.Context) func() {
		conflict, err := o.find(ctx, run, again)
		return func() {
			if err != nil {
				o.retryAt = o.now() + o.retry.Next()
				if o.limiter.shouldLog(kindOf(err), o.now()) {
					o.log.Warn("other shards could not be read; nothing is done with the node before", "err", err)
				}
				return
			}
			o.retry.Reset()
			o.limiter.end()
			o.askedAt, o.askedRun, o.conflict = o.now(), run, conflict
			o.report.due = true
		}
	})
}

// find reads all shards, and returns which one has the node. Another that reports it may be about to make its shard, as it
// had not seen this one; where it has not done so until it is looked for again, the first shard by name gets the node.
func (o *otherShards) find(ctx context.Context, run string, again bool) (conflict string, err error) {
	for after := ""; ; {
		page, err := o.cfg.Registry.List(ctx, after, shard.MaxShards)
		if err != nil {
			return "", err
		}
		for _, v := range page {
			name := v.Row.Name
			after = name
			if name == o.cfg.Shard {
				continue
			}
			for _, r := range v.Nodes {
				_, member := v.Row.Member(r.ID)
				if r.Run == run && r.Live() && (member || !again || name < o.cfg.Shard) {
					return fmt.Sprintf("%s is the same node as that of %s in shard %q; nothing is done with it", o.cfg.Node, r.Label(), name), nil
				}
			}
		}
		if len(page) < shard.MaxShards {
			return "", nil
		}
	}
}
