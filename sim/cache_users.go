package sim

import (
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// cacheWait is someone who waits for an answer.
type cacheWait struct {
	token protocol.Token
	peer  *cachePeer
	in    protocol.Input
	key   string
	after int64
	term  int64 // only a copy of a later term will do
	until time.Duration
	begun time.Duration // true time
	done  func(protocol.Effect)
}

// clients ask for values at all peers, and sometimes give up.
func (w *cacheWorld) clients() {
	if w.calm {
		return
	}
	for range 1 + w.dice.n(3) { // some ask at once, at several peers
		if h := w.hosts[w.dice.n(len(w.hosts))]; h.peer != nil {
			w.request(h.peer)
		}
	}
	w.after(w.dice.upTo(2*w.setup.Gap), w.clients)
}

func (w *cacheWorld) request(p *cachePeer) {
	d := w.dice
	if w.setup.Removals && d.hit(0.03) {
		in := protocol.RemoveKeys{Scope: protocol.OneKey, Name: cacheKey(d.n(w.setup.Keys))}
		if d.hit(0.4) {
			in = protocol.RemoveKeys{Scope: protocol.PrefixKey, Name: []string{"", "a/", "b/"}[d.n(3)]}
		}
		in.Until = p.host.boot() + d.upTo(10*time.Second)
		p.ask(in, nil)
		return
	}
	g := protocol.Get{Key: cacheKey(d.n(w.setup.Keys)), Until: p.host.boot() + d.upTo(8*time.Second), Refresh: d.hit(0.1)}
	switch d.n(3) {
	case 0:
		g.MinExpire = p.host.wallNow()
	case 1:
		g.MinExpire = p.host.wallNow() - d.upTo(5*time.Second).Milliseconds()
	}
	wait := p.ask(g, nil)
	if d.hit(0.1) {
		w.after(d.upTo(2*time.Second), func() {
			p.do(func() {
				if p.waits[wait.token] == wait {
					delete(p.waits, wait.token)
					p.step(protocol.Cancel{Token: wait.token})
				}
			})
		})
	}
}

// ask gives a request to a process; done is told the answer.
func (p *cachePeer) ask(in protocol.Input, done func(protocol.Effect)) *cacheWait {
	w := p.host.w
	w.judge.tokens++
	wait := &cacheWait{token: w.judge.tokens, peer: p, begun: w.now, done: done}
	p.do(func() {
		switch in := in.(type) {
		case protocol.Get:
			in.Token = wait.token
			wait.in, wait.key, wait.until, wait.term = in, in.Key, in.Until, -1
			wait.after = min(in.MinExpire, p.host.wallNow())
			if in.Refresh {
				wait.term = p.table.rows[in.Key].Term
			}
			w.judge.result.Gets++
		case protocol.RemoveKeys:
			in.Token = wait.token
			wait.in, wait.until = in, in.Until
		case protocol.ChangeMembers:
			in.Token = wait.token
			wait.in, wait.until = in, p.host.boot()
		}
		p.waits[wait.token] = wait
		w.judge.waiting(wait)
		p.step(wait.in)
	})
	return wait
}

// answer takes an effect that ends a wait, or keeps it alive. Who has given up
// meanwhile is told nothing.
func (p *cachePeer) answer(e protocol.Effect) {
	token, ends := cacheToken(e)
	wait := p.waits[token]
	if wait == nil || !ends {
		return
	}
	delete(p.waits, token)
	p.host.w.judge.answered(p, wait, e)
	if wait.done != nil {
		wait.done(e)
	}
}

// cacheToken is whom an effect answers, if anybody, and whether that ends the wait.
func cacheToken(e protocol.Effect) (token protocol.Token, ends bool) {
	switch e := e.(type) {
	case protocol.Reply:
		return e.Token, true
	case protocol.KeepAlive:
		return e.Token, false
	case protocol.Refuse:
		return e.Token, true
	case protocol.KeysRemoved:
		return e.Token, true
	case protocol.MembersChanged:
		return e.Token, true
	}
	return 0, false
}
