package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

const (
	// attachWatch is how long a replica that was made to follow another primary is probed more often: a plan
	// waits for its link.
	attachWatch = 10 * time.Second
	// restartWatch is how long a node that went down is probed every restartProbe, where something else starts it.
	restartWatch = time.Minute
	restartProbe = 20 * time.Millisecond
	// attachProbe is how often, so that the end of a copy is not missed either.
	attachProbe = 100 * time.Millisecond
	// closeWatch is how long a node that was restarted is probed every attachProbe until it is seen to be closed: a plan
	// waits for its record to say so.
	closeWatch = 10 * time.Second
)

// nodeProbe knows the agent's own node: it asks the node about itself every interval. Times are readings of
// the agent's clock.
type nodeProbe struct {
	*common
	fence     *fence
	lease     *shardLease
	report    *reporter
	process   *supervisor
	reconcile *reconciler
	// onRestart is called when the node's process is found to be another one.
	onRestart func()
	// onProbe is called with each result that was asked for by the loop.
	onProbe func()

	state         shard.State
	condition     shard.Condition
	answered      bool   // the latest probe was
	known         bool   // any probe was
	unclassified  bool   // nothing was decided about it since it came, or came back
	accessProblem string // why it does not let the agent in, or is not managed
	unanswered    string // why the latest probe was not answered
	warning       string // what an operator should know about this run of the node
	inspectedRun  string // the latest run that was inspected
	quarantine    string // why the reconciler keeps it closed; "": it does not
	// announcedFence was reported before the fence is opened, and is reported until a probe has seen it.
	announcedFence shard.Fence

	logReads chan struct{} // reads of its log under way, which may hang

	reportedAt time.Duration // when the latest probe was sent that was reported
	dueSince   time.Duration // the next probe is due an interval after this
	askedAt    time.Duration // when the latest probe that counted was sent
	answeredAt time.Duration // … that was answered
	restarted  time.Duration // when the process was last found to be another one
	attachedAt time.Duration // when the node was last made to follow another primary
}

func newNodeProbe(c *common) *nodeProbe {
	const logReads = 4
	return &nodeProbe{common: c, logReads: make(chan struct{}, logReads), unclassified: true, state: shard.State{Role: shard.Replica}, condition: shard.Silent}
}

// step probes the node if that is due.
func (p *nodeProbe) step(now time.Duration) {
	if p.busy[workProbeNode] {
		return
	}
	if due := p.dueSince + p.interval(now); p.dueSince != 0 && now < due {
		p.wakeBy(due)
		return
	}
	i := p.cfg.Timing.Interval
	p.dueSince = now - i/20 + p.cfg.Jitter(i/10) // so that agents do not report all at once
	if p.awaitsRestart(now) {
		p.dueSince = now
	}
	examine := p.inspection()
	p.background(workProbeNode, max(i, p.cfg.nodeTimeout()), func(ctx context.Context) func() {
		asked := p.now()
		n, err := p.readState(ctx)
		if err == nil {
			err = examine(n)
		}
		return func() {
			wasDown := p.condition == shard.Down
			p.observe(n, asked, err)
			p.onProbe()
			// One that is down is probed far more often than that is reported.
			if !wasDown || p.condition != shard.Down || asked >= p.reportedAt+i {
				p.report.due, p.reportedAt = true, asked
			}
		}
	})
}

// readState asks the node about itself, and its host how far its log reaches.
func (p *nodeProbe) readState(ctx context.Context) (shard.State, error) {
	n, err := p.node.Probe(ctx)
	r, reads := p.cfg.Engines.(shard.LogReader)
	if err == nil && reads && n.LogPath != "" && p.cfg.Local(p.cfg.Node) {
		n.AppendLog = p.readLog(ctx, r, n.LogPath)
	}
	return n, err
}

// readLog is zero if the log cannot be read, or not in time: a disk that hangs must not hide that the node answers.
func (p *nodeProbe) readLog(ctx context.Context, r shard.LogReader, path string) shard.AppendLog {
	select {
	case p.logReads <- struct{}{}:
	case <-ctx.Done():
		return shard.AppendLog{}
	}
	read := make(chan shard.AppendLog, 1)
	go func() {
		defer func() { <-p.logReads }()
		l, err := r.ReadLog(path)
		if err != nil {
			p.log.Debug("node's log cannot be read", "err", err)
		}
		read <- l
	}()
	select {
	case l := <-read:
		return l
	case <-ctx.Done():
		return shard.AppendLog{}
	}
}

// inspection is what examines a run of the node's process before anything is done with it.
func (p *nodeProbe) inspection() func(n shard.State) error {
	known := p.inspectedRun
	return func(n shard.State) error {
		if p.cfg.Inspect == nil || n.Run == known {
			return nil
		}
		warning, err := p.cfg.Inspect(n)
		if err == nil {
			p.runInLoop(func() { p.inspectedRun, p.warning = n.Run, warning })
		}
		return err
	}
}

// awaitsRestart reports whether the node went down a short while ago and something else may start it again: open, and
// then every moment counts until it is closed.
func (p *nodeProbe) awaitsRestart(now time.Duration) bool {
	gone := p.process.goneSince
	return p.cfg.Process == nil && gone != 0 && now < gone+restartWatch
}

func (p *nodeProbe) interval(now time.Duration) time.Duration {
	i := p.cfg.Timing.Interval
	if p.report.refusal != "" || p.accessProblem != "" {
		i = max(i, p.cfg.Timing.Timeout/2) // only an operator can change that
	}
	if p.awaitsRestart(now) {
		return min(i, restartProbe)
	}
	attached := p.attachedAt != 0 && now < p.attachedAt+attachWatch
	if l := p.state.Link; l != nil && (l.Syncing || attached && !l.Up) {
		i = min(i, attachProbe)
	}
	if restarted := p.restarted != 0 && now < p.restarted+closeWatch; restarted && p.state.Fence != shard.Closed && !p.fence.isOpen() {
		i = min(i, attachProbe)
	}
	return i
}

// probeSoon has the node probed in the next turn.
func (p *nodeProbe) probeSoon() { p.dueSince = 0 }

// observe takes what the node said of itself, asked at the given time.
func (p *nodeProbe) observe(n shard.State, asked time.Duration, err error) {
	before := p.condition
	if asked < p.askedAt {
		return // overtaken by a later probe
	}
	p.askedAt = asked
	switch {
	case err == nil:
		p.accept(n, asked)
	case errors.Is(err, shard.ErrNodeAccess) || errors.Is(err, shard.ErrUnsupported) || errors.Is(err, shard.ErrNotManaged):
		p.answered, p.accessProblem = false, p.plainReason(err)
		// Something answers that the agent cannot close. One that the agent starts is closed.
		if p.cfg.Process == nil {
			p.process.goneSince = 0
		}
		p.condition = shard.Silent
	case errors.Is(err, shard.ErrNodeGone) && p.cfg.Local(p.cfg.Node) && !p.process.isRunning():
		// On its own host a refused connection proves the end of a process that is not known to run.
		p.processEnded(asked)
	default:
		p.answered, p.unanswered = false, p.silenceReason(err)
		if p.condition != shard.Down {
			p.condition = shard.Silent
		}
	}
	if p.condition != before {
		p.report.urgent = true
	}
}

// plainReason is an error's text without what stands beside it wherever it is shown: the address, and package names.
func (p *nodeProbe) plainReason(err error) string {
	return strings.NewReplacer("node "+p.cfg.Node+": ", "", shard.ErrUnsupported.Error()+": ", "", "shard: ", "").Replace(err.Error())
}

// silenceReason is why there was no answer, in words that stay the same as long as it does.
func (p *nodeProbe) silenceReason(err error) string {
	op, network := errors.AsType[*net.OpError](err)
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	// A server without TLS waits for the rest of what it takes for a command.
	case late && !p.known:
		return fmt.Sprintf("node %s has never answered in time: is it another server, or one without TLS (--tls)?", p.cfg.Node)
	case late:
		return fmt.Sprintf("node %s does not answer in time", p.cfg.Node)
	case errors.Is(err, shard.ErrNodeGone):
		return fmt.Sprintf("nothing listens at %s", p.cfg.Node)
	// That is how a server with TLS answers one without, and many another server that is not of the engine.
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("node %s closes the connection; does it want TLS (--tls), or is it another server?", p.cfg.Node)
	case network:
		return fmt.Sprintf("node %s: %s: %v", p.cfg.Node, op.Op, op.Err)
	}
	return p.plainReason(err)
}

func (p *nodeProbe) accept(n shard.State, asked time.Duration) {
	switch {
	case p.known && p.state.Run != n.Run:
		p.onRestart()
		p.nodeRestarted()
	case !p.known:
		p.firstSeen(n)
	}
	before := p.state
	if n.Fence == shard.Armed && n.Needs != 0 && n.Needs != max(1, p.cfg.MinReplicas) {
		n.Fence = shard.Open // someone else's condition: it is not what this agent promises
	}
	p.state, p.answered, p.known, p.accessProblem, p.unanswered, p.answeredAt = n, true, true, "", "", asked
	p.process.goneSince = 0
	p.condition = shard.Up
	if n.Loading {
		p.condition = shard.Loading
	}
	if p.quarantine != "" {
		p.condition = shard.Quarantined
	}
	if before.Role != n.Role || before.Fence != n.Fence || before.Synced != n.Synced {
		p.report.urgent = true
	}
	// The announcement stays while a task may still be opening the fence.
	if n.Fence != shard.Closed || !p.fence.isOpen() && !p.reconcile.isTaskRunning() {
		p.announcedFence = ""
	}
	p.process.adopt(n.PID)
}

// firstSeen closes an open primary that was restarted while it had no agent, before anything else: another
// node may have taken its place.
func (p *nodeProbe) firstSeen(n shard.State) {
	m := p.folder.state()
	if m.Epoch > 0 && n.Role == shard.Primary && n.Fence != shard.Closed && n.Run != "" && n.Run != m.Run {
		p.log.Warn("node was restarted while it had no agent")
		p.fence.requestClose()
	}
}

// nodeRestarted: the node's process is another one than before. It may have less data.
func (p *nodeProbe) nodeRestarted() {
	p.log.Warn("node was restarted")
	p.unclassified, p.restarted = true, p.now()
	p.fence.requestClose() // at once: another may have been promoted since it went down
}

// processEnded: the node's process has ended, proved.
func (p *nodeProbe) processEnded(now time.Duration) {
	p.answered, p.unanswered = false, ""
	p.process.recordEnd(now)
}

// processStarted: a process of the node runs of which nothing is known.
func (p *nodeProbe) processStarted() {
	p.unclassified = true
	p.probeSoon()
}

// setQuarantine records why the node is kept closed, "" when it is not.
func (p *nodeProbe) setQuarantine(why string) {
	if p.quarantine != why {
		p.quarantine, p.report.urgent = why, true
	}
	switch {
	case why != "":
		p.condition = shard.Quarantined
	case p.condition == shard.Quarantined:
		p.condition = shard.Up
	}
}

// probeNow probes the node at once, from another goroutine, and has the loop take the result.
func (p *nodeProbe) probeNow(ctx context.Context) (shard.State, error) {
	asked := p.now()
	var n shard.State
	err := p.withNodeTimeout(ctx, func(ctx context.Context) (err error) {
		n, err = p.readState(ctx)
		return err
	})
	if err != nil {
		return shard.State{}, err
	}
	if !p.runInLoop(func() { p.observe(n, asked, nil); p.dueSince = asked }) {
		return shard.State{}, errStopped
	}
	return n, nil
}

// isFenceCurrent reports whether what the latest probe said of the fence still holds.
func (p *nodeProbe) isFenceCurrent() bool { return p.fence.isCurrent(p.askedAt) }
