package cache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

const (
	clientWaiting = 1024 // requests of one connection that may wait
	maxRequest    = 4 << 10
)

// clientServer answers clients. What is in the table is answered by the goroutine that
// reads the client's connection, at once; everything else goes to the loop.
type clientServer struct {
	*Peer
	router    *zmtp.Listener
	servers   atomic.Pointer[[]string]
	staleHits recentKeys

	slowAt atomic.Int64 // when a slow client was last logged, on the boot clock; 0: never
}

// client is a connection of a client. tokens is the loop's, out is the reading
// goroutine's.
type client struct {
	conn    *zmtp.Conn
	gone    atomic.Bool
	waiting atomic.Int64
	tokens  map[protocol.Token]struct{}
	out     wire.Encoder
	request wire.Request
	self    waiter // for replies that need no waiting
}

func newClientServer(p *Peer) *clientServer {
	s := &clientServer{Peer: p, staleHits: recentKeys{seed: maphash.MakeSeed()}}
	s.setMembers(protocol.NewMembers(p.cfg.Members))
	return s
}

func (s *clientServer) listen(addr string) error {
	budget := s.cfg.clientBudget()
	cfg := zmtp.Config{
		Kind: zmtp.ROUTER, Queue: int(budget / 4), Budget: zmtp.NewBudget(budget), MaxMessage: s.cfg.MaxKey + maxRequest, MaxFrames: 16, Log: s.cfg.Logger,
		Handler: zmtp.Handler{Connected: s.connected, Message: s.handleRequest, Disconnected: s.disconnected},
	}
	if s.cfg.Curve != nil {
		cfg.Security = s.cfg.Curve.server(true)
	}
	router, err := zmtp.Listen(addr, cfg)
	if err != nil {
		return fmt.Errorf("cache: listening for clients: %w", err)
	}
	s.router = router
	return nil
}

func (s *clientServer) close() {
	if s.router != nil {
		_ = s.router.Close()
	}
}

// setMembers sets what clients that ask for servers are told.
func (s *clientServer) setMembers(list protocol.Members) {
	servers := make([]string, 0, len(list))
	for _, m := range list {
		servers = append(servers, m.API)
	}
	s.servers.Store(&servers)
}

func (s *clientServer) connected(c *zmtp.Conn) {
	s.counters.clients.Add(1)
	who := &client{conn: c, tokens: map[protocol.Token]struct{}{}}
	who.self.client = who
	c.Value = who
}

func (s *clientServer) disconnected(c *zmtp.Conn, err error) {
	s.counters.clients.Add(-1)
	if errors.Is(err, zmtp.ErrSlow) {
		s.slowClient(c.Addr(), err)
	}
	who := c.Value.(*client)
	who.gone.Store(true)
	if who.waiting.Load() > 0 {
		s.loop.report(event{do: func() { s.loop.clientGone(who) }})
	}
}

// slowClient counts a client that did not read its replies, and logs one a minute.
func (s *clientServer) slowClient(addr string, err error) {
	n := s.counters.slow.Add(1)
	now, last := int64(s.cfg.Clock.Now()), s.slowAt.Load()
	if (last == 0 || now-last >= int64(time.Minute)) && s.slowAt.CompareAndSwap(last, now) {
		s.cfg.Logger.Warn("a client was disconnected because it does not read its replies", "client", addr, "err", err, "count", n)
	}
}

// handleRequest answers a request. The checks come in the order of the original's server; what
// it ignored is ignored, unless the client knows errors.
func (s *clientServer) handleRequest(conn *zmtp.Conn, m zmtp.Message) {
	c := conn.Value.(*client)
	s.counters.requests.Add(1)
	r := &c.request
	err := r.Decode(m)
	c.self.id, c.self.extended = r.ID, r.Extended
	if err != nil {
		s.counters.badRequests.Add(1)
		c.error(wire.CodeBadRequest, err.Error(), 0)
		return
	}
	wall := s.cfg.Wall().UnixMilli()
	wait := r.Wait(wall)
	if r.Patience == 0 {
		// Clients that do not say how long they wait, as the original's, are judged by their clocks, which may be off.
		wait = r.Wait(wall - s.cfg.Timings.Skew.Milliseconds())
	}
	switch {
	case wait <= 0:
		s.counters.badRequests.Add(1)
		c.error(wire.CodeBadRequest, "the request has expired; say how many milliseconds you wait, or set the clock", 0)
		return
	case r.Op == wire.OpDiscover:
		c.reply(wire.Reply{Kind: wire.ReplyServers, Servers: *s.servers.Load()})
		return
	case len(r.Key) > s.cfg.MaxKey:
		s.counters.badRequests.Add(1)
		s.refuse(c, wire.CodeTooLarge, fmt.Sprintf("a key has at most %d bytes", s.cfg.MaxKey), 0)
		return
	}
	after := min(r.After, wall)
	if e, fresh := s.table.useCopy(r.Key, wall); e.Expire > after && !r.Refresh && e.Held() {
		if !c.self.value(e, &c.out) {
			s.counters.refused.Add(1)
			s.refuse(c, wire.CodeOverloaded, whyNoRoom, time.Second)
			return
		}
		if fresh {
			s.counters.hits.Add(1)
			return
		}
		s.counters.stales.Add(1)
		s.noteStaleHit(r.Key)
		return
	}
	s.queueRequest(c, r, after, wait)
}

// queueRequest has the loop answer.
func (s *clientServer) queueRequest(c *client, r *wire.Request, after int64, wait time.Duration) {
	s.counters.misses.Add(1)
	who := &waiter{client: c, id: slices.Clone(r.ID), extended: r.Extended}
	in := protocol.Get{Key: string(r.Key), MinExpire: after, Refresh: r.Refresh, Until: s.cfg.Clock.Now() + wait}
	if c.waiting.Add(1) <= clientWaiting && s.tryRequest(event{in: in, who: who}) {
		return
	}
	c.waiting.Add(-1)
	s.counters.refused.Add(1)
	s.refuse(c, wire.CodeOverloaded, "too many requests wait", time.Second)
}

// refuse answers a request without a value. A client of the original's is sent to another server a moment later: it
// would ask again at once, here or there, and be refused again.
func (s *clientServer) refuse(c *client, code wire.Code, text string, retry time.Duration) {
	if c.self.extended {
		c.error(code, text, retry)
		return
	}
	who := &waiter{client: c, id: slices.Clone(c.self.id)}
	s.loop.report(event{do: func() { s.loop.delay(who) }})
}

// tryRequest gives a request to the loop; it is false when that has no room.
func (p *Peer) tryRequest(e event) bool {
	p.counters.waiting.Add(1)
	if p.loop.tryReport(e) {
		return true
	}
	p.counters.waiting.Add(-1)
	return false
}

// noteStaleHit tells the loop that an old copy of a key was given, so that a fetch starts. It
// is not told again for a while.
func (p *Peer) noteStaleHit(key []byte) {
	now := p.cfg.Clock.Now()
	if p.clients.staleHits.isNew(key, now) {
		p.loop.tryReport(event{in: protocol.Get{Key: string(key), Until: now + p.cfg.Timings.KeepAlive}})
	}
}

func (c *client) reply(r wire.Reply) { c.self.send(r, &c.out) }

func (c *client) error(code wire.Code, text string, retry time.Duration) {
	if c.self.extended && len(c.self.id) > 0 {
		c.reply(wire.Reply{Kind: wire.ReplyError, Code: code, Text: text, Retry: retry})
	}
}

// recentKeys remembers, roughly, which keys were noted in the last moments: a hot key that
// has expired is asked for a hundred thousand times before its fetch ends.
type recentKeys struct {
	seed  maphash.Seed
	slots [1024]atomic.Uint64
}

const staleHitEvery = 50 * time.Millisecond

// isNew is whether a key was not noted lately. Another key in the same slot makes
// it forget, which costs one needless note.
func (n *recentKeys) isNew(key []byte, now time.Duration) bool {
	h := maphash.Bytes(n.seed, key)
	mark := h ^ uint64(now/staleHitEvery)
	slot := &n.slots[h%uint64(len(n.slots))]
	return slot.Swap(mark) != mark
}
