package dispatchtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

// Concurrent are the limits of one check of concurrent dispatchers. Zero fields
// get their defaults.
type Concurrent struct {
	Keys        int           // default 6
	Dispatchers int           // default 4
	Enqueuers   int           // default 2
	Messages    int           // of each key, about; default 60
	Length      time.Duration // of the fight, not of the clearing up; default 3 s
	Timeout     time.Duration // T of the sessions; default 250 ms
	Window      time.Duration // that keeps others from a step; default 400 ms
	Call        time.Duration // deadline of each call; default a minute
	Clear       time.Duration // for what is left after the fight; default 5 min
}

func (c Concurrent) withDefaults() Concurrent {
	c.Keys = cmp.Or(c.Keys, 6)
	c.Dispatchers = cmp.Or(c.Dispatchers, 4)
	c.Enqueuers = cmp.Or(c.Enqueuers, 2)
	c.Messages = cmp.Or(c.Messages, 60)
	c.Length = cmp.Or(c.Length, 3*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 250*time.Millisecond)
	c.Window = cmp.Or(c.Window, 400*time.Millisecond)
	c.Call = cmp.Or(c.Call, time.Minute)
	c.Clear = cmp.Or(c.Clear, 5*time.Minute)
	return c
}

// CheckOrder lets concurrent dispatchers and enqueuers work on one queue in real
// time: they take, begin, settle in every way, settle late, release in the
// middle, and lapse. Then it checks, for each key, that all that the store
// answered can be explained by one order of single steps: messages in the order
// in which they were enqueued, scheduled ones not before their time, one in flight, nothing under an old term, nothing
// again that has ended, nothing lost, an interruption always told. open returns a
// handle on the same store each time; its clock must be the real one.
func CheckOrder(t *testing.T, open func(t *testing.T) Store, limits Concurrent) {
	t.Helper()
	if problem := FindDisorder(t.Context(), func() Store { return open(t) }, limits); problem != "" {
		t.Error(problem)
	}
}

// FindDisorder returns what is wrong, or "". Broken stores prove it.
func FindDisorder(ctx context.Context, open func() Store, limits Concurrent) string {
	limits = limits.withDefaults()
	r := &run{limits: limits, queue: "order-" + strings.ToLower(lease.NewID()[:8]), begin: time.Now(),
		history: map[string][]porcupine.Operation{}, added: map[string]string{}, final: map[place]dispatch.State{}}
	store := open()
	if err := store.QueueAdmin().CreateQueue(ctx, r.queue); err != nil {
		return fmt.Sprintf("Make: %v", err)
	}
	fight, cancel := context.WithTimeout(ctx, limits.Length)
	defer cancel()
	var all sync.WaitGroup
	for i := range limits.Enqueuers {
		queueAdmin, rng := open().QueueAdmin(), rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() { r.enqueue(fight, i, queueAdmin, rng) })
	}
	for i := range limits.Dispatchers {
		d := &dispatcher{run: r, store: open(), client: limits.Enqueuers + i, rng: rand.New(rand.NewPCG(uint64(i), 2))}
		all.Go(func() { d.fight(fight) })
	}
	all.Wait()
	clearing, stop := context.WithTimeout(ctx, limits.Clear)
	defer stop()
	last := &dispatcher{run: r, store: store, client: limits.Enqueuers + limits.Dispatchers, rng: rand.New(rand.NewPCG(3, 3))}
	last.clear(clearing)
	return r.judge(ctx, store.QueueAdmin())
}

// place is where a message stands.
type place struct {
	key string
	seq int64
}

// run is one fight, with its history.
type run struct {
	limits Concurrent
	queue  string
	begin  time.Time

	mu       sync.Mutex
	history  map[string][]porcupine.Operation // by key
	added    map[string]string                // key by id
	final    map[place]dispatch.State         // as results that were accepted left them
	problems []string
}

func (r *run) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// call makes one request and tells when.
func (r *run) call(ctx context.Context, f func(context.Context) error) (called, returned time.Duration, out outcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limits.Call)
	defer cancel()
	called = time.Since(r.begin)
	err := f(ctx)
	returned = time.Since(r.begin)
	switch {
	case err == nil:
		return called, returned, answered
	case errors.Is(err, lease.ErrLapsed):
		return called, returned, lapsed
	case errors.Is(err, lease.ErrUnavailable):
		return called, returned, notSent
	case errors.Is(err, lease.ErrUnknown):
		return called, time.Hour, unknown // it may still be applied
	}
	r.problem("%v", err)
	return called, returned, notSent
}

// note writes an operation on one key down.
func (r *run) note(client int, key string, called, returned time.Duration, in request, out reply) {
	in.call, in.back = called, returned
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history[key] = append(r.history[key], porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(called), Return: int64(returned)})
}

// enqueue adds messages of several keys at a time.
func (r *run) enqueue(ctx context.Context, client int, queueAdmin dispatch.Admin, rng *rand.Rand) {
	pause := r.limits.Length * time.Duration(r.limits.Enqueuers) * 2 / time.Duration(r.limits.Keys*r.limits.Messages)
	for n := 0; ctx.Err() == nil; n++ {
		var messages []dispatch.Message
		ids := map[string][]string{}
		var due time.Time // of all of them
		if rng.IntN(8) == 0 {
			due = time.Now().Add(time.Duration(rng.Int64N(int64(r.limits.Timeout))))
		}
		for i := range 1 + rng.IntN(3) {
			key := fmt.Sprint("k", rng.IntN(r.limits.Keys))
			id := fmt.Sprintf("%d-%d-%d", client, n, i)
			ids[key] = append(ids[key], id)
			messages = append(messages, dispatch.Message{Queue: r.queue, Key: key, ID: id, Payload: []byte(id), NotBefore: due})
		}
		called, returned, out := r.call(ctx, func(ctx context.Context) error {
			_, err := queueAdmin.Add(ctx, messages)
			return err
		})
		for _, m := range messages {
			if !due.IsZero() && (out == answered || out == unknown) {
				// It joins its key at any time from then on.
				r.note(client, m.Key, due.Sub(r.begin)-tolerance, time.Hour, request{kind: add, ids: fmt.Sprint([]string{m.ID})}, reply{outcome: out})
			}
		}
		for key, of := range ids {
			if due.IsZero() && (out == answered || out == unknown) {
				r.note(client, key, called, returned, request{kind: add, ids: fmt.Sprint(of)}, reply{outcome: out})
			}
		}
		r.mu.Lock()
		for _, b := range messages {
			if out == answered {
				r.added[b.ID] = b.Key
			}
		}
		r.mu.Unlock()
		sleep(ctx, time.Duration(rng.Int64N(int64(2*pause))))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// judge compares what the store shows at the end with what it answered, and the
// history with the model.
func (r *run) judge(ctx context.Context, queueAdmin dispatch.Admin) string {
	if len(r.problems) > 0 {
		return r.problems[0]
	}
	places, wrong := r.inspect(ctx, queueAdmin)
	for _, key := range slices.Sorted(maps.Keys(r.history)) {
		history := r.history[key]
		for i, op := range history {
			if in := op.Input.(request); in.kind == add {
				history[i].Input = in.placed(key, places)
			}
		}
		slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		if problem := r.explain(key, history); problem != "" {
			return problem
		}
	}
	return wrong
}

// inspect lists all messages, finds where each stands, and tells the first thing
// that is wrong with them.
func (r *run) inspect(ctx context.Context, queueAdmin dispatch.Admin) (places map[string]place, wrong string) {
	places = map[string]place{}
	problem := func(format string, args ...any) {
		if wrong == "" {
			wrong = fmt.Sprintf(format, args...)
		}
	}
	last := place{}
	for query := (dispatch.MessageQuery{Queue: r.queue, Limit: 100}); ; {
		page, err := queueAdmin.Messages(ctx, query)
		if err != nil {
			return nil, fmt.Sprintf("Messages: %v", err)
		}
		for _, b := range page {
			at := place{b.Key, b.Seq}
			if at.key != last.key {
				last = place{at.key, 0}
			}
			if at.seq != last.seq+1 {
				problem("%s: message %d follows on %d", at.key, at.seq, last.seq)
			}
			last, places[b.ID] = at, at
			if !b.State.IsFinal() {
				problem("%s was left behind: message %d (%s) is %s; nothing more of its key was to be had", b.Key, b.Seq, b.ID, b.State)
			}
			if want, ok := r.final[at]; ok && want != b.State {
				problem("%s: message %d is %s; the result that was accepted made it %s", b.Key, b.Seq, b.State, want)
			}
		}
		if len(page) < query.Limit {
			break
		}
		query.AfterKey, query.AfterSeq = last.key, last.seq
	}
	for id, key := range r.added {
		if places[id].key != key {
			problem("message %s of %s was added, and is not there", id, key)
		}
	}
	return places, wrong
}

func (r *run) explain(key string, history []porcupine.Operation) string {
	return leasetest.Explain(key, porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(st, in, out any) []any { return step1(st.(state), in.(request), out.(reply), r.limits) },
	}, history)
}
