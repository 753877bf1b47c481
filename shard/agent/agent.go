package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// Agent stands beside one node: see the package. It joins the components, each of which has a small state of
// its own, in one loop.
type Agent struct {
	*common
	trust *trust
	fence *fence // runs in a goroutine of its own

	process     *supervisor
	probe       *nodeProbe
	sessions    *sessions
	lease       *shardLease
	watch       *leaseWatch
	view        *viewCache
	report      *reporter
	peer        *peerProbe
	inbox       *inbox
	otherShards *otherShards
	reconcile   *reconciler
	arm         *armer
	members     *membership
	promises    *promises
	lock        *failoverLock
	orchestrate *orchestrator
	save        *saver
	stop        *shutdown
	board       statusBoard
}

// New checks the configuration, and opens and locks the data folder. [Agent.Run] must be called, which closes
// it again.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Boot == "" {
		cfg.Boot = thisBoot()
	}
	folder, err := openFolder(cfg.Dir, cfg.Shard, cfg.Boot, cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	id := folder.state().NodeID
	c := &common{
		loop: newLoop(cfg.Clock), cfg: cfg, log: cfg.Logger.With("shard", cfg.Shard, "node", fmt.Sprintf("%.8s", id)),
		id: id, instance: lease.NewInstance(cfg.Announced, cfg.AgentAddress), folder: folder, node: cfg.Engines.At(cfg.Node),
	}
	return wire(c), nil
}

// wire joins the components: each gets those that it needs, and callbacks for what it causes in several.
func wire(c *common) *Agent {
	a := &Agent{common: c, trust: newTrust(c.clock), view: newViewCache(c), probe: newNodeProbe(c), watch: &leaseWatch{common: c}}
	a.board.changed = make(chan struct{})
	c.onRow = a.rowWritten
	a.fence = newFence(c.cfg, a.trust, c.log)
	a.sessions = &sessions{common: c, trust: a.trust}
	a.sessions.store.Store = c.cfg.Leases
	a.lease = &shardLease{common: c, sessions: a.sessions, trust: a.trust, watch: a.watch, view: a.view}
	i := c.cfg.Timing.Interval
	a.report = &reporter{common: c, view: a.view, watch: a.watch, record: a.record, accept: a.acceptView, publish: a.publish, retry: c.cfg.retry(i/8, i/3)}
	a.process = &supervisor{common: c, probe: a.probe, fence: a.fence}
	a.otherShards = &otherShards{common: c, probe: a.probe, view: a.view, report: a.report, retry: c.cfg.retry(i/4, 5*i)}
	a.peer = &peerProbe{common: c, view: a.view, watch: a.watch, report: a.report}
	a.reconcile = &reconciler{
		common: c, probe: a.probe, view: a.view, lease: a.lease, sessions: a.sessions, fence: a.fence, trust: a.trust,
		report: a.report, process: a.process, retry: c.cfg.retry(i/4, 5*i),
	}
	r := a.reconcile
	a.arm = &armer{common: c, probe: a.probe, lease: a.lease, fence: a.fence, report: a.report, reconcile: r}
	a.inbox = &inbox{common: c, view: a.view, probe: a.probe, report: a.report, reconcile: r}
	a.members = &membership{common: c, probe: a.probe, view: a.view, lease: a.lease, report: a.report, reconcile: r}
	a.lock = &failoverLock{common: c, view: a.view, report: a.report}
	a.promises = &promises{
		common: c, probe: a.probe, fence: a.fence, trust: a.trust, sessions: a.sessions, lease: a.lease, view: a.view,
		members: a.members, report: a.report, pendingRowUpdate: a.pendingRowUpdate, lock: a.lock, givenUntil: c.folder.state().Promised,
	}
	r.arm, r.inbox, r.promises = a.arm, a.inbox, a.promises
	a.orchestrate = &orchestrator{
		common: c, view: a.view, watch: a.watch, report: a.report, promises: a.promises, lock: a.lock, peer: a.peer,
		sent: map[string]time.Duration{},
	}
	a.save = &saver{common: c, probe: a.probe, view: a.view, lease: a.lease, fence: a.fence, reconcile: r}
	a.stop = &shutdown{common: c, view: a.view, fence: a.fence, report: a.report, process: a.process, reconcile: r}
	p := a.probe
	p.fence, p.lease, p.report, p.process, p.reconcile, p.onProbe = a.fence, a.lease, a.report, a.process, r, a.arm.countRound
	p.onRestart = func() {
		a.arm.armed = false
		a.inbox.results = nil // they tell what the other process had; the orchestrator asks again
	}
	a.fence.onHung = func() { go a.post(a.process.killHung) }
	a.fence.onTrustEnd = func() { go a.post(r.onTrustEnded) }
	return a
}

// ID is the node's id.
func (a *Agent) ID() string { return a.id }

// Instance is this run of the agent.
func (a *Agent) Instance() lease.Instance { return a.instance }

// GrantPromise promises another's agent neither to orchestrate nor to obey a promotion for as long as the
// promise says, and returns the authentication of that answer. The promise is on disk when GrantPromise
// returns. Errors wrap [shard.ErrRefused].
func (a *Agent) GrantPromise(p shard.Promise, mac string) (answer string, err error) {
	return a.promises.grant(p, mac)
}

// Run acts until ctx ends, and returns nil when everything that it started has stopped. A primary that the agent
// started, or any with [Config].HandOver, is handed over first, if a replica fits. One that the agent started is closed
// then in any case; one that it did not start stays open if nobody took it over. With the cause [ErrAbandon] everything is
// left as it is; if ctx has ended so before, nothing is started. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	defer a.folder.close()
	if errors.Is(context.Cause(ctx), ErrAbandon) {
		close(a.ended)
		return errors.Join(a.node.Close(), a.fence.engine.Close())
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a.ctx = inner
	a.wg.Go(func() { a.fence.run(inner) })
	a.wg.Go(func() { a.report.watchStore(inner) })
	a.wg.Go(func() { a.inbox.receive(inner) })
	if a.cfg.Process != nil {
		a.wg.Go(func() { a.process.run(inner) })
	}
	a.runLoop(ctx)
	if errors.Is(context.Cause(ctx), ErrAbandon) {
		a.sessions.store.abandoned.Store(true)
	} else {
		a.releaseHeld(inner)
	}
	cancel()
	close(a.ended)
	a.sessions.end()
	a.wg.Wait()
	return errors.Join(a.node.Close(), a.fence.engine.Close())
}

// runLoop owns the state of all components until ctx ends and the node is handed over.
func (a *Agent) runLoop(ctx context.Context) {
	stopping := ctx.Done()
	for {
		now := a.now()
		a.lastTurn.Store(int64(now))
		a.turn(now)
		if a.stop.step(now) {
			return
		}
		timer, cancel := a.clock.Timer(max(time.Millisecond, a.next-a.now()))
		select {
		case <-stopping:
			stopping = nil
			if errors.Is(context.Cause(ctx), ErrAbandon) {
				cancel()
				return
			}
			a.stop.start()
		case f := <-a.posts:
			f()
		case <-a.woken:
			a.report.reread = true
		case <-timer:
		}
		cancel()
	}
}

// turn has each component do what is due. What may take time runs in the background, and its result starts
// another turn.
func (a *Agent) turn(now time.Duration) {
	if a.reconcile.startedAt == 0 {
		a.reconcile.startedAt, a.view.unbrokenSince = now, now
	}
	a.next = now + a.cfg.Timing.Interval
	a.probe.step(now)
	a.reconcile.declareDeath(now)
	a.reconcile.closeWithoutLease(now)
	a.reconcile.detachWithoutStore(now)
	a.lease.update(now)
	a.promises.step(now)
	// The steps from here on leave a node alone that the store does not take, or that another shard has. Those above do not:
	// they close it after a restart (nodeProbe), or if it is open without a lease while the store is down.
	switch {
	case !a.report.isRegistered():
	case !a.otherShards.step(now):
		a.publish()
	default:
		a.peer.step(now)
		a.reconcile.step(now)
		a.arm.step(now)
		a.members.step(now)
		a.orchestrate.step(now)
		a.save.step(now)
		a.publish()
	}
	a.report.step(now)
}

// acceptView takes a view that was read at now.
func (a *Agent) acceptView(v shard.View, now time.Duration) {
	if !a.view.replace(v, now) {
		a.report.reread = true
		// One is overtaken by an update now and then. Several in a row come from a store that has lost that update, and is not asked again and again
		// without a pause until it is believed.
		if a.view.rejected > 1 {
			a.report.notBefore = now + rereadSoon
		}
		return
	}
	if e, ok := a.cfg.Engines.(shard.PeerLearner); ok {
		e.LearnPeers(v.Peers())
	}
	a.watch.observe(v.Lease, a.lease.session(), now)
	a.orchestrate.trackPhase(now)
	a.view.announce()
	a.lock.recognise()
	a.publish()
}

// rowWritten takes a row that this agent has just written.
func (a *Agent) rowWritten(row shard.Row) {
	now := a.now()
	a.view.setRow(row, now)
	a.orchestrate.trackPhase(now)
	a.report.reread = true
	a.publish()
}

// pendingRowUpdate returns why this agent cannot promise not to act, "" if it can: it is about to write a row or to
// promote its node.
func (a *Agent) pendingRowUpdate() string {
	switch {
	case a.busy[workUpdateRow] || a.busy[workFailoverLock] && a.view.Row.Plan != nil:
		return "a row update is under way"
	case a.reconcile.isPromoting():
		return "a promotion is under way"
	}
	return ""
}
