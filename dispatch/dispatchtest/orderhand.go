package dispatchtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// dispatcher is one that fights: it does all that one may do, and some things
// that one must not.
type dispatcher struct {
	*run
	store  Store
	client int
	rng    *rand.Rand

	id   string
	me   who
	keys map[string]*own
	old  []dispatch.Assignment // whose results come too late
}

// own is a key that it believes to hold.
type own struct {
	claim.Claim
	at *dispatch.Assignment // under way
}

// fight works under one session after the other.
func (d *dispatcher) fight(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if !d.start(ctx, n, d.limits.Timeout) {
			sleep(ctx, 10*time.Millisecond)
			continue
		}
		for over := false; ctx.Err() == nil && !over; {
			over = !d.move(ctx)
		}
	}
}

func (d *dispatcher) start(ctx context.Context, n int, timeout time.Duration) bool {
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(fmt.Sprint("d", d.client), ""),
		Timing: lease.Timing{Interval: timeout / 5, Timeout: timeout}}
	called, returned, out := d.call(ctx, func(ctx context.Context) error {
		_, err := d.store.StartSession(ctx, s)
		return err
	})
	d.id, d.keys = s.ID, map[string]*own{}
	d.me = who{number: d.client<<16 + n, started: called, around: returned, timeout: timeout}
	return out == answered
}

// move does something, and reports whether the session is to be used any longer.
func (d *dispatcher) move(ctx context.Context) bool {
	switch dice := d.rng.IntN(100); {
	case dice < 20:
		d.take(ctx, 1+d.rng.IntN(3))
	case dice < 85:
		d.turn(ctx, d.pick(3))
	case dice < 90:
		for _, key := range d.pick(1) {
			d.release(ctx, key)
		}
	case dice < 93:
		sleep(ctx, d.limits.Timeout+d.limits.Timeout/4) // long enough to lapse
	case dice < 96:
		d.enqueueDue(ctx, 1+d.rng.IntN(3))
	default:
		sleep(ctx, time.Duration(d.rng.Int64N(int64(d.limits.Timeout/10))))
	}
	// It continues for a while after it has lapsed: it may not know.
	age := time.Since(d.begin) - d.me.started
	return age < d.limits.Timeout || d.rng.IntN(4) > 0
}

func (d *dispatcher) enqueueDue(ctx context.Context, limit int) {
	d.call(ctx, func(ctx context.Context) error {
		_, err := d.store.Queue().EnqueueDue(ctx, d.queue, limit)
		return err
	})
}

// pick chooses a few of its keys.
func (d *dispatcher) pick(most int) []string {
	keys := slices.Sorted(maps.Keys(d.keys))
	d.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys[:min(most, len(keys))]
}

func (d *dispatcher) take(ctx context.Context, most int) int {
	var claims []claim.Claim
	called, returned, _ := d.call(ctx, func(ctx context.Context) (err error) {
		claims, err = d.store.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: dispatch.Space(d.queue), Session: d.id, Limit: most, Fresh: most})
		return err
	})
	for _, c := range claims {
		d.note(d.client, c.Key, called, returned, request{kind: take, who: d.me}, reply{outcome: answered, term: c.Term, interrupted: c.Interrupted})
		d.keys[c.Key] = &own{Claim: c}
	}
	return len(claims)
}

func (d *dispatcher) release(ctx context.Context, key string) {
	c := d.keys[key].Claim
	called, returned, out := d.call(ctx, func(ctx context.Context) error {
		return d.store.Claims().Release(ctx, dispatch.Space(d.queue), d.id, []claim.Claim{c})
	})
	if out == answered || out == unknown {
		d.note(d.client, key, called, returned, request{kind: release, who: d.me, term: c.Term}, reply{outcome: out})
	}
	d.drop(key)
}

// drop forgets a key, but not what was under way.
func (d *dispatcher) drop(key string) {
	if k := d.keys[key]; k != nil && k.at != nil {
		d.old = append(d.old, *k.at)
	}
	delete(d.keys, key)
}

// turn settles or starts, or both, for each of the keys, and sometimes brings a
// result that comes too late.
func (d *dispatcher) turn(ctx context.Context, keys []string) {
	t := dispatch.Exchange{Queue: d.queue, Session: d.id, Window: d.limits.Window}
	asked := map[string]request{}
	for _, key := range keys {
		k := d.keys[key]
		in := request{kind: turn, who: d.me, term: k.Term}
		if k.at != nil && d.rng.IntN(4) > 0 {
			in.settles, in.result = true, d.answer(*k.at)
			t.Results = append(t.Results, in.result)
		}
		// Rarely it starts what is started already.
		if k.at == nil || in.settles && d.rng.IntN(4) > 0 || d.rng.IntN(10) == 0 {
			in.begins = true
			t.Begin = append(t.Begin, k.Claim)
		}
		if in.settles || in.begins {
			asked[key] = in
		}
	}
	if len(d.old) > 0 && d.rng.IntN(4) == 0 {
		late := d.old[d.rng.IntN(len(d.old))]
		if _, busy := asked[late.Key]; !busy {
			in := request{kind: turn, who: d.me, term: late.Term, settles: true, result: d.answer(late)}
			asked[late.Key] = in
			t.Results = append(t.Results, in.result)
		}
	}
	if len(asked) > 0 {
		d.send(ctx, t, asked)
	}
}

// answer makes up what a target says.
func (d *dispatcher) answer(a dispatch.Assignment) dispatch.Result {
	switch dice := d.rng.IntN(10); {
	case dice < 5:
		return done(a)
	case dice < 6:
		return result(a, dispatch.Invalid, dispatch.Next)
	case dice < 7:
		return result(a, dispatch.Failed, dispatch.Next)
	case dice < 8:
		r := result(a, dispatch.Delayed, dispatch.RetryLater)
		r.Wait = time.Duration(d.rng.IntN(20)) * time.Millisecond
		return r
	case dice < 9:
		return result(a, dispatch.Unknown, dispatch.RetryLater)
	}
	return result(a, dispatch.Pending, dispatch.Hold)
}

// send takes a turn, and writes down what became of each key.
func (d *dispatcher) send(ctx context.Context, t dispatch.Exchange, asked map[string]request) {
	var turned dispatch.ExchangeResult
	called, returned, out := d.call(ctx, func(ctx context.Context) (err error) {
		turned, err = d.store.Queue().Exchange(ctx, t)
		return err
	})
	replies := map[string]reply{}
	for key := range asked {
		replies[key] = reply{outcome: out, standing: turned.Holdings[key]}
	}
	for i, s := range turned.Receipts {
		p := replies[s.Key]
		p.accepted = s.Accepted
		replies[s.Key] = p
		if r := t.Results[i]; s.Accepted && r.After == dispatch.Next {
			d.mu.Lock()
			d.final[place{r.Key, r.Seq}] = r.State
			d.mu.Unlock()
		}
	}
	begun := map[string]*dispatch.Assignment{}
	for _, a := range turned.Begun {
		p := replies[a.Key]
		p.begun, p.todo, p.seq, p.attempt = true, a.Work, a.Seq, a.Attempt
		replies[a.Key] = p
		begun[a.Key] = &a
		if a.Term != asked[a.Key].term || string(a.Payload) != a.ID {
			d.problem("asked for %v, given %+v", asked[a.Key], a)
		}
	}
	for key, in := range asked {
		switch out {
		case answered, unknown:
			d.note(d.client, key, called, returned, in, replies[key])
		case lapsed:
			d.problem("a turn of a lapsed session is refused as a whole: its results would be lost")
		}
		d.learn(key, in, out, replies[key], begun[key])
	}
}

// learn updates what it believes of a key.
func (d *dispatcher) learn(key string, in request, out outcome, p reply, a *dispatch.Assignment) {
	k := d.keys[key]
	if k == nil || k.Term != in.term || out == notSent {
		return
	}
	if out == unknown || p.standing == dispatch.Released || p.standing == dispatch.Lost {
		d.drop(key)
		return
	}
	if in.settles {
		if k.at != nil && d.rng.IntN(8) == 0 {
			d.old = append(d.old, *k.at) // its answer comes once more
		}
		k.at = nil
	}
	if a != nil {
		k.at = a
	}
}

// clear delivers all that is left, in the same way, but without mischief.
func (d *dispatcher) clear(ctx context.Context) {
	const timeout = 5 * time.Second
	for n := 0; ctx.Err() == nil; n++ {
		d.enqueueDue(ctx, 1000)
		scheduled, err := d.store.QueueAdmin().Messages(ctx, dispatch.MessageQuery{Queue: d.queue, State: dispatch.Scheduled})
		var rest []dispatch.KeyRecord
		if err == nil {
			rest, err = d.store.QueueAdmin().Keys(ctx, dispatch.KeyQuery{Queue: d.queue})
		}
		if err == nil && len(rest)+len(scheduled) == 0 {
			return
		}
		if err != nil || !d.start(ctx, n, timeout) {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		for age := time.Duration(0); age < timeout/2 && ctx.Err() == nil; age = time.Since(d.begin) - d.me.started {
			if d.take(ctx, claim.MaxKeys); len(d.keys) == 0 {
				break
			}
			d.deliver(ctx)
			sleep(ctx, time.Millisecond) // what does not get on must not fill the history
		}
		for key := range d.keys {
			d.release(ctx, key)
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

// deliver settles and starts with each of its keys.
func (d *dispatcher) deliver(ctx context.Context) {
	t := dispatch.Exchange{Queue: d.queue, Session: d.id, Window: d.limits.Window}
	asked := map[string]request{}
	for key, k := range d.keys {
		in := request{kind: turn, who: d.me, term: k.Term, begins: true}
		if k.at != nil {
			in.settles, in.result = true, done(*k.at)
			t.Results = append(t.Results, in.result)
		}
		t.Begin = append(t.Begin, k.Claim)
		asked[key] = in
	}
	d.send(ctx, t, asked)
	for key, k := range d.keys {
		if k.at == nil {
			d.release(ctx, key) // in a step that is nobody's
		}
	}
}
