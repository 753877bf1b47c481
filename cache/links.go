package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// Back-off of the connections to peers: short, for whoever comes back should be
// heard soon, and one attempt costs little.
const (
	reconnectMin = 20 * time.Millisecond
	reconnectMax = time.Second
)

// links are the connections among peers: everyone listens to everyone. What this
// peer says goes out by its own listener, to whoever has subscribed to it.
type links struct {
	self   string
	cfg    zmtp.Config // for dialers; Kind, Security and Handler are filled in
	curve  *Curve
	codec  wire.Codec
	report func(event) // waits while the loop has no room
	log    *slog.Logger
	stats  *counters

	pub         *zmtp.Listener
	frames      [][]byte // of the message being sent
	subscribers sync.Map // url of a peer that has subscribed → *zmtp.Conn

	mu      sync.Mutex
	closed  bool
	dialers map[string]*link
	closing sync.WaitGroup
}

// link is this peer's subscription to another.
type link struct {
	url    string
	dialer *zmtp.Dialer
	up     atomic.Bool
	// These are used by the dialer's goroutine only.
	dead    bool   // the machine knows that nobody listens
	why     string // as the machine knows it: [protocol.Unusable]
	refused int    // handshakes in a row that failed
}

func newLinks(cfg Config, stats *counters, report func(event)) *links {
	return &links{
		self: cfg.Self, curve: cfg.Curve, report: report, log: cfg.Logger, stats: stats,
		codec:   wire.Codec{Secret: cfg.Secret, Self: cfg.Self, MaxKey: cfg.MaxKey, MaxValue: cfg.MaxValue},
		dialers: map[string]*link{},
		cfg: zmtp.Config{
			Queue: max(32<<20, 2*cfg.MaxValue), Budget: zmtp.NewBudget(cfg.peerBudget()), MaxMessage: cfg.maxMessage(), MaxFrames: 64,
			// A connection whose other end is gone without a word is noticed by its silence.
			Heartbeat: cfg.Timings.Hello, HeartbeatTimeout: cfg.Timings.AnnounceTimeout,
			ReconnectMin: reconnectMin, ReconnectMax: reconnectMax, Log: cfg.Logger,
		},
	}
}

// listen starts to say things; nobody has to be there.
func (l *links) listen(addr string) error {
	cfg := l.cfg
	cfg.Kind = zmtp.PUB
	cfg.MaxMessage = 64 << 10
	cfg.Handler = zmtp.Handler{Subscribed: l.subscribed, Disconnected: l.unsubscribed}
	if l.curve != nil {
		cfg.Security = l.curve.server(false)
	}
	pub, err := zmtp.Listen(addr, cfg)
	if err != nil {
		return fmt.Errorf("cache: listening for peers: %w", err)
	}
	l.pub = pub
	return nil
}

// subscribed is a peer that starts to hear this one. If it was not connected, it is
// now: no need to wait for the next attempt. If it was, it should be greeted.
func (l *links) subscribed(c *zmtp.Conn, prefix []byte, on bool) {
	url := string(prefix)
	if !on || url == "*" || c.Value != nil {
		return // a connection is one peer's, and counts once
	}
	c.Value = url
	// A peer asks for what is said to all, and for what is said to itself.
	l.mu.Lock()
	k := l.dialers[url]
	l.mu.Unlock()
	if k == nil { // it is no member, and should be told so
		l.report(event{in: protocol.Link{Peer: url, State: protocol.Up}})
		return
	}
	l.subscribers.Store(url, c)
	if k.up.Load() {
		l.report(event{in: protocol.Link{Peer: url, State: protocol.Up}})
		return
	}
	k.dialer.Kick()
}

func (l *links) unsubscribed(c *zmtp.Conn, _ error) {
	if url, ok := c.Value.(string); ok {
		l.subscribers.CompareAndDelete(url, c)
	}
}

// send says a message to a peer, or to all. It is for the loop only.
func (l *links) send(e protocol.Send) {
	l.frames = l.codec.Encode(l.frames[:0], e.To, l.self, e.Message)
	l.pub.Publish(l.frames)
	clear(l.frames)
	l.stats.sent.Add(1)
}

// setMembers opens links to new members, closes those to peers that are members no more,
// and returns what the machine should know: the members that can be heard already, and those that cannot be dialed.
func (l *links) setMembers(list protocol.Members) (known []protocol.Input) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	for _, m := range list {
		if m.URL == l.self {
			continue
		}
		if k := l.dialers[m.URL]; k != nil {
			if k.up.Load() {
				known = append(known, protocol.Link{Peer: m.URL, State: protocol.Up})
			}
			continue
		}
		if err := l.dial(m.URL); err != nil {
			known = append(known, protocol.Unusable{Peer: m.URL, Why: err.Error()})
		}
	}
	for url, k := range l.dialers {
		if !list.Has(url) {
			l.hangUp(url, k)
		}
	}
	return known
}

// hangUp closes a link without waiting for it: its goroutine may itself be waiting
// for the loop. l.mu is held.
func (l *links) hangUp(url string, k *link) {
	delete(l.dialers, url)
	l.closing.Go(func() { _ = k.dialer.Close() })
}

// dial opens a link; l.mu is held.
func (l *links) dial(url string) error {
	k := &link{url: url}
	cfg := l.cfg
	cfg.Kind = zmtp.SUB
	cfg.Subscribe = [][]byte{[]byte("*"), []byte(l.self)}
	cfg.Handler = zmtp.Handler{
		Connected:    func(*zmtp.Conn) { l.connected(k) },
		Message:      func(_ *zmtp.Conn, m zmtp.Message) { l.received(k, m) },
		Disconnected: func(_ *zmtp.Conn, err error) { l.disconnected(k, err) },
		Failed:       func(_ string, err error) { l.failed(k, err) },
	}
	if l.curve != nil {
		security, err := l.curve.clientSecurity(url)
		if err != nil {
			return err
		}
		cfg.Security = security
	}
	d, err := zmtp.Dial(url, cfg)
	if err != nil {
		return err
	}
	k.dialer = d
	l.dialers[url] = k
	return nil
}

func (l *links) connected(k *link) {
	k.up.Store(true)
	k.dead, k.refused = false, 0
	l.log.Info("connected to a peer", "peer", k.url)
	l.report(event{in: protocol.Link{Peer: k.url, State: protocol.Up}})
	l.reportUnusable(k, "")
}

func (l *links) disconnected(k *link, err error) {
	k.up.Store(false)
	if !errors.Is(err, zmtp.ErrClosed) {
		l.log.Info("lost the connection to a peer", "peer", k.url, "why", err)
	}
	l.report(event{in: protocol.Link{Peer: k.url, State: protocol.Down}})
}

// failed is an attempt to connect. A refusal proves that the peer's process has
// ended: nobody listens at its address. Where somebody listens and the handshake fails, the operator must know why.
func (l *links) failed(k *link, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) {
		if k.dead {
			return
		}
		k.dead, k.refused = true, 0
		l.log.Info("nobody listens at a peer's address", "peer", k.url)
		l.report(event{in: protocol.Link{Peer: k.url, State: protocol.Dead}})
		l.reportUnusable(k, "")
		return
	}
	if k.dead {
		k.dead = false
		l.report(event{in: protocol.Link{Peer: k.url, State: protocol.Down}})
	}
	var refused *zmtp.HandshakeError
	if errors.As(err, &refused) {
		if k.refused++; k.refused >= refusedTimes {
			l.reportUnusable(k, refused.Err.Error())
		}
	}
}

// refusedTimes is after how many failed handshakes in a row their reason is told: a process may end within one.
const refusedTimes = 2

func (l *links) received(k *link, m zmtp.Message) {
	from, msg, err := l.codec.Decode(m)
	switch {
	case errors.Is(err, wire.ErrAuth):
		l.reportUnusable(k, err.Error())
	case err == nil && from != k.url:
		err = fmt.Errorf("cache: it calls itself %s: its own url and the members of this peer must agree, byte for byte", from)
		l.reportUnusable(k, err.Error())
	case err == nil:
		l.reportUnusable(k, "")
	}
	if err != nil {
		l.stats.malformed.Add(1)
		l.log.Debug("a message was ignored", "peer", k.url, "err", err)
		return
	}
	l.stats.received.Add(1)
	l.report(event{in: protocol.Received{From: from, Message: msg}})
}

// reportUnusable reports why nothing that a peer sends can be used, once per reason; empty: it can.
func (l *links) reportUnusable(k *link, why string) {
	if k.why != why {
		k.why = why
		l.report(event{in: protocol.Unusable{Peer: k.url, Why: why}})
	}
}

// dropped counts the messages to a peer that found its queue full.
func (l *links) dropped(url string) int64 {
	if c, ok := l.subscribers.Load(url); ok {
		return c.(*zmtp.Conn).Dropped()
	}
	return 0
}

// close ends everything, and returns when it has ended.
func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	for url, k := range l.dialers {
		l.hangUp(url, k)
	}
	l.mu.Unlock()
	if l.pub != nil {
		_ = l.pub.Close()
	}
	l.closing.Wait()
}
