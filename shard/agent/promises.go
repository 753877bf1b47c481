package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// promises lets a primary continue while the store is down: its agent asks all other members not to replace it,
// and answers when it is asked. See [shard.Promise].
type promises struct {
	*common
	probe    *nodeProbe
	fence    *fence
	trust    *trust
	sessions *sessions
	lease    *shardLease
	view     *viewCache
	members  *membership
	report   *reporter
	lock     *failoverLock
	// pendingRowUpdate returns why, if this agent is about to change the row of a plan or to promote its node.
	pendingRowUpdate func() (why string)

	givenUntil  time.Duration // until when this agent has promised not to act
	givenAt     time.Duration // when it last promised
	requestedAt time.Duration // when others were last asked
	limiter     logLimiter
}

// grant promises another's agent neither to orchestrate nor to obey a promotion for as long as the promise
// says, and returns the authentication of that answer. The promise is on disk when grant returns. Errors
// wrap [shard.ErrRefused].
func (p *promises) grant(q shard.Promise, mac string) (answer string, err error) {
	var secret, why string
	var until time.Duration
	ok := p.runInLoop(func() {
		row := p.view.Row
		secret = row.Secret
		var fine bool
		if why, fine = q.Check(row, p.id, p.knownEpoch(row)); !fine {
			return
		}
		switch {
		case !q.Verify(secret, "ask", mac):
			why = "its authentication is wrong"
		// A question that was recorded and sent again by someone else must not extend the promise.
		case p.folder.state().HasAnswered(q):
			why = "it was asked before"
		case p.pendingRowUpdate() != "":
			why = p.pendingRowUpdate()
		default:
			p.givenAt = p.now()
			until = p.givenAt + q.For
			p.givenUntil = max(p.givenUntil, until)
			p.lock.forget() // and with it the claim to orchestrate
		}
	})
	switch {
	case !ok:
		return "", fmt.Errorf("%w: the agent has stopped", shard.ErrRefused)
	case why != "":
		return "", fmt.Errorf("%w: %s", shard.ErrRefused, why)
	}
	// On disk before the answer: an agent that is restarted must know what it promised.
	err = p.folder.change(true, func(m *shard.SavedState) {
		m.Promised, m.Boot = max(m.Promised, until), p.cfg.Boot
		if m.AskedEpoch != q.Epoch {
			m.Asked = 0
		}
		m.Asked, m.AskedEpoch = max(m.Asked, q.Seq), q.Epoch // two may be on their way at once
	})
	if err != nil {
		return "", fmt.Errorf("%w: it could not be kept: %v", shard.ErrRefused, err)
	}
	return q.Sign(secret, "give"), nil
}

// step asks all other members not to replace this primary while the store is down, every interval, from
// when trust in the session has fallen to half its time.
func (p *promises) step(now time.Duration) {
	t := p.cfg.Timing
	if !p.view.isPrimary() {
		p.report.unpromised = ""
	}
	if !p.fence.isOpen() || p.view.at == 0 || !p.view.isPrimary() || p.probe.condition == shard.Down {
		return
	}
	var left time.Duration
	if p.lease.held != nil {
		left = p.lease.held.session.Remaining()
	}
	if half := (t.Timeout - t.Interval) / 2; left > half {
		p.report.unpromised = "" // the store answers: none are needed
		p.wakeBy(now + left - half)
		return
	}
	if p.busy[workRequestPromises] {
		return
	}
	if due := p.requestedAt + t.Interval; p.requestedAt != 0 && now < due {
		p.wakeBy(due)
		return
	}
	p.requestedAt = now
	lasts := min(t.Timeout, shard.MaxPromise)
	members := p.members.others()
	row := p.view.Row
	p.background(workRequestPromises, max(t.Interval, t.Timeout/4), func(ctx context.Context) func() {
		sent := p.now() // before the first question: trust must end before the earliest promise does
		err := p.requestAll(ctx, members, row, lasts)
		return func() {
			if err != nil {
				p.report.unpromised = "not all others promise: " + err.Error()
				if p.limiter.shouldLog("no promise", p.now()) {
					p.log.Warn("session is not renewed, and not all others promise to leave the primary as it is", "err", err)
				}
				return
			}
			p.limiter.end()
			p.report.unpromised = ""
			p.stats.Promised++
			p.trust.update(func(t *trust) { t.promised = max(t.promised, sent+lasts-p.cfg.Timing.Interval) })
		}
	})
}

// requestAll returns nil when the node could be of use and all members have promised.
func (p *promises) requestAll(ctx context.Context, members []shard.Member, row shard.Row, lasts time.Duration) error {
	err := p.withNodeTimeout(ctx, func(ctx context.Context) error { return p.sessions.tryWrite(ctx, p.node) })
	switch {
	// Its replicas do not acknowledge, or it was made one: as nobody can write to it, others may be better off without
	// it. One that is well again before trust ends asks again.
	case errors.Is(err, shard.ErrNodeRefused):
		return fmt.Errorf("the node refuses writes by itself: %w", err)
	case err != nil && !errors.Is(err, shard.ErrNodeUnhealthy):
		return fmt.Errorf("the node does not answer: %w", err)
	}
	err = nil
	errs := make(chan error, len(members))
	for _, m := range members {
		p.wg.Go(func() { errs <- p.request(ctx, m, row, lasts) })
	}
	for range members {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (p *promises) request(ctx context.Context, m shard.Member, row shard.Row, lasts time.Duration) error {
	switch {
	case p.cfg.Promisers == nil:
		return errors.New("this agent cannot reach others without the store")
	case m.Agent == "":
		return fmt.Errorf("the agent of node %.8s has no address", m.ID)
	}
	q := shard.Promise{Shard: row.Name, From: p.id, To: m.ID, Epoch: row.PrimaryEpoch, For: lasts, Seq: int64(p.now())}
	answer, err := p.cfg.Promisers.RequestPromise(ctx, m.Agent, q, q.Sign(row.Secret, "ask"))
	if err != nil {
		return fmt.Errorf("the agent of node %.8s at %s: %w", m.ID, m.Agent, err)
	}
	if !q.Verify(row.Secret, "give", answer) {
		return fmt.Errorf("the answer of the agent of node %.8s at %s is not authentic", m.ID, m.Agent)
	}
	return nil
}
