package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// queueJudge stands directly at the store and at the target, and keeps books of
// its own about what either was told. Its lock makes each request and what is
// noted of it one step.
type queueJudge struct {
	leasetest.Target // the store of sessions
	claims           claim.KeyTable
	queue            dispatch.Queue
	world            *queueWorld
	storeNow         func() time.Time
	begin            time.Time

	mu       sync.Mutex
	result   QueueResult
	deadline map[string]time.Time // of each session, by the store's clock
	keys     map[string]*keyBook
	batches  map[string]*batchBook

	scheduled []scheduledBook
}

// keyBook is what the judge knows of a key.
type keyBook struct {
	name        string
	term        int64  // the newest
	session     string // "" when the key is free
	step        *stepBook
	interrupted bool
	blocked     time.Time          // since when it waits for a person; zero when it does not
	granted     map[int64]string   // session, by term
	begun       map[int64]stepBook // the last step of each term
	line        []*batchBook
	calls       map[*submission]bool // under way
}

// stepBook is a step that was started.
type stepBook struct {
	seq    int64
	since  time.Time // by the store's clock
	at     time.Time // in true time
	window time.Duration
}

// batchBook is what the judge knows of a batch.
type batchBook struct {
	id    string
	seq   int64
	state dispatch.State
	over  bool
	// doubt: it was sent, and nobody has heard since whether the target has it.
	doubt bool
	// sent is how often it was, since it was enqueued or a person had it sent again; last is the latest submission.
	sent int
	last dispatch.Assignment
	// unasked: the target took that one, and has not been asked about it since. asked is the latest claim under which it was: what
	// a paused sender's request does after that, nobody can know.
	unasked bool
	asked   int64
}

func newQueueJudge(w *queueWorld, storeNow func() time.Time) *queueJudge {
	j := &queueJudge{
		Target: w.store, claims: w.store.Claims(), queue: w.store.Queue(), world: w, storeNow: storeNow, begin: time.Now(),
		deadline: map[string]time.Time{}, keys: map[string]*keyBook{}, batches: map[string]*batchBook{},
	}
	if twin := w.setup.Twin; twin.Store != nil {
		j.claims, j.queue = twin.Store(j.claims, j.queue)
	}
	return j
}

func (j *queueJudge) trace(format string, args ...any) {
	if trace := j.world.setup.Trace; trace != nil {
		trace("%-12v "+format, append([]any{time.Since(j.begin)}, args...)...)
	}
}

func (j *queueJudge) breach(format string, args ...any) {
	j.trace("BROKEN "+format, args...)
	what := fmt.Sprintf(format, args...)
	j.result.Broken = append(j.result.Broken, fmt.Sprintf("after %v: %s", time.Since(j.begin).Round(time.Millisecond), what))
}

// says is breach, from outside.
func (j *queueJudge) says(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breach(format, args...)
}

func (j *queueJudge) key(name string) *keyBook {
	k := j.keys[name]
	if k == nil {
		k = &keyBook{name: name, granted: map[int64]string{}, begun: map[int64]stepBook{}, calls: map[*submission]bool{}}
		j.keys[name] = k
	}
	return k
}

// head is the first batch that is not over, nil when there is none.
func (k *keyBook) head() *batchBook {
	for _, b := range k.line {
		if !b.over {
			return b
		}
	}
	return nil
}

func (j *queueJudge) StartSession(ctx context.Context, s lease.Session) (lease.Renewal, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.Target.StartSession(ctx, s)
	if err == nil {
		j.deadline[s.ID] = j.storeNow().Add(s.Timing.Timeout)
	}
	j.trace("start %.6s of %s: %v", s.ID, s.Instance.Name, err)
	return r, err
}

func (j *queueJudge) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.Target.RenewSession(ctx, id)
	switch {
	case err == nil:
		j.deadline[id] = j.storeNow().Add(j.world.setup.Dispatch.Windows.First)
	case errors.Is(err, lease.ErrLapsed):
		j.deadline[id] = time.Time{} // for good, wherever the clock steps
	}
	return r, err
}

func (j *queueJudge) EndSession(ctx context.Context, id, reason string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.Target.EndSession(ctx, id, reason)
	if err == nil {
		j.deadline[id] = time.Time{}
	}
	return err
}

func (j *queueJudge) lives(session string) bool { return j.storeNow().Before(j.deadline[session]) }

func (j *queueJudge) join(ctx context.Context, m claim.Member) (claim.Share, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, err := j.claims.Join(ctx, m)
	j.trace("join %.6s asleep %t → %+v %v", m.Session, m.Asleep, s, err)
	return s, err
}

func (j *queueJudge) take(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	claims, err := j.claims.ClaimKeys(ctx, w)
	j.trace("take by %.6s, %d fresh of %d → %d, %v", w.Session, w.Fresh, w.Limit, len(claims), err)
	for _, c := range claims {
		j.trace("take %s under %d by %.6s, interrupted %t", c.Key, c.Term, w.Session, c.Interrupted)
		j.granted(c, w.Session)
	}
	return claims, err
}

// granted: a claim is given only of a key that is free, or whose holder has lapsed
// and whose step is past its window; and it tells of a step that was interrupted.
func (j *queueJudge) granted(c claim.Claim, session string) {
	k, now := j.key(c.Key), j.storeNow()
	if c.Term <= k.term {
		j.breach("%s was taken under term %d after term %d", c.Key, c.Term, k.term)
	}
	if k.session != "" {
		j.result.TakenOver++
		if j.lives(k.session) {
			j.breach("%s was taken from a session that lives", c.Key)
		}
	}
	if !k.blocked.IsZero() {
		j.breach("%s was taken while it waits for a person", c.Key)
	}
	if k.step != nil {
		if kept := k.step.since.Add(j.window()); now.Before(kept) {
			j.breach("%s was taken %v before the end of the second window of a step", c.Key, kept.Sub(now))
		}
		k.step, k.interrupted = nil, true
	}
	if c.Interrupted != k.interrupted {
		j.breach("%s was taken, interrupted: %t; told: %t", c.Key, k.interrupted, c.Interrupted)
	}
	k.term, k.session, k.granted[c.Term] = c.Term, session, session
}

// window is how long a step must keep others from its key.
func (j *queueJudge) window() time.Duration {
	if !j.world.setup.Target.NeedsSecondWindow() {
		return 0
	}
	return j.world.setup.Dispatch.Windows.Second
}

func (j *queueJudge) release(ctx context.Context, space, session string, claims []claim.Claim) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.claims.Release(ctx, space, session, claims)
	if err != nil {
		return err
	}
	for _, c := range claims {
		k := j.key(c.Key)
		j.trace("release %s under %d by %.6s", c.Key, c.Term, session)
		if k.session != session || k.term != c.Term {
			continue
		}
		k.interrupted = k.interrupted || k.step != nil
		k.session, k.step = "", nil
	}
	return nil
}

func (j *queueJudge) turn(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out, err := j.queue.Exchange(ctx, t)
	if err != nil {
		return out, err
	}
	for i, r := range t.Results {
		j.trace("result of %.6s: %s (%d) under %d is %s, %s, %v: %s; accepted %t", t.Session, r.Key, r.Seq, r.Term, r.State, r.After, r.Wait, r.Detail, out.Receipts[i].Accepted)
		if out.Receipts[i].Accepted {
			j.settled(t, r)
		} else if k := j.key(r.Key); k.session == t.Session && k.term == r.Term && k.head() != nil && k.head().seq == r.Seq {
			j.breach("a result for the head of %s under its term %d was not accepted", r.Key, r.Term)
		}
	}
	for _, a := range out.Begun {
		j.trace("begin by %.6s: %s %s (%d) of %s under %d, attempt %d, anew %t", t.Session, a.Work, a.ID, a.Seq, a.Key, a.Term, a.Attempt, t.Restart)
		j.begins(t, a)
	}
	for key, standing := range out.Holdings {
		if k := j.key(key); standing == dispatch.Released && k.session == t.Session {
			if h := k.head(); h != nil {
				j.breach("%s was given back as idle, and %s waits", key, h.id)
			}
			k.session = ""
		}
	}
	return out, nil
}

// settled: a result counts under the newest term alone, for the head, and is true.
func (j *queueJudge) settled(t dispatch.Exchange, r dispatch.Result) {
	k := j.key(r.Key)
	h := k.head()
	switch {
	case k.term != r.Term || k.session != t.Session:
		j.breach("a result for %s under term %d was accepted; its term is %d", r.Key, r.Term, k.term)
		return
	case h == nil || h.seq != r.Seq:
		j.breach("a result for %s (%d) was accepted, which is not its head", r.Key, r.Seq)
		return
	}
	sunk := j.world.sink.batches[h.id]
	if sunk == nil {
		sunk = &taken{}
	}
	switch {
	case r.State == dispatch.Committed && sunk.effects == 0:
		j.breach("%s is recorded as committed, and never took effect", h.id)
	case r.State == dispatch.Invalid && !poison(h.id):
		j.breach("%s is recorded as invalid, and was never refused", h.id)
	case r.State == dispatch.Failed && sunk.rightly > 0 && j.world.mayNotFailFalsely():
		j.breach("%s is recorded as failed, and took effect", h.id)
	case (r.State == dispatch.Failed || r.State == dispatch.Unknown && r.After == dispatch.Block) && h.unasked && j.world.setup.Target.HasStatus &&
		j.world.setup.Dispatch.Retry.MaxAge == 0: // one that is too old does not wait for an answer
		j.breach("%s was given up, and the target, which took it, was not asked", h.id)
	case r.State == dispatch.Delayed:
		h.doubt = false // the target said that it did not take it
	}
	h.state, k.step, k.interrupted = r.State, nil, false
	switch r.After {
	case dispatch.Next:
		h.over = true
		if k.head() == nil {
			k.session = ""
		}
	case dispatch.RetryLater:
		k.session = ""
	case dispatch.Block:
		k.session, k.blocked = "", time.Now()
		j.result.Blocked++
	}
}

// mayNotFailFalsely: where sending again is safe, a busy target's last word may hide an earlier success, unless the target is asked in
// between and its word counts.
func (w *queueWorld) mayNotFailFalsely() bool {
	t := w.setup.Target
	return !t.Resend || t.HasStatus && !t.Forgets && !t.Deduplicates
}

// begins: one batch of a key at a time, the first that is not over, under a claim
// that is held; and what was interrupted is asked for, not sent.
func (j *queueJudge) begins(t dispatch.Exchange, a dispatch.Assignment) {
	if early := j.early(a.ID); early != 0 {
		j.breach("%s of %s was begun %v before its time", a.ID, a.Key, early)
		return
	}
	k := j.key(a.Key)
	h := k.head()
	switch {
	case k.term != a.Term || k.session != t.Session || !j.lives(t.Session):
		j.breach("%s was begun under term %d; its term is %d, the session lives: %t", a.Key, a.Term, k.term, j.lives(t.Session))
		return
	case h == nil || h.id != a.ID || h.seq != a.Seq:
		j.breach("%s (%d) of %s was begun; the head is %v", a.ID, a.Seq, a.Key, h)
		return
	}
	held := h.state == dispatch.Pending || h.state == dispatch.Valid
	if held != (a.Work == dispatch.Poll) || a.Work == dispatch.Send && (k.interrupted || h.state == dispatch.Unknown) {
		j.breach("%s was begun to %s; it is %s, interrupted: %t", a.ID, a.Work, h.state, k.interrupted)
	}
	if a.Work == dispatch.Poll {
		return
	}
	if a.Work == dispatch.Resolve {
		j.result.Asked++
		if k.interrupted { // the store knows nothing of an attempt that one who died made after asking
			h.sent = min(h.sent, a.Attempt)
		}
	}
	if k.step != nil && !t.Restart {
		j.breach("%s was begun while %d of %s is in a step", a.ID, k.step.seq, a.Key)
	}
	s := stepBook{seq: a.Seq, since: j.storeNow(), at: time.Now(), window: t.Window}
	k.step, k.begun[a.Term] = &s, s
}
