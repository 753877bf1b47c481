package shardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard"
)

func raceTopics() map[string]func(*bench) {
	return map[string]func(*bench){
		"race/one order of steps explains it": func(b *bench) { b.linearize(3, 40) },
	}
}

// The model of one shard: a row, a lock and a record for each client.

const contenders = 4

type kind int

const (
	look kind = iota
	report
	decide
	take
	drop
)

// facts are what a view shows.
type facts struct {
	rev, epoch int64
	lock       string
	txn        [contenders]int64
}

// state of the model. Revisions only grow; open: the last is larger than rev, but nobody has
// seen it yet.
type state struct {
	facts
	open bool
}

type request struct {
	kind           kind
	client         int
	rev, epoch     int64  // of decide; epoch is also the txn of report
	value, instead string // of take and drop
}

func (r request) String() string {
	switch r.kind {
	case report:
		return fmt.Sprint("report ", r.epoch)
	case decide:
		return fmt.Sprint("decide at ", r.rev, " epoch ", r.epoch)
	case take:
		return fmt.Sprintf("lock %q instead of %q", r.value, r.instead)
	case drop:
		return fmt.Sprintf("unlock %q", r.instead)
	}
	return "look"
}

type reply struct {
	facts   // of look and report
	rev     int64
	refused bool
	unknown bool
}

func (r reply) String() string {
	return fmt.Sprintf("refused %t, unknown %t, revision %d, view %+v", r.refused, r.unknown, r.rev, r.facts)
}

// step returns the states in which the request may leave the shard, given its reply.
func step(s state, in request, out reply) []any {
	s.learnRevision(in, out)
	next, can := s, true
	switch in.kind {
	case report:
		next.txn[in.client] = in.epoch
	case decide:
		can = s.rev == in.rev && !s.open
		next.rev, next.epoch = max(out.rev, s.rev), in.epoch
		next.open = out.unknown
	case take:
		can = s.lock == in.instead
		next.lock = in.value
	case drop:
		if s.lock == in.instead {
			next.lock = ""
		}
	}
	switch {
	case out.unknown && can:
		return []any{s, next}
	case out.unknown:
		return []any{s}
	case out.refused && !can:
		return []any{s}
	case out.refused || !can:
		return nil
	case (in.kind == look || in.kind == report) && (out.facts != next.facts || next.open):
		return nil
	case in.kind == decide && next.rev <= s.rev:
		return nil
	}
	return []any{next}
}

// learnRevision fills in a revision that was not known, from what names or shows it.
func (s *state) learnRevision(in request, out reply) {
	switch {
	case !s.open:
	case (in.kind == look || in.kind == report) && out.facts.rev > s.rev:
		s.rev, s.open = out.facts.rev, false
	case in.kind == decide && !out.refused && in.rev > s.rev:
		s.rev, s.open = in.rev, false
	}
}

// contest is a shard with those who work on it, and what came of it.
type contest struct {
	name  string
	first int   // node
	rev   int64 // of the row at the begin
	begin time.Time

	mu       sync.Mutex
	history  []porcupine.Operation
	problems []error
}

// linearize lets clients work on a shard at once, and checks that everything they were
// told can be explained by one order of single steps.
func (b *bench) linearize(worlds, steps int) {
	var all sync.WaitGroup
	var contests []*contest
	handles := make([]Subject, contenders)
	for i := range handles {
		handles[i] = b.other()
	}
	for i := range worlds {
		c := &contest{name: fmt.Sprint("w", i), first: 1000 * i, begin: time.Now()}
		contests = append(contests, c)
		for n := range contenders {
			r := record(c.name, c.first+n)
			r.Txn = 0
			b.report(r)
		}
		c.rev = b.decide(shard.RowUpdate{Row: shard.Row{Name: c.name, Primary: nodeID(c.first)}}).Rev
		for n, s := range handles {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(n)))
			all.Go(func() { c.fight(b.ctx, n, s.Registry, rng, steps) })
		}
	}
	all.Wait()
	for _, c := range contests {
		if problem := c.judge(); problem != "" {
			b.Error(problem)
			return
		}
	}
}

// fight is one client.
func (c *contest) fight(ctx context.Context, client int, r shard.Registry, rng *rand.Rand, steps int) {
	var seen facts
	mine := ""
	for i := range steps {
		in := request{client: client}
		switch dice := rng.IntN(100); {
		case dice < 25:
			in.kind = look
		case dice < 50:
			in.kind, in.epoch = report, int64(i+1)
		case dice < 75:
			in.kind, in.rev, in.epoch = decide, seen.rev, int64(1000*client+i)
		case dice < 90:
			in.kind, in.value, in.instead = take, fmt.Sprint(client, ".", i), seen.lock
		default:
			in.kind, in.instead = drop, seen.lock
			if rng.IntN(2) == 0 {
				in.instead = mine
			}
		}
		out := c.do(ctx, r, in)
		if in.kind == look || in.kind == report {
			seen = out.facts
		}
		if in.kind == take && !out.refused {
			mine = in.value
		}
		if rng.IntN(4) == 0 {
			pause(ctx, time.Duration(rng.IntN(2000))*time.Microsecond)
		}
	}
}

// do makes one request, and writes it down with its answer.
func (c *contest) do(ctx context.Context, r shard.Registry, in request) (out reply) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var v shard.View
	var err error
	called := time.Since(c.begin)
	primary := nodeID(c.first)
	switch in.kind {
	case look:
		v, err = r.ReadView(ctx, c.name)
	case report:
		n := record(c.name, c.first+in.client)
		n.Txn = in.epoch
		v, err = r.Report(ctx, n, false)
	case decide:
		out.rev, err = r.UpdateRow(ctx, shard.RowUpdate{Row: shard.Row{Name: c.name, Primary: primary, Rev: in.rev, Epoch: in.epoch}})
	case take:
		err = r.Lock(ctx, shard.Lock{Shard: c.name, Primary: primary, Value: in.value, Instead: in.instead})
	case drop:
		err = r.Unlock(ctx, shard.Lock{Shard: c.name, Primary: primary, Instead: in.instead})
	}
	returned := time.Since(c.begin)
	out.facts = factsOf(v)
	out.refused = errors.Is(err, shard.ErrChanged) || errors.Is(err, shard.ErrLocked)
	out.unknown = errors.Is(err, lease.ErrUnknown)
	if out.unknown {
		returned = time.Hour // it may still be done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && !out.refused && !out.unknown && !errors.Is(err, lease.ErrUnavailable):
		c.problems = append(c.problems, fmt.Errorf("%v: %w", in, err))
	case !errors.Is(err, lease.ErrUnavailable):
		c.history = append(c.history, porcupine.Operation{ClientId: in.client, Input: in, Output: out, Call: int64(called), Return: int64(returned)})
	}
	return out
}

func factsOf(v shard.View) (f facts) {
	f.rev, f.epoch, f.lock = v.Row.Rev, v.Row.Epoch, v.Lock
	for i, n := range v.Nodes {
		if i < contenders {
			f.txn[i] = n.Txn
		}
	}
	return f
}

// judge checks the history against the model; "" if it is explained.
func (c *contest) judge() string {
	if len(c.problems) > 0 {
		return c.problems[0].Error()
	}
	return leasetest.Explain("shard "+c.name, porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{facts: facts{rev: c.rev}}} },
		Step: func(s, in, out any) []any { return step(s.(state), in.(request), out.(reply)) },
	}, c.history)
}
