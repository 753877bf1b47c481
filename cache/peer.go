package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// Peer is one member of a cluster of caches. Its methods may be called from any
// goroutine.
type Peer struct {
	cfg      Config
	table    *table
	counters counters
	watchers watchers
	loop     *loop
	links    *links
	clients  *clientServer
	saver    *saver
	fetches  *fetches

	started atomic.Bool
	ready   chan struct{}
}

// New checks the configuration, see [Config.Validate], and opens nothing.
func New(cfg Config) (*Peer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Peer{cfg: cfg.withDefaults(), ready: make(chan struct{})}
	p.table = newTable(p.cfg.MaxKeys, p.cfg.MaxBytes, func(key string) { p.saver.save(key) })
	p.saver = newSaver(p.cfg, p.table, &p.counters)
	p.loop = newLoop(p)
	p.clients = newClientServer(p)
	p.links = newLinks(p.cfg, &p.counters, p.loop.report)
	p.fetches = newFetches(p.cfg, &p.counters, func(f protocol.Fetched) { p.loop.report(event{in: f}) })
	p.saver.raised = func(r protocol.Raised) { p.loop.reportStored(func() { p.loop.step(r) }) }
	p.saver.durable = func(ticket uint64, err error) { p.loop.reportStored(func() { p.loop.durable(ticket, err) }) }
	return p, nil
}

// clientBudget is how many bytes may wait to be written to all clients together.
func (c Config) clientBudget() int64 { return max(c.MaxBytes/4, 4*int64(c.MaxValue)) }

// peerBudget is how many may wait for all peers. They have a budget of their own: a crowd of clients that wait for one value
// must not keep it from peers. It has room for a value to each of twice as many as there are: members can be added.
func (c Config) peerBudget() int64 {
	return max(c.MaxBytes/4, 2*int64(len(c.Members))*int64(c.maxMessage()))
}

// maxMessage is how many bytes a message between peers may have.
func (c Config) maxMessage() int { return c.MaxValue + c.MaxKey + 64<<10 }

// Run, which may be called once, loads the storage, listens and serves until ctx
// ends. Then it ends the fetches under way and waits for the origin to return, at
// most 10 s, keeps the values that it still returns, closes its connections, by which the other peers know at once that it has
// gone, saves what is unsaved, and returns nil when everything it started has stopped.
// It returns an error when it cannot start, and [ErrOriginRuns] when the origin did not
// return: then the process should end at once.
func (p *Peer) Run(ctx context.Context) error {
	if p.started.Swap(true) {
		return errors.New("cache: a Peer runs once; make a new one with New")
	}
	defer p.watchers.close() // also of a peer that does not start
	m, err := p.load(ctx)
	if err != nil {
		close(p.loop.ended)
		return err
	}
	p.loop.m = m
	if err := p.listen(); err != nil {
		close(p.loop.ended)
		p.clients.close()
		p.links.close()
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	saving, stopSaving := context.WithCancel(work)
	defer stop()
	defer stopSaving()
	var looping, storing sync.WaitGroup
	if p.cfg.Storage != nil {
		storing.Go(func() { p.saver.run(saving) })
	}
	looping.Go(func() { p.loop.run(work, ctx.Done()) })
	close(p.ready)
	p.cfg.Logger.Info("serving", "url", p.links.pub.Addr(), "api", p.clients.router.Addr())
	if p.cfg.Origin == nil {
		p.cfg.Logger.Warn("this peer is passive, because it has no origin: it votes, serves the copies it has, and never fetches")
	}

	<-ctx.Done()
	// The peer continues announcing each fetch until its call has returned, so that nobody starts before. It begins no
	// other: the loop has the machine stop, too.
	var failed error
	if p.fetches.stop(originGrace) {
		p.finishFetches()
	} else {
		failed = ErrOriginRuns
		p.cfg.Logger.Error("the origin has not returned although its context has ended; another peer may fetch the same now", "waited", originGrace)
	}
	stop()
	looping.Wait()
	p.clients.close()
	p.links.close()
	stopSaving()
	storing.Wait()
	p.cfg.Logger.Info("stopped")
	return failed
}

const (
	originGrace = 10 * time.Second // how long a peer that stops waits for its origin
	loopGrace   = time.Second      // and for the loop to handle what the origin has returned
)

// finishFetches has the loop handle the end of the last fetches before it stops: other peers get the values, or are free.
func (p *Peer) finishFetches() {
	ctx, cancel := context.WithTimeout(context.Background(), loopGrace)
	defer cancel()
	p.fetches.waitReported(ctx)
	_ = p.inLoop(ctx, func(*protocol.Machine) {})
}

// load fills the table from the storage and makes the machine.
func (p *Peer) load(ctx context.Context) (*protocol.Machine, error) {
	state := State{}
	if p.cfg.Storage != nil {
		began := p.cfg.Clock.Now()
		var n int
		var err error
		state, err = p.cfg.Storage.Load(ctx, func(r Record) error {
			if len(r.Key) > 0 && len(r.Key) <= p.cfg.MaxKey && len(r.Entry.Value) <= p.cfg.MaxValue {
				n++
				p.table.Put(r.Key, r.Entry)
			} else {
				// Deleted, as what is evicted is: a removal could not find it, and with larger limits it would be back.
				p.saver.save(r.Key)
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, fmt.Errorf("cache: loading what is stored: %w", err)
		}
		p.cfg.Logger.Info("loaded what is stored", "copies", n, "took", p.cfg.Clock.Now()-began)
	}
	p.saver.restore(state.Removals)
	now, floor := p.loop.now(), int64(0)
	if state.Ceiling == 0 {
		floor = now.Wall + p.cfg.Timings.Reach().Milliseconds()
	}
	return protocol.New(now, protocol.Setup{
		Self: p.cfg.Self, Members: p.cfg.Members, Stored: state.Members, HasStorage: p.cfg.Storage != nil,
		Incarnation: rand.Uint64() | 1, Ceiling: state.Ceiling, Floor: floor, Removals: state.Removals,
		Timings: p.cfg.Timings, Jitter: p.cfg.Jitter, Mixed: p.cfg.Mixed, Passive: p.cfg.Origin == nil,
		MaxWaiting: p.cfg.MaxWaiting, Table: p.table, Rand: rand.Float64,
	}), nil
}

func (p *Peer) listen() error {
	if err := p.links.listen(p.cfg.BindURL); err != nil {
		return err
	}
	return p.clients.listen(p.cfg.BindAPI)
}

// Ready is closed when the peer has loaded its storage and listens.
func (p *Peer) Ready() <-chan struct{} { return p.ready }

// Get gives a copy of a key's value: the one that is here if it will do, and
// otherwise the one that this or another peer fetches, for which it waits until
// ctx ends. It returns ctx's error then, or [ErrPartitioned], [ErrFailed] and perhaps
// [ErrNotFound], [ErrOverloaded], [ErrTooLarge], [ErrBadKey], [ErrNotMember], [ErrPassive] or
// [ErrClosed].
func (p *Peer) Get(ctx context.Context, key string, o GetOptions) (Item, error) {
	if err := p.checkKey(key); err != nil {
		return Item{}, err
	}
	now := p.cfg.Wall()
	wall, after := now.UnixMilli(), int64(0)
	if !o.After.IsZero() {
		after = max(0, min(o.After.UnixMilli(), wall))
	}
	if e, fresh := p.table.useCopyString(key, wall); e.Held() && e.Expire > after && !o.Refresh {
		if fresh {
			p.counters.hits.Add(1)
			return item(key, e, Hit), nil
		}
		p.counters.stales.Add(1)
		p.noteStaleHit([]byte(key))
		return item(key, e, Stale), nil
	}
	p.counters.misses.Add(1)
	a, err := p.call(ctx, true, protocol.Get{Key: key, MinExpire: after, Refresh: o.Refresh, Until: p.deadline(ctx, longestGet)})
	if err != nil {
		return Item{}, err
	}
	return item(key, a.entry, Miss), nil
}

// longestGet is how long a Get waits when its context has no deadline.
const longestGet = 24 * time.Hour

// Peek gives the copy that is here, however old, and asks nobody.
func (p *Peer) Peek(key string) (Item, bool) {
	wall := p.cfg.Wall().UnixMilli()
	e, fresh := p.table.useCopyString(key, wall)
	if !e.Held() {
		return Item{}, false
	}
	from := Stale
	if fresh {
		from = Hit
	}
	return item(key, e, from), true
}

func item(key string, e protocol.Entry, from From) Item {
	i := Item{Key: key, Value: e.Value, Term: e.Term, Digest: e.Digest, Expire: time.UnixMilli(e.Expire), From: from}
	if e.Made > 0 {
		i.Made = time.UnixMilli(e.Made)
	}
	return i
}

// Remove takes copies away, here at once, and on every peer that can be reached;
// those that cannot are told later. No copy that was made before comes back. It
// waits for the others until shortly before ctx ends, at most 10 s, and returns how many of
// the members have confirmed, this one included. After an error of ctx, or [ErrClosed], the
// copies may have been removed.
func (p *Peer) Remove(ctx context.Context, scope protocol.Scope, name string) (confirmed, of int, err error) {
	switch {
	case scope != protocol.OneKey && scope != protocol.PrefixKey:
		return 0, 0, fmt.Errorf("cache: %w: a removal is of one key or of a prefix", lease.ErrInvalid)
	case scope == protocol.OneKey && name == "":
		return 0, 0, ErrBadKey
	case len(name) > p.cfg.MaxKey:
		return 0, 0, p.checkKey(name)
	}
	until := p.deadline(ctx, longestRemoval)
	if deadline, ok := ctx.Deadline(); ok {
		// Who asked must still be there when the count comes: if both waits ended together, it would often be lost.
		left := time.Until(deadline)
		until = min(until, p.cfg.Clock.Now()+left-min(answerTime, left/2))
	}
	a, err := p.call(ctx, false, protocol.RemoveKeys{Scope: scope, Name: name, Until: until})
	return a.confirmed, a.of, err
}

const (
	// longestRemoval is how long a removal waits for the others.
	longestRemoval = 10 * time.Second
	// answerTime is what the answer to a removal may take once the others are no longer waited for: the loop may be busy, or
	// the removal still on its way to the disk.
	answerTime = 250 * time.Millisecond
)

// ChangeMembers replaces the list of members, this peer among them, by one that differs
// by one member. Give every peer the new list, and the next change some seconds later:
// peers whose lists differ by one member work together, others ignore each other. An
// error says what to do; nothing has changed then.
func (p *Peer) ChangeMembers(ctx context.Context, members []protocol.Member) error {
	_, err := p.call(ctx, false, protocol.ChangeMembers{Members: members})
	return err
}

func (p *Peer) deadline(ctx context.Context, most time.Duration) time.Duration {
	wait := most
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(most, time.Until(deadline))
	}
	return p.cfg.Clock.Now() + wait
}

func (p *Peer) checkKey(key string) error {
	switch {
	case key == "":
		return ErrBadKey
	case len(key) > p.cfg.MaxKey:
		return fmt.Errorf("%w: the key has %d bytes; at most %d may be", ErrTooLarge, len(key), p.cfg.MaxKey)
	}
	return nil
}

// call has the loop answer a caller. Some are refused when the loop has no room,
// others wait.
func (p *Peer) call(ctx context.Context, refusable bool, in protocol.Input) (answer, error) {
	if err := p.waitReady(ctx); err != nil {
		return answer{}, err
	}
	who := newCaller()
	if refusable {
		if !p.tryRequest(event{in: in, who: who}) {
			return answer{}, ErrOverloaded
		}
	} else {
		p.counters.waiting.Add(1)
		if err := p.loop.reportWithin(ctx, event{in: in, who: who}); err != nil {
			p.counters.waiting.Add(-1)
			return answer{}, err
		}
	}
	select {
	case a := <-who.answer:
		return a, a.err
	case <-ctx.Done():
		who.gone.Store(true)
		// A loop that waits for the disk has no room, perhaps for seconds: it forgets the waiter at its next keep-alive.
		p.loop.tryReport(event{do: func() { p.loop.cancel(who) }})
		return answer{}, ctx.Err()
	case <-p.loop.ended:
	}
	select {
	case a := <-who.answer:
		return a, a.err
	default:
		return answer{}, ErrClosed
	}
}

// waitReady waits until the peer is ready.
func (p *Peer) waitReady(ctx context.Context) error {
	select {
	case <-p.loop.ended:
		return ErrClosed
	default:
	}
	select {
	case <-p.ready:
		return ctx.Err()
	case <-p.loop.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Item is a copy as it is given to whoever asked.
type Item struct {
	Key    string
	Value  []byte // must not be changed
	Term   int64
	Digest uint64    // of the value: protocol.Digest
	Expire time.Time // until then it is fresh
	Made   time.Time // when its fetch began; zero: unknown
	// From says where it was found.
	From From
}

// From is how a request was served.
type From string

// Ways to serve a request.
const (
	Hit   From = "hit"   // a fresh copy was here
	Stale From = "stale" // an old copy was here; a fetch has been asked for
	Miss  From = "miss"  // it was waited for
)

// GetOptions say which copy will do.
type GetOptions struct {
	// After asks for a copy that expires after this, or, if it lies ahead, after now; zero: any copy, however stale.
	After time.Time
	// Refresh asks for a fetch even where a fresh copy is held.
	Refresh bool
}
