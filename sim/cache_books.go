package sim

import (
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// put checks that a copy is not replaced by an older one.
func (j *cacheJudge) put(p *cachePeer, key string, old, e protocol.Entry) {
	if e.Held() && (old.Held() && e.Term == old.Term && e.Expire == old.Expire && e.Digest == old.Digest) {
		return // only what was seen has changed
	}
	if e.Held() && old.Held() && !e.Newer(old) {
		j.breach("%s replaces a copy of %s (%s) by an older one (%s)", p.host.name, key, cacheEntry(old), cacheEntry(e))
	}
	if e.Held() {
		j.holds(p, key, e, "takes")
	}
}

// holds checks that a copy was not removed, as the peer has confirmed.
func (j *cacheJudge) holds(p *cachePeer, key string, e protocol.Entry, what string) {
	f := j.key(key).fetched[e.Term]
	if e.Held() && f == nil {
		j.breach("%s %s a copy of %s of term %d, in which nobody has fetched", p.host.name, what, key, e.Term)
		return
	}
	for _, r := range j.removals {
		if !e.Held() || !r.confirmed[p.host] || !r.covers(key) {
			continue
		}
		// A fetch that was ahead of all clocks may be of a later term than a removal
		// that began after it.
		if f.begun < r.begun && (e.Term < r.Term || !f.ahead && !j.skewed) {
			j.breach("%s %s a copy of %s of term %d, fetched from %v on, and has confirmed its removal in term %d, from %v on",
				p.host.name, what, key, e.Term, f.begun, r.Term, r.begun)
		}
	}
}

// confirms is a peer that says that it has a removal.
func (j *cacheJudge) confirms(p *cachePeer, is func(*cacheRemoval) bool) {
	for _, r := range j.removals {
		if !is(r) || r.confirmed[p.host] {
			continue
		}
		r.confirmed[p.host] = true
		for key, e := range p.table.rows {
			j.holds(p, key, e, "holds")
		}
	}
}

// removes is a removal that starts.
func (j *cacheJudge) removes(p *cachePeer, in protocol.RemoveKeys, effects []protocol.Effect) {
	for _, e := range effects {
		if save, ok := e.(protocol.SaveRemovals); ok {
			for _, r := range save.All {
				if r.Scope == in.Scope && r.Name == in.Name {
					j.removals = append(j.removals, &cacheRemoval{r, in.Token, j.world.now, map[*cacheHost]bool{}})
				}
			}
			return
		}
	}
	j.breach("%s does not store %s", p.host.name, cacheText(in))
}

// waiting sees to it that someone does not wait for too long.
func (j *cacheJudge) waiting(wait *cacheWait) {
	p := wait.peer
	t := j.world.setup.Timings
	end := wait.until + t.KeepAlive
	pauses := p.pauses
	j.world.after(p.host.in(end)+50*time.Millisecond+j.world.setup.DiskSlow, func() {
		if p.dead || p.paused || p.pauses != pauses || p.waits[wait.token] != wait || p.barrier.Len() > 0 {
			return
		}
		j.breach("%s: %s still waits %v after its end", p.host.name, cacheText(wait.in), p.host.boot()-wait.until)
	})
}

// answers checks that the machine answers someone who asked it, and once.
func (j *cacheJudge) answers(p *cachePeer, e protocol.Effect) {
	token, ends := cacheToken(e)
	if token == 0 {
		return
	}
	if !p.asked[token] {
		j.breach("%s answers %s to nobody", p.host.name, cacheText(e))
	}
	if ends {
		delete(p.asked, token)
	}
}

// answered checks an answer.
func (j *cacheJudge) answered(p *cachePeer, wait *cacheWait, e protocol.Effect) {
	r, ok := e.(protocol.Reply)
	if !ok {
		if gone, ok := e.(protocol.KeysRemoved); ok {
			j.confirms(p, func(r *cacheRemoval) bool { return r.token == wait.token })
			if gone.Confirmed > 1 {
				j.result.Removals++
			}
		}
		return
	}
	j.result.Replies++
	switch {
	case !r.Entry.Held():
		j.breach("%s replies without a value to %s", p.host.name, cacheText(wait.in))
	case r.Entry.Expire <= wait.after || r.Entry.Term <= wait.term:
		j.breach("%s replies %s to %s: it must expire after %d and be of a term after %d", p.host.name, cacheText(e), cacheText(wait.in), wait.after, wait.term)
	}
	j.holds(p, wait.key, r.Entry, "serves")
}
