package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/dispatch"
)

// turn is one Turn under way.
type turn struct {
	*txn
	dispatch.Turn
	space string
	me    sessionRow
	alive bool
	keys  map[string]*turnKey
	order []*turnKey // as they were named first
	woken int        // keys that became ready for anybody
	room  int        // bytes of payloads that may still be read
	out   dispatch.Turned
}

// turnKey is the row of a key, as this turn leaves it.
type turnKey struct {
	key                 string
	term                int64
	session             string
	step, begun, hold   int64
	interrupted         int64
	blocked             bool
	done, waiting, over int64
	ready               any // of one that is given back; nil is idle

	named    int64 // the term under which it was named last
	held     bool  // by the session, under that term
	given    bool  // it was given back
	changed  bool
	settled  bool // a result was accepted
	atTarget bool // the target has its head
	look     bool // … which has to be looked up
}

func (n *turn) run() (dispatch.Turned, error) {
	n.out.Standing = make(map[string]dispatch.Standing, len(n.Results)+len(n.Begin))
	for _, r := range n.Results {
		k, err := n.key(r.Key, r.Term)
		ok := false
		if err == nil {
			ok, err = n.settle(k, r)
		}
		if err != nil {
			return n.out, err
		}
		k.settled = k.settled || ok
		k.look = !ok
		n.out.Settled = append(n.out.Settled, dispatch.Settled{Key: r.Key, Seq: r.Seq, Accepted: ok})
	}
	for _, c := range n.Begin {
		k, err := n.key(c.Key, c.Term)
		if err == nil {
			err = n.begin(k)
		}
		if err != nil {
			return n.out, err
		}
	}
	for _, k := range n.order {
		if err := n.end(k); err != nil {
			return n.out, err
		}
	}
	return n.out, n.wake(n.space, n.woken)
}

// key reads the row of a key once.
func (n *turn) key(key string, term int64) (*turnKey, error) {
	k := n.keys[key]
	if k == nil {
		k = &turnKey{key: key}
		err := n.one(getKey, []any{n.space, key}, &k.term, &k.session, &k.step, &k.begun, &k.hold,
			&k.interrupted, &k.blocked, &k.done, &k.waiting, &k.over)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		n.keys[key] = k
		n.order = append(n.order, k)
	}
	k.named = term
	k.held = n.Session != "" && k.session == n.Session && k.term == term
	return k, nil
}

// settle records a result, if it counts.
func (n *turn) settle(k *turnKey, r dispatch.Result) (bool, error) {
	if !k.held || k.waiting == 0 || r.Seq <= k.done {
		return false, nil
	}
	if r.Seq > k.done+1 { // those before it were all cancelled, or it is not the head
		head, _, err := n.head(k)
		if err != nil || head != r.Seq {
			return false, err
		}
		k.done = r.Seq - 1
	}
	ok, err := n.note(k, r)
	if err != nil || !ok {
		return false, err
	}
	k.step, k.interrupted, k.changed = 0, 0, true
	k.atTarget = r.After == dispatch.Hold && atTarget(r.State)
	switch r.After {
	case dispatch.Next:
		k.done, k.waiting, k.over = r.Seq, k.waiting-1, k.over+1
	case dispatch.Again:
		n.give(k, n.wall+r.Wait.Microseconds())
		if r.Wait <= 0 {
			n.woken++
		}
	case dispatch.Block:
		k.blocked = true
		n.give(k, nil)
		return true, n.blocked(k, r)
	}
	return true, nil
}

// atTarget tells that the target has the batch.
func atTarget(s dispatch.State) bool { return s == dispatch.Pending || s == dispatch.Valid }

func (n *turn) head(k *turnKey) (seq int64, state dispatch.State, err error) {
	err = n.one(lookAtHead, []any{n.Queue, k.key, k.done}, &seq, &state)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return seq, state, err
}

// give takes the key from its holder.
func (n *turn) give(k *turnKey, ready any) {
	k.session, k.held, k.given, k.changed, k.ready = "", false, true, true, ready
}

// begin begins a step with the head of a key, or looks at it.
func (n *turn) begin(k *turnKey) error {
	if !k.held || !n.alive || k.step != 0 && !n.Anew || k.waiting == 0 {
		return nil
	}
	if k.blocked {
		n.give(k, nil)
		return nil
	}
	a := dispatch.Assignment{Term: k.term, Batch: dispatch.Batch{Queue: n.Queue, Key: k.key}}
	var state dispatch.State
	var size int
	err := n.one(getHead, []any{n.Queue, k.key, k.done, n.room}, &a.Seq, &a.ID, &a.ContentType, &state, &a.Attempt, &a.Link, &size, &a.Payload)
	if err != nil {
		return fmt.Errorf("the head of key %q: %w", k.key, err)
	}
	if size > n.room && !(atTarget(state) && k.settled) {
		k.look = true // its turn comes with the next call
		return nil
	}
	n.room -= size
	k.done, k.changed, k.look = a.Seq-1, true, false
	k.atTarget = atTarget(state)
	switch {
	case k.atTarget && k.settled:
		return nil
	case k.atTarget:
		a.Todo = dispatch.Poll
		n.out.Begun = append(n.out.Begun, a)
		return nil
	case state == dispatch.Unknown:
		a.Todo = dispatch.Ask
	case k.interrupted != 0:
		a.Todo = dispatch.Ask
		a.Attempt++
		if err := n.lost(k, a.Seq); err != nil {
			return err
		}
	default:
		a.Todo = dispatch.Send
		a.Attempt++
	}
	k.step, k.begun, k.hold = k.term, n.wall, n.now+n.Window.Microseconds()
	n.out.Begun = append(n.out.Begun, a)
	return nil
}

// end writes what became of a key and tells where it stands.
func (n *turn) end(k *turnKey) error {
	if k.held && k.step == 0 && k.waiting == 0 {
		n.give(k, nil)
	}
	if k.held && k.look && k.step == 0 {
		_, state, err := n.head(k)
		if err != nil {
			return err
		}
		k.atTarget = atTarget(state)
	}
	n.out.Standing[k.key] = n.standing(k)
	if !k.changed {
		return nil
	}
	var err error
	if k.given {
		_, err = n.exec(giveKey, n.space, k.key, k.interrupted, k.done, k.waiting, k.over, n.wall, k.ready, k.blocked)
	} else {
		_, err = n.exec(keepKey, n.space, k.key, k.step, k.begun, k.hold, k.interrupted, k.done, k.waiting, k.over)
	}
	return err
}

func (n *turn) standing(k *turnKey) dispatch.Standing {
	switch {
	case !n.alive:
		return dispatch.Lost
	case k.given && k.named == k.term:
		return dispatch.Given
	case !k.held:
		return dispatch.Lost
	case k.step != 0 || k.atTarget:
		return dispatch.Held
	}
	return dispatch.Ready
}
