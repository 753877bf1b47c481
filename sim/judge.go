package sim

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// judge stands directly at the store and beside the work, sees both in true
// time, and writes down every broken promise. Its lock makes each request to the
// store and what is noted of it one step.
type judge struct {
	leasetest.Target // the store
	setup            Setup
	storeNow         func() time.Time

	mu       sync.Mutex
	broken   []string
	begin    time.Time
	restored bool
	// Of each session: its last accepted renewal in true time, its deadline by
	// the store's clock, and whether another took a lease from it.
	renewed  map[string]time.Time
	deadline map[string]time.Time
	over     map[string]bool

	term    int64                // the newest that was granted
	holder  string               // the session that it was granted to
	before  string               // … when the store was restored, and which has not given it back
	session map[int64]string     // of every term
	offices map[*office]bool     // work that has not returned
	left    map[string]time.Time // by node: when work returned last
	effect  int64                // the highest term that had an effect
	kept    string               // the state of the role, as it was written last
	grants  int
}

// office is one run of the work.
type office struct {
	node    string
	session string
	term    int64
	told    bool // its context has ended
	// reported: the node has said that it runs on after the end of trust.
	reported bool
}

func newJudge(setup Setup, store leasetest.Target, storeNow func() time.Time) *judge {
	return &judge{
		Target: store, setup: setup, storeNow: storeNow, begin: time.Now(),
		renewed: map[string]time.Time{}, deadline: map[string]time.Time{}, over: map[string]bool{},
		session: map[int64]string{}, offices: map[*office]bool{}, left: map[string]time.Time{},
	}
}

func (j *judge) trace(format string, args ...any) {
	if j.setup.Trace != nil {
		j.setup.Trace("%-12v "+format, append([]any{time.Since(j.begin)}, args...)...)
	}
}

func (j *judge) breach(format string, args ...any) {
	j.trace("BROKEN "+format, args...)
	j.broken = append(j.broken, fmt.Sprintf("after %v: %s", time.Since(j.begin).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func (j *judge) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.Target.StartSession(ctx, s)
	j.trace("start %.6s for %s, %v", s.ID, s.Instance.Name, err)
	if err == nil {
		j.extend(s.ID)
	}
	return r, err
}

func (j *judge) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.Target.RenewSession(ctx, id)
	j.trace("renew %.6s → %d, %v", id, r.Seq, err)
	if err != nil {
		return r, err
	}
	if d, known := j.deadline[id]; j.over[id] || known && !j.storeNow().Before(d) {
		j.breach("session %s was renewed though it had lapsed (taken from: %t)", id, j.over[id])
	}
	j.extend(id)
	return r, nil
}

func (j *judge) extend(id string) {
	j.renewed[id] = time.Now()
	j.deadline[id] = j.storeNow().Add(j.setup.Timing.Timeout)
}

func (j *judge) EndSession(ctx context.Context, id, reason string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Target.EndSession(ctx, id, reason)
}

func (j *judge) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, _ := j.Target.Get(ctx, c.Lease)
	l, err := j.Target.Acquire(ctx, c)
	j.trace("acquire for %.6s, seen %d %.6s %d, waited %t → %d %.6s %d, remaining %v, %v",
		c.Session, c.Seen.Term, c.Seen.Session, c.Seen.Seq, c.Waited, l.Term, l.Session, l.Seq, l.Remaining, err)
	if err != nil || l.Term == j.term && l.Session == j.holder {
		return l, err
	}
	if l.Term == j.term && l.Session == j.before {
		j.holder = l.Session // the backup has the lease, and its holder asked again
		return l, err
	}
	if j.restored && l.Term == was.Term && l.Session == was.Session {
		return l, err // an older term of the one who asks is back: that is no grant, and its keeper gives it back
	}
	j.grants++
	if l.Term <= j.term {
		j.breach("term %d was granted after term %d", l.Term, j.term)
	}
	if !j.setup.Fenced {
		for o := range j.offices {
			if o.session != c.Session {
				j.breach("the role was given to %s (waited: %t) while the work of %s under term %d went on", l.Holder.Name, c.Waited, o.node, o.term)
			}
		}
	}
	if j.holder != "" && j.holder != l.Session {
		j.over[j.holder] = true
	}
	j.term, j.holder, j.session[l.Term] = l.Term, l.Session, l.Session
	return l, nil
}

func (j *judge) Release(ctx context.Context, h lease.ReleaseRequest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.Target.Release(ctx, h)
	j.trace("release by %.6s of %d, %s for %q: %v", h.Session, h.Term, h.Reason, h.Successor, err)
	if err == nil && h.Session == j.holder {
		j.holder = "" // its session continues
	}
	if err == nil && h.Session == j.before {
		j.before = ""
	}
	return err
}

func (j *judge) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := j.Target.Get(ctx, id)
	j.trace("get → %d %.6s %d, remaining %v, now %v", l.Term, l.Session, l.Seq, l.Remaining, l.Since.Add(l.Age).Sub(j.begin))
	return l, err
}

func (j *judge) Join(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := j.Target.Join(ctx, id, session)
	j.trace("join by %.6s → %d %.6s %d, remaining %v, now %v", session, l.Term, l.Session, l.Seq, l.Remaining, l.Since.Add(l.Age).Sub(j.begin))
	return l, err
}

func (j *judge) WriteState(ctx context.Context, id lease.ID, term int64, data []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.Target.WriteState(ctx, id, term, data)
	if err == nil && term != j.term && !j.restored {
		j.breach("a state was written under term %d after term %d was granted", term, j.term)
	}
	if err == nil {
		j.kept = string(data)
	}
	return err
}

// found notes what a primary finds before it has written anything.
func (j *judge) found(o *office, state lease.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if o.term == j.term && !j.restored && string(state.Data) != j.kept {
		j.breach("%s finds the state %q under term %d, but the last is %q", o.node, state.Data, o.term, j.kept)
	}
}

// restore notes that the store has forgotten what it said about sessions.
func (j *judge) restore(put func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	put()
	j.restored, j.before, j.holder = true, cmp.Or(j.holder, j.before), ""
	clear(j.deadline)
	clear(j.over)
}

// enter starts the work, leave ends it.
func (j *judge) enter(o *office) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.offices[o] = true
}

func (j *judge) leave(o *office) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.offices, o)
	j.left[o.node] = time.Now()
	end := j.renewed[o.session].Add(j.setup.Timing.Timeout)
	if !j.setup.Fenced && !o.reported && time.Now().After(end) {
		j.breach("the work of %s ends %v after its session, and nobody reports it", o.node, time.Since(end))
	}
}

// report notes that a node reports its work for running on after the end of trust.
func (j *judge) report(n *node, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trace("%s says %q", n.name, line)
	o := n.office.Load()
	if o != nil {
		o.reported = true
	} else if !j.setup.Fenced && time.Since(j.left[n.name]) > 0 { // after a pause both wake at one moment, in any order
		j.breach("%s says %q though its work had ended", n.name, line)
	}
}

// alive notes that the work has just found its context alive.
func (j *judge) alive(o *office) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if end := j.renewed[o.session].Add(j.setup.Timing.Timeout); !j.restored && !time.Now().Before(end) {
		j.breach("the work of %s finds its context alive %v after the deadline of its session", o.node, time.Since(end))
	}
}

// stopping notes that the work has found its context ended.
func (j *judge) stopping(o *office) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.told = true
}

// act is an effect of the work, at a ledger that compares terms.
func (j *judge) act(o *office) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if owner := j.session[o.term]; owner != o.session {
		j.breach("%s acts under term %d, which was granted to session %q", o.node, o.term, owner)
	}
	switch {
	case o.term >= j.effect:
		j.effect = o.term
	case !j.setup.Fenced:
		j.breach("an effect of %s under term %d follows one of term %d", o.node, o.term, j.effect)
	case o.session == j.holder:
		j.breach("the ledger refuses term %d of %s, who holds the role, after term %d", o.term, o.node, j.effect)
	}
}

// primary is the term of the one who holds the role in the store and whose work
// goes on, 0 when there is none.
func (j *judge) primary() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := j.Target.Get(context.Background(), elect.Leases(roleName, 1)[0])
	if err != nil {
		j.breach("the store does not answer: %v", err)
	}
	for o := range j.offices {
		if !o.told && o.session == l.Session && o.term == l.Term {
			return o.term
		}
	}
	return 0
}
