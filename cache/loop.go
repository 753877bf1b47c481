package cache

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
)

// Bounds of the loop.
const (
	inboxRoom   = 1024 // from peers, origins and links; those who have no room wait
	requestRoom = 1024 // from clients and callers; those who have no room are refused
	batch       = 256  // events taken without looking at the time
	maxHeld     = 4096 // effects that wait for the disk; beyond it, the machine waits too
	// refuseAfter is how long a refusal to a client of the original's is held back.
	refuseAfter = time.Second
)

// event is an input of the machine, with who waits for its answer, or something
// that the loop does by itself.
type event struct {
	in  protocol.Input
	who *waiter
	do  func()
}

// loop owns the machine: everything that happens to it, and everything that it
// wants done, passes here, on one goroutine, which never waits for a network, a
// disk or an origin.
type loop struct {
	*Peer
	m        *protocol.Machine
	log      *slog.Logger
	inbox    chan event
	requests chan event
	stored   chan func() // the saver's reports; always received, so that it never waits for the inbox
	ended    chan struct{}

	pendingInputs   []protocol.Input // that carrying effects out has made
	waiters         map[protocol.Token]*waiter
	lastToken       protocol.Token
	delayedRefusals []delayedRefusal // in order of time
	replies         wire.Encoder

	barrier    protocol.Barrier // its tickets are the saver's
	notDurable bool             // what must be durable is not

	digest   uint64 // of the list of members that the links have
	status   protocol.Status
	statusAt time.Duration

	mu     sync.Mutex
	counts protocol.Counters
}

func newLoop(p *Peer) *loop {
	return &loop{Peer: p, log: p.cfg.Logger, inbox: make(chan event, inboxRoom), requests: make(chan event, requestRoom),
		stored: make(chan func()), ended: make(chan struct{}), waiters: map[protocol.Token]*waiter{}}
}

// report gives an event to the loop, waiting for room.
func (l *loop) report(e event) {
	select {
	case l.inbox <- e:
	case <-l.ended:
	}
}

// reportWithin is report for a caller, who waits for room until ctx ends; it returns ctx's error then.
func (l *loop) reportWithin(ctx context.Context, e event) error {
	select {
	case l.inbox <- e:
	case <-l.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// tryReport is report for those who are refused when there is no room.
func (l *loop) tryReport(e event) bool {
	select {
	case l.requests <- e:
		return true
	default:
		return false
	}
}

// reportStored is report for the saver.
func (l *loop) reportStored(do func()) {
	select {
	case l.stored <- do:
	case <-l.ended:
	}
}

func (l *loop) now() protocol.Now {
	return protocol.Now{Boot: l.cfg.Clock.Now(), Wall: l.cfg.Wall().UnixMilli()}
}

// run is the loop, until ctx ends; from stopping on, which comes before, it starts no fetch. Whoever still waits at the end is
// sent away.
func (l *loop) run(ctx context.Context, stopping <-chan struct{}) {
	defer l.refuseRest()
	defer close(l.ended)
	for ctx.Err() == nil {
		l.publishState()
		l.refuseDue()
		inbox, asks := l.inbox, l.requests
		if l.barrier.Len() > maxHeld {
			inbox, asks = nil, nil
		}
		timer, stop := l.cfg.Clock.Timer(l.next() - l.cfg.Clock.Now())
		select {
		case e := <-inbox:
			l.handle(e)
			l.drain()
		case e := <-asks:
			l.handle(e)
			l.drain()
		case do := <-l.stored:
			do()
		case <-timer:
			l.step(protocol.Tick{})
		case <-stopping:
			stopping = nil
			l.step(protocol.Stop{})
		case <-ctx.Done():
		}
		stop()
	}
}

func (l *loop) next() time.Duration {
	next := l.m.Next()
	if len(l.delayedRefusals) > 0 {
		next = min(next, l.delayedRefusals[0].at)
	}
	return next
}

// drain takes what has come meanwhile.
func (l *loop) drain() {
	for range batch {
		if l.barrier.Len() > maxHeld {
			return
		}
		select {
		case e := <-l.inbox:
			l.handle(e)
		case e := <-l.requests:
			l.handle(e)
		default:
			return
		}
	}
}

func (l *loop) handle(e event) {
	if e.do != nil {
		e.do()
		return
	}
	if e.who != nil {
		if e.in = l.addWaiter(e.in, e.who); e.in == nil {
			return
		}
	}
	if link, ok := e.in.(protocol.Link); ok {
		l.notifyPeerEvent(link.Peer, [...]string{"link down", "link up", "process has ended"}[link.State])
	}
	l.step(e.in)
}

// step has the machine take an input, and carries out what it wants done.
func (l *loop) step(in protocol.Input) {
	for {
		for _, e := range l.m.Step(l.now(), in) {
			l.holdOrExecute(e)
		}
		if len(l.pendingInputs) == 0 {
			return
		}
		in, l.pendingInputs = l.pendingInputs[0], l.pendingInputs[1:]
	}
}

// statusEvery is how often the whole peer's state is looked at.
const statusEvery = 50 * time.Millisecond

// publishState sees to what may have changed with the last steps.
func (l *loop) publishState() {
	if members := l.m.Members(); members.Digest() != l.digest {
		l.digest = members.Digest()
		l.clients.setMembers(members)
		for _, known := range l.links.setMembers(members) {
			l.step(known) // the machine may not have known it
		}
	}
	l.mu.Lock()
	l.counts = l.m.Counters()
	l.mu.Unlock()
	now := l.cfg.Clock.Now()
	if now < l.statusAt {
		return
	}
	l.statusAt = now + statusEvery
	status := l.m.Status()
	l.logStatusChange(l.status, status)
	l.status = status
}

// logStatusChange tells operators of what concerns the whole peer and of which the machine
// says nothing.
func (l *loop) logStatusChange(old, now protocol.Status) {
	if old.Trouble != now.Trouble {
		if now.Trouble != "" {
			l.log.Warn("the cluster needs attention", "why", now.Trouble)
			l.notifyPeerEvent("", now.Trouble)
		} else {
			l.log.Info("the cluster no longer needs attention", "was", old.Trouble)
		}
	}
	switch {
	case old.Partitioned && !now.Partitioned:
		l.log.Info("a majority of the peers is connected")
		l.notifyPeerEvent("", "a majority of the peers is connected")
	case old.Abstaining && !now.Abstaining:
		l.log.Info("votes: what it promised before its start has ended")
		l.notifyPeerEvent("", "votes")
	}
}

func (l *loop) readCounters() protocol.Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}
