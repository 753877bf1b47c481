package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// cacheJudge sees all that is said, stored and fetched, and keeps books of its own.
type cacheJudge struct {
	world    *cacheWorld
	result   CacheResult
	tokens   protocol.Token
	keys     map[string]*cacheBook
	removals []*cacheRemoval
	falsely  bool                         // someone was falsely reported dead
	skewed   bool                         // wall clocks were further apart than Timings.Skew, or stepped back by more
	forgot   map[*cacheHost]time.Duration // when a host last lost what it knew
}

// cacheBook is what the judge knows of a key.
type cacheBook struct {
	running            []*cacheFetch
	fetched            map[int64]*cacheFetch // by term
	votes              map[cacheBallot]string
	yes                map[cacheBallot]map[string]bool // who said yes, by who asked
	used               map[*cacheHost]*cacheUse
	released           map[cacheBallot]bool             // by who stood in it
	over               map[cacheBallot]bool             // the same, as who stood remembers
	asked              map[cacheBallot]int              // questions sent
	lists              map[cacheBallot]protocol.Members // of who stands
	stands             map[*cachePeer][]time.Duration   // lately
	questions, answers map[*cachePeer]int               // heard, and given
	retry              map[*cachePeer]time.Duration     // boot clock, before which a peer that failed does not fetch
}

// cacheBallot is a term and who votes, or stands, in it.
type cacheBallot struct {
	who  string
	term int64
}

// cacheUse is the highest term that a host has stood or voted in: in this life, and
// in those before, as far as it kept its storage.
type cacheUse struct {
	life         uint64
	here, before int64
}

// cacheRemoval is a removal and when it began.
type cacheRemoval struct {
	protocol.Removal
	token     protocol.Token
	begun     time.Duration
	confirmed map[*cacheHost]bool
}

func (r *cacheRemoval) covers(key string) bool {
	return r.Name == key || r.Scope == protocol.PrefixKey && strings.HasPrefix(key, r.Name)
}

func newCacheJudge(w *cacheWorld) *cacheJudge {
	return &cacheJudge{world: w, keys: map[string]*cacheBook{}, forgot: map[*cacheHost]time.Duration{}}
}

func (j *cacheJudge) breach(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	j.world.trace("BROKEN %s", what)
	j.result.Broken = append(j.result.Broken, fmt.Sprintf("after %v: %s", j.world.now.Round(time.Millisecond), what))
}

// enough is that a run is not worth going on with.
func (j *cacheJudge) enough() bool { return len(j.result.Broken) >= 20 }

func (j *cacheJudge) key(name string) *cacheBook {
	k := j.keys[name]
	if k == nil {
		k = &cacheBook{
			fetched: map[int64]*cacheFetch{}, votes: map[cacheBallot]string{}, yes: map[cacheBallot]map[string]bool{},
			used: map[*cacheHost]*cacheUse{}, released: map[cacheBallot]bool{}, over: map[cacheBallot]bool{}, asked: map[cacheBallot]int{}, lists: map[cacheBallot]protocol.Members{}, stands: map[*cachePeer][]time.Duration{},
			questions: map[*cachePeer]int{}, answers: map[*cachePeer]int{},
			retry: map[*cachePeer]time.Duration{},
		}
		j.keys[name] = k
	}
	return k
}

func (j *cacheJudge) lied() { j.falsely = true }

// started checks what a peer holds when it starts.
func (j *cacheJudge) started(p *cachePeer) {
	for key, e := range p.table.rows {
		j.holds(p, key, e, "holds at its start")
	}
}

func (j *cacheJudge) died(p *cachePeer) {
	p.host.hadOthers = j.world.now < p.host.others+j.world.setup.Timings.AnnounceTimeout*11/10
	for _, k := range j.keys {
		for _, f := range slices.Clone(k.running) {
			if f.peer == p {
				j.fetchEnds(f)
			}
		}
		delete(k.stands, p)
		delete(k.retry, p)
	}
	if !p.host.keeps {
		j.wiped(p.host)
	}
}

// wiped is that a host has forgotten everything.
func (j *cacheJudge) wiped(h *cacheHost) {
	j.forgot[h] = j.world.now
	for _, r := range j.removals {
		delete(r.confirmed, h)
	}
	for _, k := range j.keys {
		maps.DeleteFunc(k.over, func(b cacheBallot, _ bool) bool { return b.who == h.member.URL })
		delete(k.used, h)
		maps.DeleteFunc(k.votes, func(b cacheBallot, _ string) bool { return b.who == h.member.URL })
		maps.DeleteFunc(k.asked, func(b cacheBallot, _ int) bool { return b.who == h.member.URL })
	}
}

// fetches checks that a fetch may begin.
func (j *cacheJudge) fetches(f *cacheFetch) {
	j.result.Fetches++
	p, k := f.peer, j.key(f.key)
	if old := k.fetched[f.term]; old != nil && (j.forgotten(k, old) || j.hastily(p, old.peer)) {
		j.result.Again++
	} else if old != nil {
		j.breach("%s and %s fetched %s in the same term %d", old.peer.host.name, p.host.name, f.key, f.term)
	}
	k.fetched[f.term] = f
	f.ahead = true
	restarts := j.world.setup.Timings.Reach() - j.world.setup.Timings.Skew
	for _, h := range j.world.hosts {
		f.ahead = f.ahead && h.wallNow()+restarts.Milliseconds() <= f.term
	}
	for _, other := range k.running {
		switch {
		case other.late || j.falsely, j.hastily(p, other.peer), j.leftAlone(p):
			j.result.Apart++
		default:
			j.breach("%s fetches %s in term %d while %s does in term %d", p.host.name, f.key, f.term, other.peer.host.name, other.term)
		}
	}
	k.running = append(k.running, f)
	ballot := cacheBallot{p.host.member.URL, f.term}
	if k.over[ballot] {
		j.breach("%s fetches %s in term %d, which it has given up", p.host.name, f.key, f.term)
	}
	members := p.real.Members()
	votes := 1
	for _, m := range members {
		if k.yes[ballot][m.URL] && m.URL != p.host.member.URL {
			votes++
		}
	}
	if votes < members.Majority() || !members.Has(p.host.member.URL) {
		j.breach("%s fetches %s in term %d, for which it has %d votes of %d", p.host.name, f.key, f.term, votes, len(members))
	}
	if until := k.retry[p]; until > p.host.boot() {
		j.breach("%s fetches %s again %v before its back-off ends", p.host.name, f.key, until-p.host.boot())
	}
}

// hastily is whether two peers have lists so far apart as only a hasty operator gives them: their majorities may
// share nobody who would refuse the second, not even the same term, which is above every wall clock after restarts.
func (j *cacheJudge) hastily(p, other *cachePeer) bool {
	return j.world.setup.Hasty && !other.real.Members().WorksWith(p.real.Members())
}

// leftAlone is whether a peer that stores nothing was just started as its own only member:
// it cannot know what it promised to those who were members before.
func (j *cacheJudge) leftAlone(p *cachePeer) bool {
	return !p.host.keeps && len(p.real.Members()) == 1 && p.host.hadOthers && j.world.now < p.born+j.world.setup.Timings.AnnounceTimeout*11/10
}

// forgotten is whether someone who had a part in a fetch has lost all storage since.
func (j *cacheJudge) forgotten(k *cacheBook, f *cacheFetch) bool {
	who := k.yes[cacheBallot{f.peer.host.member.URL, f.term}]
	return slices.ContainsFunc(j.world.hosts, func(h *cacheHost) bool {
		return j.forgot[h] > f.begun && (h == f.peer.host || who[h.member.URL])
	})
}

// becameLate takes a fetch apart whose process is stopped past its time.
func (j *cacheJudge) becameLate(f *cacheFetch) {
	j.world.trace("%s is late with %s", f.peer.host.name, f.key)
}

func (j *cacheJudge) fetchEnds(f *cacheFetch) {
	f.over = true
	k := j.key(f.key)
	k.running = slices.DeleteFunc(k.running, func(o *cacheFetch) bool { return o == f })
}

// begins notes what a peer is told, before it acts on it.
func (j *cacheJudge) begins(p *cachePeer, in protocol.Input) {
	members := p.real.Members()
	if p.before = members.Digest(); len(members) > 1 {
		p.host.others = j.world.now
	}
	switch in := in.(type) {
	case protocol.Get:
		p.asked[in.Token] = true
	case protocol.RemoveKeys:
		p.asked[in.Token] = true
	case protocol.ChangeMembers:
		p.asked[in.Token] = true
	case protocol.Link:
		p.up[in.Peer] = p.up[in.Peer] || in.State == protocol.Up
	case protocol.Received:
		if q, ok := in.Message.(protocol.Question); ok {
			j.key(q.Key).questions[p]++
		}
	}
}

// took notes what a peer was told, when it has acted on it, and on what was due.
func (j *cacheJudge) took(p *cachePeer, in protocol.Input) {
	switch in := in.(type) {
	case protocol.Cancel:
		delete(p.asked, in.Token)
	case protocol.Link:
		p.up[in.Peer] = in.State == protocol.Up
	case protocol.Received:
		switch m := in.Message.(type) {
		case protocol.Failed:
			delete(j.key(m.Key).retry, p)
		case protocol.Update:
			delete(j.key(m.Key).retry, p)
		}
	}
}

// effects notes what a peer wants done, whether it comes to it or not.
func (j *cacheJudge) effects(p *cachePeer, in protocol.Input, effects []protocol.Effect) {
	if in, ok := in.(protocol.RemoveKeys); ok {
		j.removes(p, in, effects)
	}
	for _, e := range effects {
		j.answers(p, e)
		switch e := e.(type) {
		case protocol.StateChanged:
			if e.To == protocol.Candidate && e.Why == "stands" {
				j.stands(p, e)
			}
		case protocol.Send:
			j.says(p, e)
		}
	}
}

// stands counts elections.
func (j *cacheJudge) stands(p *cachePeer, e protocol.StateChanged) {
	j.result.Elections++
	k, now := j.key(e.Key), j.world.now
	lately := slices.DeleteFunc(k.stands[p], func(t time.Duration) bool { return t < now-time.Second })
	k.stands[p] = append(lately, now)
	n := len(k.stands[p])
	j.result.Busiest = max(j.result.Busiest, n)
	if most := j.most(); n > most {
		j.breach("%s stood %d times for %s within a second; %d are enough", p.host.name, n, e.Key, most)
	}
	up := 1
	members := p.real.Members()
	for _, m := range members {
		if m.URL != p.host.member.URL && p.up[m.URL] {
			up++
		}
	}
	// Where the same step changed the list, the one before counts.
	if up < members.Majority() && members.Digest() == p.before {
		j.breach("%s stands for %s with %d of %d connected", p.host.name, e.Key, up, len(members))
	}
}

// most is how many elections of a key one peer may begin within a second: one in
// each shortest patience, each started again once, and one for each that it loses to.
func (j *cacheJudge) most() int {
	return 2*int(time.Second/j.world.setup.Timings.CandidateMin+1) + len(j.world.hosts)
}

// says checks what a peer says to others.
func (j *cacheJudge) says(p *cachePeer, s protocol.Send) {
	me := p.host.member.URL
	switch m := s.Message.(type) {
	case protocol.Question:
		j.within(p, m.Key, m.Term, "asks for votes")
		j.uses(p, m.Key, m.Term, "asks for votes")
		k, ballot := j.key(m.Key), cacheBallot{me, m.Term}
		n := 1
		if s.To == "" {
			n = len(j.world.hosts) - 1
		}
		k.asked[ballot] += n
		k.votes[ballot] = me
		k.lists[ballot] = p.real.Members()
		t := j.world.setup.Timings
		if most := (len(j.world.hosts) - 1) * (2 + int(t.AnnounceTimeout/2/t.Repeat)); k.asked[ballot] > most {
			j.breach("%s asks %d questions about %s in term %d; %d are enough", p.host.name, k.asked[ballot], m.Key, m.Term, most)
		}
		if k.over[ballot] {
			j.breach("%s asks for votes in term %d of %s, which it has given up", p.host.name, m.Term, m.Key)
		}
	case protocol.Answer:
		k := j.key(m.Key)
		if k.answers[p]++; k.answers[p] > 2*k.questions[p] {
			j.breach("%s gives %d answers to %d questions about %s", p.host.name, k.answers[p], k.questions[p], m.Key)
		}
		if m.Yes {
			j.votes(p, s.To, m)
		}
	case protocol.Ack:
		j.within(p, m.Key, m.Term, "follows")
	case protocol.Announce:
		j.within(p, m.Key, m.Term, "fetches")
	case protocol.Release:
		if s.To != "" {
			return // an answer to someone who follows what has ended
		}
		k, ballot := j.key(m.Key), cacheBallot{me, m.Term}
		k.released[ballot], k.over[ballot] = true, true
	case protocol.Failed:
		k := j.key(m.Key)
		if f := k.fetched[m.Term]; s.To == "" && f != nil && f.peer == p {
			k.retry[p] = p.host.boot() + time.Duration(m.Wait)*time.Millisecond - time.Millisecond
		}
	}
}

// within checks that a term is safe from a restart.
func (j *cacheJudge) within(p *cachePeer, key string, term int64, what string) {
	if p.host.keeps && term > p.host.disk.ceiling {
		j.breach("%s %s for %s in term %d, above what is stored: %d", p.host.name, what, key, term, p.host.disk.ceiling)
	}
}

// uses checks that a term is of this life.
func (j *cacheJudge) uses(p *cachePeer, key string, term int64, what string) {
	k := j.key(key)
	u := k.used[p.host]
	if u == nil {
		u = &cacheUse{life: p.life}
		k.used[p.host] = u
	}
	if u.life != p.life {
		u.life, u.before, u.here = p.life, max(u.before, u.here), 0
	}
	if u.here = max(u.here, term); term <= u.before {
		j.breach("%s %s for %s in term %d, and used term %d before it started again", p.host.name, what, key, term, u.before)
	}
}

// votes checks a vote.
func (j *cacheJudge) votes(p *cachePeer, to string, a protocol.Answer) {
	j.within(p, a.Key, a.Term, "votes")
	j.uses(p, a.Key, a.Term, "votes")
	k := j.key(a.Key)
	ballot := cacheBallot{p.host.member.URL, a.Term}
	if old := k.votes[ballot]; old != "" && old != to && !k.released[cacheBallot{old, a.Term}] {
		j.breach("%s votes for %s in term %d of %s, and voted for %s", p.host.name, cacheName(to), a.Term, a.Key, cacheName(old))
	}
	k.votes[ballot] = to
	// The lists of a majority's members need not all be alike: but each works with the
	// candidate's, or two majorities may share nobody.
	if theirs := k.lists[cacheBallot{to, a.Term}]; theirs != nil && !theirs.WorksWith(p.real.Members()) {
		j.breach("%s votes for %s in term %d of %s with a list that differs by %v", p.host.name, cacheName(to), a.Term, a.Key, p.real.Members().Difference(theirs))
	}
	asker := cacheBallot{to, a.Term}
	if k.yes[asker] == nil {
		k.yes[asker] = map[string]bool{}
	}
	k.yes[asker][p.host.member.URL] = true
}
