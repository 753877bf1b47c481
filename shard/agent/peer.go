package agent

import (
	"context"
	"errors"
	"sync"
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
	due         bool          // probe again at once, and report what it finds
	silentSince time.Duration // since when no probe was answered; 0: the last was
	closedSince time.Duration // since when each found the fence closed; 0: the last did not
	// unattended are the opinions of members whose agents are silent, formed together with that of the primary.
	unattended []shard.Opinion
}

// probeSoon has the primary, and members whose agents are silent, probed in the next turn.
func (p *peerProbe) probeSoon() { p.due = true }

func (p *peerProbe) step(now time.Duration) {
	of := p.view.Row.Primary
	address := p.view.AddressOf(of)
	if of == "" || of == p.id || address == "" {
		p.opinion, p.silentSince, p.closedSince, p.unattended = shard.Opinion{}, 0, 0, nil
		return
	}
	stale := p.due || p.opinion.Of != of || p.isOlderThanLapse()
	if p.busy[workProbePeer] || !stale && now < p.probedAt+p.cfg.Timing.Interval {
		return
	}
	due := p.due
	p.due = false
	within := min(max(p.cfg.Timing.Timeout/4, minPeerProbe), maxPeerProbe)
	if p.silentSince != 0 && p.opinion.Of == of {
		within = max(within/2, minPeerProbe) // it did not answer the last time either
	}
	own, known := p.view.Node(of)
	// Whether its fence is closed matters only when its own agent cannot say so.
	agentGone := p.watch.takeable && known && !own.Live()
	silent := p.silentMembers()
	p.background(workProbePeer, within, func(ctx context.Context) func() {
		asked := p.now()
		answers := p.probeUnattended(ctx, silent)
		reached := p.cfg.Engines.ProbePeer(ctx, address)
		closed := agentGone && reached == shard.Reachable && p.foundClosed(ctx, address)
		// Waited for here, while ctx lasts: a primary that refuses does so at once, and one of these may hear from it.
		unattended := answers()
		return func() {
			p.report.urgent = p.report.urgent || due
			p.record(of, reached, closed, asked, unattended)
		}
	})
}

// silentMembers are the members whose agents are silent, with their addresses. It matters what becomes of their
// nodes once the primary's session has lapsed.
func (p *peerProbe) silentMembers() (all []shard.Member) {
	if !p.watch.takeable {
		return nil
	}
	for _, m := range p.view.Row.Members {
		r, reports := p.view.Node(m.ID)
		if m.ID == p.id || m.ID == p.view.Row.Primary || reports && r.Live() {
			continue
		}
		if m.Address = p.view.AddressOf(m.ID); m.Address != "" {
			all = append(all, m)
		}
	}
	return all
}

// probeUnattended asks nodes whose agents are silent whom they follow, all at once. The function that it returns waits
// for the answers.
func (p *peerProbe) probeUnattended(ctx context.Context, members []shard.Member) func() []shard.Opinion {
	opinions := make([]shard.Opinion, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			n, err := p.probeNode(ctx, m.Address)
			o := shard.Opinion{Of: m.ID, Reachability: shard.TimedOut}
			switch {
			case err == nil:
				o.Reachability, o.Link = shard.Reachable, n.Link
			case errors.Is(err, shard.ErrNodeGone):
				o.Reachability = shard.Refused
			}
			opinions[i] = o
		})
	}
	return func() []shard.Opinion { all.Wait(); return opinions }
}

// isOlderThanLapse reports whether the opinion was formed before the lease lapsed.
func (p *peerProbe) isOlderThanLapse() bool {
	return p.watch.takeable && p.probedAt < p.watch.takeableSince
}

func (p *peerProbe) record(of string, reached shard.Reachability, closed bool, asked time.Duration, unattended []shard.Opinion) {
	if p.opinion.Of != of || p.opinion.Reachability != reached || p.isOlderThanLapse() {
		p.report.urgent = p.report.urgent || p.watch.takeable // whoever judges waits for it
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
	p.opinion, p.probedAt, p.unattended = opinion, asked, unattended
}

// foundClosed reports whether a node whose agent is silent has its fence closed.
func (p *peerProbe) foundClosed(ctx context.Context, address string) bool {
	n, err := p.probeNode(ctx, address)
	return err == nil && n.Fence == shard.Closed
}

// probeNode probes a node that is not this agent's own.
func (p *peerProbe) probeNode(ctx context.Context, address string) (shard.State, error) {
	node := p.cfg.Engines.At(address)
	defer func() { _ = node.Close() }()
	return node.Probe(ctx)
}

// currentUnattended are the opinions of members whose agents are silent, as they are reported.
func (p *peerProbe) currentUnattended(now time.Duration) (all []shard.Opinion) {
	for _, o := range p.unattended {
		o.Age = now - p.probedAt
		all = append(all, o)
	}
	return all
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
