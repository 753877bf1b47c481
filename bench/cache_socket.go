package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// sockets ask over connections of the client protocol, with as little around them as
// the bare echo has: a reply is judged by the goroutine that reads it, which sends
// the next request.
type sockets struct {
	o   loadOptions
	all []*socket
}

// socket is one connection. Its slots are requests in flight; the id of a request
// is the number of its slot.
type socket struct {
	conn *zmtp.Dialer
	done chan struct{}

	mu     sync.Mutex
	slots  []slot
	until  time.Time // ask no more from then on
	left   int       // slots whose reply is awaited
	took   sample
	failed error
}

type slot struct {
	encoder wire.Encoder
	request wire.Request
	sent    time.Time
}

func newSockets(o loadOptions) (*sockets, error) {
	out := &sockets{o: o}
	for i := range o.Conns {
		s := &socket{slots: make([]slot, o.Flight), done: make(chan struct{}, 1)}
		connected := make(chan struct{}, 1)
		var err error
		s.conn, err = zmtp.Dial(o.Servers[i%len(o.Servers)], zmtp.Config{Kind: zmtp.DEALER, Handler: zmtp.Handler{
			Connected: func(*zmtp.Conn) {
				select {
				case connected <- struct{}{}:
				default: // again: what was asked for is lost, and the round will say so
				}
			},
			Message: s.message,
		}})
		if err != nil {
			return nil, err
		}
		select {
		case <-connected:
		case <-time.After(20 * time.Second):
			return nil, fmt.Errorf("%s does not accept a connection", o.Servers[i%len(o.Servers)])
		}
		out.all = append(out.all, s)
	}
	return out, nil
}

func (s *socket) begin(until time.Time, slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.left, s.failed, s.took = until, slots, nil, slices.Grow(s.took[:0], 1<<16)
}

func (s *socket) ask(i int, key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.slots[i]
	at.request = wire.Request{ID: wire.AppendID(at.request.ID[:0], uint32(i)), Op: wire.OpGet, Key: append(at.request.Key[:0], key...),
		Expire: now.Add(time.Minute).UnixMilli(), Extended: true, Patience: 60_000}
	at.sent = now
	if !s.conn.Send(at.encoder.Request(&at.request)) {
		panic("a request could not be sent")
	}
}

// message is called for every reply, by one goroutine.
func (s *socket) message(_ *zmtp.Conn, m zmtp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r wire.Reply
	err := r.Decode(m)
	i, ok := wire.ParseID(r.ID)
	switch {
	case err != nil || !ok || int(i) >= len(s.slots):
		s.failed = fmt.Errorf("a reply that is none: %v", err)
		return
	case r.Kind == wire.ReplyKeepAlive:
		return
	case r.Kind != wire.ReplyValue:
		s.failed = fmt.Errorf("no value but %v: %s %s", r.Kind, r.Code, r.Text)
	}
	at := &s.slots[i]
	now := time.Now()
	s.took = append(s.took, now.Sub(at.sent))
	if now.Before(s.until) {
		at.sent = now
		at.request.Expire = now.Add(time.Minute).UnixMilli()
		s.conn.Send(at.encoder.Request(&at.request))
		return
	}
	if s.left--; s.left == 0 {
		s.done <- struct{}{}
	}
}

func (s *socket) end() (sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.took, s.failed
}

// run has every socket ask for one key by slot, and waits for the last reply.
func (a *sockets) run(until time.Time, slots int, key func(slot int) string) (lots, error) {
	for _, s := range a.all {
		s.begin(until, slots)
	}
	began := time.Now()
	for i := range slots {
		for _, s := range a.all {
			s.ask(i, key(i), time.Now())
		}
	}
	limit := time.After(max(0, time.Until(until)) + time.Minute)
	var took []sample
	for _, s := range a.all {
		select {
		case <-s.done:
		case <-limit:
			return lots{}, fmt.Errorf("not all of %d replies have come", slots)
		}
		got, err := s.end()
		if err != nil {
			return lots{}, err
		}
		took = append(took, got)
	}
	return lotsOf(took, began), nil
}

func (a *sockets) hammer(d time.Duration) (lots, error) {
	return a.run(time.Now().Add(d), a.o.Flight, func(int) string { return a.o.Key })
}

// each asks every connection for all of the keys at once.
func (a *sockets) each(prefix string, from, to int) (lots, error) {
	if to-from > a.o.Flight {
		return lots{}, fmt.Errorf("%d keys at once, at most %d", to-from, a.o.Flight)
	}
	out, err := a.run(time.Time{}, to-from, func(i int) string { return coldKey(prefix, from+i) })
	for _, s := range a.all {
		took, _ := s.end()
		out.Samples = append(out.Samples, took...)
	}
	return out, err
}
