package agent

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// How long a probe of the primary may take: a quarter of T within these bounds.
const (
	minPeerProbe = 100 * time.Millisecond
	maxPeerProbe = 500 * time.Millisecond
)

// peerProbe forms this agent's opinion of a primary that is another node: once per interval, and at once
// when its session is first believed to have lapsed.
type peerProbe struct {
	*common
	view   *viewCache
	watch  *leaseWatch
	report *reporter

	opinion     shard.Opinion
	probedAt    time.Duration
	silentSince time.Duration // since when no probe was answered; 0: the last was
	closedSince time.Duration // since when each found the fence closed; 0: the last did not
}

func (p *peerProbe) step(now time.Duration) {
	of := p.view.Row.Primary
	address := p.view.addressOf(of)
	if of == "" || of == p.id || address == "" {
		p.opinion, p.silentSince, p.closedSince = shard.Opinion{}, 0, 0
		return
	}
	stale := p.opinion.Of != of || p.isOlderThanLapse()
	if p.busy["peer"] || !stale && now < p.probedAt+p.cfg.Timing.Interval {
		return
	}
	within := min(max(p.cfg.Timing.Timeout/4, minPeerProbe), maxPeerProbe)
	if p.silentSince != 0 && p.opinion.Of == of {
		within = max(within/2, minPeerProbe) // it did not answer the last time either
	}
	own, known := p.view.Node(of)
	// Whether its fence is closed matters only when its own agent cannot say so.
	agentGone := p.watch.lapsed && known && !own.Live()
	p.background("peer", within, func(ctx context.Context) func() {
		asked := p.now()
		reached := p.cfg.Engines.ProbePeer(ctx, address)
		closed := agentGone && reached == shard.Reachable && p.foundClosed(ctx, address)
		return func() { p.record(of, reached, closed, asked) }
	})
}

// isOlderThanLapse reports whether the opinion was formed before the lease lapsed.
func (p *peerProbe) isOlderThanLapse() bool {
	return p.watch.lapsed && p.probedAt < p.watch.lapsedSince
}

func (p *peerProbe) record(of string, reached shard.Reachability, closed bool, asked time.Duration) {
	if p.opinion.Of != of || p.opinion.Reachability != reached || p.isOlderThanLapse() {
		p.report.urgent = p.report.urgent || p.watch.lapsed // whoever judges waits for it
	}
	switch {
	case reached == shard.Reachable:
		p.silentSince = 0
	case p.silentSince == 0 || p.opinion.Of != of:
		p.silentSince = asked
	}
	opinion := shard.Opinion{Of: of, Reachability: reached}
	switch {
	case !closed:
		p.closedSince = 0
	case p.closedSince == 0 || p.opinion.Of != of:
		p.closedSince = asked
	default:
		opinion.Closed = asked - p.closedSince
	}
	p.opinion, p.probedAt = opinion, asked
}

// foundClosed reports whether a node whose agent is silent has its fence closed.
func (p *peerProbe) foundClosed(ctx context.Context, address string) bool {
	node := p.cfg.Engines.At(address)
	defer func() { _ = node.Close() }()
	n, err := node.Probe(ctx)
	return err == nil && n.Fence == shard.Closed
}

// current is the opinion as it is reported, nil without one.
func (p *peerProbe) current(now time.Duration) *shard.Opinion {
	if p.opinion.Of == "" {
		return nil
	}
	o := p.opinion
	o.Age = now - p.probedAt
	if p.silentSince != 0 {
		o.Silence = now - p.silentSince
	}
	return &o
}
