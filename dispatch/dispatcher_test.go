package dispatch_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/memstore/queues"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// target records what it is sent, and answers as the test says.
type target struct {
	semantics dispatch.Semantics
	takes     time.Duration
	answer    func(a dispatch.Assignment) dispatch.Answer // nil: committed

	mu    sync.Mutex
	sent  map[string][]string // ids by key, in the order of their arrival
	busy  map[string]int
	most  int // submissions at once
	now   int
	wrong []string
}

func newTarget() *target { return &target{sent: map[string][]string{}, busy: map[string]int{}} }

func (*target) Name() string                    { return "test" }
func (g *target) Semantics() dispatch.Semantics { return g.semantics }
func (g *target) enter(a dispatch.Assignment)   { g.count(a, 1) }
func (g *target) leave(a dispatch.Assignment)   { g.count(a, -1) }
func (g *target) order(key string) (out []string) {
	g.locked(func() { out = slices.Clone(g.sent[key]) })
	return
}
func (g *target) locked(f func())                                 { g.mu.Lock(); defer g.mu.Unlock(); f() }
func (g *target) total() (n int)                                  { g.locked(func() { n = g.sum() }); return n }
func (g *target) set(f func(dispatch.Assignment) dispatch.Answer) { g.locked(func() { g.answer = f }) }

func (g *target) sum() (n int) {
	for _, ids := range g.sent {
		n += len(ids)
	}
	return n
}

func (g *target) count(a dispatch.Assignment, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[a.Key] += by
	g.now += by
	g.most = max(g.most, g.now)
	if g.busy[a.Key] > 1 {
		g.wrong = append(g.wrong, "two messages at once of "+a.Key)
	}
	if by > 0 {
		g.sent[a.Key] = append(g.sent[a.Key], a.ID)
	}
}

func (g *target) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	g.enter(a)
	defer g.leave(a)
	g.mu.Lock()
	answer := g.answer
	g.mu.Unlock()
	if g.takes > 0 {
		select {
		case <-ctx.Done():
			return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "no answer: " + context.Cause(ctx).Error()}
		case <-time.After(g.takes):
		}
	}
	if answer != nil {
		return answer(a)
	}
	return dispatch.Answer{Outcome: dispatch.Done, Code: 200}
}

func (g *target) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	if !g.semantics.HasStatus {
		g.locked(func() { g.wrong = append(g.wrong, "asked, and cannot be") })
		<-ctx.Done() // one that is asked without end would stop the bubble's time
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]dispatch.Answer, len(as))
	for i, a := range as {
		out[i].Outcome = dispatch.NotFound
		if slices.Contains(g.sent[a.Key], a.ID) {
			out[i].Outcome = dispatch.Done
		}
	}
	return out
}

// place is a store with a queue named q, in a bubble.
type place struct {
	t     *testing.T
	store *queues.Memory
	next  map[string]int
}

func newPlace(t *testing.T) *place {
	p := &place{t: t, store: queues.NewMemory(memory.New(nil), nil), next: map[string]int{}}
	if err := p.store.QueueAdmin().CreateQueue(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	return p
}

// add enqueues n messages of a key, with ids that count.
func (p *place) add(key string, n int) {
	p.t.Helper()
	for range n {
		p.next[key]++
		_, err := p.store.QueueAdmin().Add(p.t.Context(), []dispatch.Message{
			dispatch.Message{Queue: "q", Key: key, ID: fmt.Sprintf("%s-%04d", key, p.next[key])}.WithDefaults()})
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// checks that the target got all messages of all keys once and in order.
func (p *place) delivered(g *target) {
	p.t.Helper()
	for key, n := range p.next {
		ids := g.order(key)
		if len(ids) != n || !slices.IsSorted(ids) {
			p.t.Errorf("key %s: %d of %d messages, sorted %t: %.200s", key, len(ids), n, slices.IsSorted(ids), strings.Join(ids, " "))
		}
	}
	for _, wrong := range g.wrong {
		p.t.Error(wrong)
	}
	records, err := p.store.QueueAdmin().Messages(p.t.Context(), dispatch.MessageQuery{Queue: "q"})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range records {
		if r.State != dispatch.Committed {
			p.t.Errorf("%s is %s: %s", r.ID, r.State, r.Detail)
		}
	}
}

var windows = claim.Windows{First: 30 * time.Second, Second: 3 * time.Minute}

// instance runs a dispatcher with its keeper. stop ends it in order; cut takes it
// off the store.
type instance struct {
	*dispatch.Dispatcher
	link *link
	stop func()
}

func (p *place) start(name string, g dispatch.Target, change func(*dispatch.Config)) *instance {
	p.t.Helper()
	l := &link{KeyTable: p.store.Claims(), queue: p.store.Queue(), Faulty: leasetest.NewFaulty(p.store, 1)}
	clock := &leasetest.BubbleClock{}
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: l.Faulty, Instance: lease.NewInstance(name, ""), Timing: windows.Timing(), Clock: clock})
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := dispatch.Config{Name: "q", Keeper: k, Claims: l, Queue: l, Target: g, Windows: windows, Concurrency: 4}
	if change != nil {
		change(&cfg)
	}
	d, err := dispatch.New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	keeping, end := context.WithCancel(context.Background())
	running, stop := context.WithCancel(keeping)
	kept, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(kept); _ = k.Run(keeping) }()
	go func() {
		defer close(ran)
		if err := d.Run(running); err != nil {
			p.t.Errorf("%s returned %v", name, err)
		}
	}()
	i := &instance{Dispatcher: d, link: l, stop: func() { stop(); <-ran; end(); <-kept; l.Wait() }}
	p.t.Cleanup(i.stop)
	return i
}

// link is an instance's way to the store; when it is cut nothing gets through.
type link struct {
	claim.KeyTable
	queue dispatch.Queue
	*leasetest.Faulty
	mu  sync.Mutex
	off bool
	due atomic.Int64 // requests to enqueue what is due

	held atomic.Bool // these requests alone fail
}

func (l *link) cut(off bool) {
	l.mu.Lock()
	l.off = off
	l.mu.Unlock()
	l.Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = off, off })
}

func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off {
		return lease.ErrUnavailable
	}
	return nil
}

func (l *link) EnqueueDue(ctx context.Context, queue string, limit int) (int, error) {
	n := l.due.Add(1)
	if l.held.Load() {
		if n%3 == 0 {
			return 0, nil // as while another instance is at it
		}
		return 0, lease.ErrUnavailable
	}
	if err := l.err(); err != nil {
		return 0, err
	}
	return l.queue.EnqueueDue(ctx, queue, limit)
}

func (l *link) Join(ctx context.Context, m claim.Member) (claim.Share, error) {
	if err := l.err(); err != nil {
		return claim.Share{}, err
	}
	return l.KeyTable.Join(ctx, m)
}

func (l *link) ClaimKeys(ctx context.Context, w claim.ClaimRequest) ([]claim.Claim, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.KeyTable.ClaimKeys(ctx, w)
}

func (l *link) Release(ctx context.Context, space, session string, claims []claim.Claim) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.KeyTable.Release(ctx, space, session, claims)
}

func (l *link) Exchange(ctx context.Context, t dispatch.Exchange) (dispatch.ExchangeResult, error) {
	if err := l.err(); err != nil {
		return dispatch.ExchangeResult{}, err
	}
	return l.queue.Exchange(ctx, t)
}

func (l *link) List(ctx context.Context, q claim.Query) ([]claim.Row, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.KeyTable.List(ctx, q)
}

func (l *link) Prune(ctx context.Context, queue string, keep time.Duration, limit int) (int, bool, error) {
	return l.queue.Prune(ctx, queue, keep, limit)
}

// settle waits, in bubble time, until nothing is left to do, or for at most d.
func (p *place) settle(d time.Duration) time.Duration {
	p.t.Helper()
	began := time.Now()
	for time.Since(began) < d {
		synctest.Wait()
		q, err := p.store.QueueAdmin().Queues(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		if q[0].Depth == 0 {
			return time.Since(began)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return d
}

func TestDeliversInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 3 * time.Millisecond
		for key := range 20 {
			p.add(fmt.Sprint("key", key), 10)
		}
		for n := range 3 {
			p.start(fmt.Sprint("i", n), g, nil)
		}
		if took := p.settle(time.Minute); took > 10*time.Second {
			t.Errorf("200 messages of 3 ms by 12 senders took %v", took)
		}
		p.delivered(g)
		if g.most < 4 || g.most > 12 {
			t.Errorf("%d submissions at once at most, with 3 × 4 senders", g.most)
		}
	})
}

func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		p.start("a", g, nil)
		p.start("b", g, nil)
		time.Sleep(10*time.Second + 300*time.Millisecond) // both sleep; between two looks
		for n := range 5 {
			p.add("k", 1)
			synctest.Wait()
			if got := len(g.order("k")); got != n+1 {
				t.Fatalf("%d messages are delivered at once, not %d", got, n+1)
			}
			time.Sleep(2 * time.Second)
		}
		p.delivered(g)
	})
}

func TestStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 40 * time.Millisecond
		a := p.start("a", g, nil)
		for key := range 40 {
			p.add(fmt.Sprint("key", key), 5)
		}
		time.Sleep(time.Second)
		a.stop()
		p.start("b", g, nil)
		before := g.total()
		time.Sleep(100 * time.Millisecond)
		if after := g.total(); after < before+4 {
			t.Errorf("100 ms after the stop the other has sent %d messages", after-before)
		}
		p.settle(time.Minute)
		p.delivered(g)
	})
}

// An instance that is cut off continues with what it has started; the others have its
// keys after the first window, those in a submission after the second.
func TestTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		hang := true
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			if a.Key == "stuck" && hang {
				return dispatch.Answer{Outcome: dispatch.Uncertain}
			}
			return dispatch.Answer{Outcome: dispatch.Done}
		})
		g.semantics.Resend = true
		g.takes = 10 * time.Second
		a := p.start("a", g, func(c *dispatch.Config) { c.Concurrency = 1 })
		p.add("stuck", 1)
		time.Sleep(time.Second)
		p.add("idle", 1)
		time.Sleep(time.Second)
		a.link.cut(true)
		hang = false
		began := time.Now()
		b := newTarget()
		b.semantics.Resend = true
		p.start("b", b, nil)
		for len(b.order("idle")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > windows.First+time.Second {
			t.Errorf("the idle key was taken over after %v", took)
		}
		for len(b.order("stuck")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > windows.Second+time.Second || took < windows.First {
			t.Errorf("the key in a submission was taken over after %v", took)
		}
		a.link.cut(false)
		time.Sleep(time.Minute)
		if s := a.Stats(); s.Ignored != 1 {
			t.Errorf("%d late results were ignored, of one", s.Ignored)
		}
	})
}

func TestTargetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		tries := map[string]int{}
		g.semantics.Resend = true
		g.set(func(a dispatch.Assignment) dispatch.Answer {
			tries[a.ID]++
			switch {
			case a.Key == "panics" && tries[a.ID] < 3:
				panic("no")
			case a.Key == "busy" && tries[a.ID] < 4:
				return dispatch.Answer{Outcome: dispatch.Busy, Code: 503}
			case a.Key == "bad":
				return dispatch.Answer{Outcome: dispatch.InvalidMessage, Code: 400, Detail: "no such account"}
			}
			return dispatch.Answer{Outcome: dispatch.Done}
		})
		p.start("a", g, func(c *dispatch.Config) {
			c.Concurrency, c.OnFailure = 1, dispatch.OnFailureBlock
		})
		for _, key := range []string{"panics", "busy", "bad"} {
			p.add(key, 2)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, key := range []string{"panics", "busy"} {
			ids := slices.Compact(g.order(key))
			if len(ids) != 2 || !slices.IsSorted(ids) {
				t.Errorf("%s: %v", key, ids)
			}
		}
		if ids := g.order("bad"); len(ids) != 1 {
			t.Errorf("a blocked key went on: %v", ids)
		}
		keys, err := p.store.QueueAdmin().Keys(t.Context(), dispatch.KeyQuery{Queue: "q", Blocked: true})
		if err != nil || len(keys) != 1 || keys[0].Key != "bad" || !strings.Contains(keys[0].Reason, "no such account") {
			t.Errorf("blocked keys: %+v, %v", keys, err)
		}
		for id, want := range map[string]dispatch.State{"bad-0001": dispatch.Invalid, "busy-0001": dispatch.Delayed, "panics-0002": dispatch.Unknown} {
			if trail := p.record(id).Trail; !slices.ContainsFunc(trail, func(e dispatch.TrailEntry) bool { return e.State == want }) {
				t.Errorf("%s: recorded %+v", id, trail)
			}
		}
	})
}

// A queue whose target has messages is given one that cannot be asked.
func TestTargetChanges(t *testing.T) {
	for name, resend := range map[string]bool{"an operator decides": false, "sending twice is safe": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, old, g := newPlace(t), newTarget(), newTarget()
				pending := func(dispatch.Assignment) dispatch.Answer { return dispatch.Answer{Outcome: dispatch.Accepted} }
				old.semantics = dispatch.Semantics{HasStatus: true, StatusLimit: 1}
				old.set(pending)
				p.add("k", 2)
				a := p.start("a", old, nil)
				time.Sleep(200 * time.Millisecond) // before the first poll
				a.stop()
				if r := p.record("k-0001"); r.State != dispatch.Pending {
					t.Fatalf("%+v", r)
				}
				p.add("other", 1)
				g.semantics.Resend = resend
				p.start("b", g, nil)
				time.Sleep(time.Minute)
				if !resend {
					p.blocked(g)
					if err := p.store.QueueAdmin().Act(t.Context(), "q", "k-0001", dispatch.RetryUnknown, "test"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				p.delivered(g)
			})
		})
	}
}

// blocked checks that the first message of key k is shown to people, and that
// neither it nor the one behind it was sent.
func (p *place) blocked(g *target) {
	p.t.Helper()
	r := p.record("k-0001")
	if r.State != dispatch.Unknown || !r.Blocks || r.Attempts != 1 || !r.Ended.IsZero() {
		p.t.Errorf("%+v", r)
	}
	keys, err := p.store.QueueAdmin().Keys(p.t.Context(), dispatch.KeyQuery{Queue: "q", Blocked: true})
	if err != nil || len(keys) != 1 || keys[0].Key != "k" || !strings.Contains(keys[0].Reason, "cannot be asked") {
		p.t.Errorf("blocked keys: %+v, %v", keys, err)
	}
	if ids := g.order("k"); len(ids) != 0 {
		p.t.Errorf("sent: %v", ids)
	}
}

func (p *place) record(id string) dispatch.Record {
	p.t.Helper()
	r, err := p.store.QueueAdmin().Message(p.t.Context(), "q", id)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func TestStopWhileTheTargetHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = time.Hour
		a := p.start("a", g, nil)
		p.add("k", 1)
		time.Sleep(time.Second)
		began := time.Now()
		a.stop()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("stopping took %v", took)
		}
		r, err := p.store.QueueAdmin().Message(t.Context(), "q", "k-0001")
		if err != nil || r.State != dispatch.Unknown || !r.Blocks {
			t.Errorf("a message whose fate nobody knows, at a target that cannot tell: %+v, %v", r, err)
		}
		if r.Detail != "no answer: this instance stopped before the target answered" {
			t.Errorf("its reason is %q", r.Detail)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		for key := range 50 {
			p.add(fmt.Sprint("key", key), 4)
		}
		p.start("a", g, func(c *dispatch.Config) { c.Rate = 20 })
		time.Sleep(5 * time.Second)
		if n := g.total(); n < 90 || n > 103 {
			t.Errorf("%d submissions in 5 s at 20 a second", n)
		}
		p.settle(time.Minute)
		p.delivered(g)
	})
}

// TestRateCountsSubmissions: to look for another message of a key that has none costs nothing of the rate. A submission takes as
// long as it takes to earn the next one, so that both come in one exchange.
func TestRateCountsSubmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 50 * time.Millisecond
		for key := range 200 {
			p.add(fmt.Sprint("key", key), 1)
		}
		p.start("a", g, func(c *dispatch.Config) { c.Rate = 20 })
		time.Sleep(5 * time.Second)
		if n := g.total(); n < 90 || n > 103 {
			t.Errorf("%d submissions in 5 s at 20 a second", n)
		}
	})
}

func TestJoinerGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPlace(t), newTarget()
		g.takes = 50 * time.Millisecond
		for key := range 30 {
			p.add(fmt.Sprint("key", key), 200)
		}
		one := func(c *dispatch.Config) { c.Concurrency = 2 }
		p.start("a", g, one)
		time.Sleep(3 * time.Second)
		b := p.start("b", g, one)
		c := p.start("c", g, one)
		time.Sleep(5 * time.Second)
		for name, i := range map[string]*instance{"b": b, "c": c} {
			if n := i.Stats().Claimed; n < 8 || n > 12 {
				t.Errorf("%s has %d of 30 keys", name, n)
			}
		}
		if len(g.wrong) > 0 {
			t.Error(g.wrong)
		}
	})
}

func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		k, err := lease.NewKeeper(lease.KeeperConfig{Store: p.store, Instance: lease.NewInstance("a", ""), Timing: windows.Timing()})
		if err != nil {
			t.Fatal(err)
		}
		good := dispatch.Config{Name: "q", Keeper: k, Claims: p.store.Claims(), Queue: p.store.Queue(), Target: newTarget()}
		if err := good.Validate(); err != nil {
			t.Fatal(err)
		}
		for want, change := range map[string]func(*dispatch.Config){
			"queue":                  func(c *dispatch.Config) { c.Name = "No Queue" },
			"must be longer":         func(c *dispatch.Config) { c.SubmitTimeout = 3 * time.Minute },
			"needs a keeper":         func(c *dispatch.Config) { c.Target = nil },
			"use block, skip or":     func(c *dispatch.Config) { c.OnFailure = "ignore" },
			"use 1 to 1000":          func(c *dispatch.Config) { c.Concurrency = 2000 },
			"the windows need":       func(c *dispatch.Config) { c.Windows.First = time.Minute },
			"shorter than the first": func(c *dispatch.Config) { c.Windows.Second = time.Second },
			"asked about 0 messages": func(c *dispatch.Config) { c.Target = &target{semantics: dispatch.Semantics{HasStatus: true}} },
			"cannot be negative":     func(c *dispatch.Config) { c.Rate = -1 },
			"must be numbers":        func(c *dispatch.Config) { c.Rate = math.NaN() },
			"pauses of -1s":          func(c *dispatch.Config) { c.Retry.Initial = -time.Second },
		} {
			c := good
			change(&c)
			if _, err := dispatch.New(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	})
}
