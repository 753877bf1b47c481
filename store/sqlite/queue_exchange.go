package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/dispatch"
)

// exchange is one Exchange under way.
type exchange struct {
	*txn
	dispatch.Exchange
	space string
	me    sessionRow
	alive bool
	keys  map[string]*exchangeKey
	order []*exchangeKey // as they were named first
	woken int            // keys that became ready for anybody
	room  int            // bytes of payloads that may still be read
	out   dispatch.ExchangeResult
}

// exchangeKey is the row of a key, as this turn leaves it.
type exchangeKey struct {
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

func (n *exchange) run() (dispatch.ExchangeResult, error) {
	n.out.Holdings = make(map[string]dispatch.Holding, len(n.Results)+len(n.Begin))
	for _, r := range n.Results {
		k, err := n.key(r.Key, r.Term)
		ok := false
		if err == nil {
			ok, err = n.recordResult(k, r)
		}
		if err != nil {
			return n.out, err
		}
		k.settled = k.settled || ok
		k.look = !ok
		n.out.Receipts = append(n.out.Receipts, dispatch.Receipt{Key: r.Key, Seq: r.Seq, Accepted: ok})
	}
	for _, c := range n.Begin {
		k, err := n.key(c.Key, c.Term)
		if err == nil {
			err = n.startStep(k)
		}
		if err != nil {
			return n.out, err
		}
	}
	for _, k := range n.order {
		if err := n.writeKey(k); err != nil {
			return n.out, err
		}
	}
	return n.out, n.wake(n.space, n.woken)
}

// key reads the row of a key once.
func (n *exchange) key(key string, term int64) (*exchangeKey, error) {
	k := n.keys[key]
	if k == nil {
		k = &exchangeKey{key: key}
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

// recordResult records a result, if it counts.
func (n *exchange) recordResult(k *exchangeKey, r dispatch.Result) (bool, error) {
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
	ok, err := n.recordProgress(k, r)
	if err != nil || !ok {
		return false, err
	}
	k.step, k.interrupted, k.changed = 0, 0, true
	k.atTarget = (r.After == dispatch.Hold || r.After == dispatch.Stuck) && r.State.IsAtTarget()
	wasBlocked := k.blocked
	k.blocked = r.Blocks()
	if err := n.recordBlocking(k, r, wasBlocked); err != nil {
		return false, err
	}
	switch r.After {
	case dispatch.Next:
		k.done, k.waiting, k.over = r.Seq, k.waiting-1, k.over+1
	case dispatch.RetryLater:
		n.releaseKey(k, n.wall+r.Wait.Microseconds())
		if r.Wait <= 0 {
			n.woken++
		}
	case dispatch.Block:
		n.releaseKey(k, nil)
	}
	return true, nil
}

func (n *exchange) head(k *exchangeKey) (seq int64, state dispatch.State, err error) {
	err = n.one(lookAtHead, []any{n.Queue, k.key, k.done}, &seq, &state)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return seq, state, err
}

// releaseKey takes the key from its holder.
func (n *exchange) releaseKey(k *exchangeKey, ready any) {
	k.session, k.held, k.given, k.changed, k.ready = "", false, true, true, ready
}

// startStep starts a step with the head of a key, or looks at it.
func (n *exchange) startStep(k *exchangeKey) error {
	if !k.held || !n.alive || k.step != 0 && !n.Restart || k.waiting == 0 {
		return nil
	}
	a := dispatch.Assignment{Term: k.term, Message: dispatch.Message{Queue: n.Queue, Key: k.key}}
	var state dispatch.State
	var code, size int
	var detail, headers, trail string
	var enqueued int64
	var begun *int64
	err := n.one(getHead, []any{n.Queue, k.key, k.done, n.room}, &a.Seq, &a.ID, &a.ContentType, &state, &a.Attempt, &enqueued, &begun, &code, &detail, &a.Link, &headers, &trail, &size, &a.Payload)
	if errors.Is(err, sql.ErrNoRows) {
		// The messages that it counts were lost with a part of the file: an error here would keep all others' results out.
		k.waiting, k.step, k.interrupted, k.blocked, k.changed = 0, 0, 0, false, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("the head of key %q: %w", k.key, err)
	}
	if k.blocked && !state.IsAtTarget() {
		n.releaseKey(k, nil)
		return nil
	}
	if size > n.room && !(state.IsAtTarget() && k.settled) {
		k.look = true // its turn comes with the next call
		return nil
	}
	n.room -= size
	a.Headers = dispatch.DecodeHeaders(headers)
	a.Age = micros(max(0, n.wall-enqueued))
	k.done, k.changed, k.look = a.Seq-1, true, false
	k.atTarget = state.IsAtTarget()
	switch {
	case k.atTarget && k.settled:
		return nil
	case k.atTarget:
		a.Work = dispatch.Poll
		if begun != nil {
			a.Undecided = micros(max(0, n.wall-*begun))
		}
		n.out.Begun = append(n.out.Begun, a)
		return nil
	case state == dispatch.Unknown:
		a.Work, a.Code, a.Detail = dispatch.Resolve, code, detail
	case k.interrupted != 0:
		a.Work = dispatch.Resolve
		a.Attempt++
		if err := n.lost(k, a.Seq); err != nil {
			return err
		}
	default:
		a.Work = dispatch.Send
		a.Attempt++
		a.Retried = trail != "" && dispatch.WasRetried((&progress{trail: trail}).steps())
	}
	k.step, k.begun, k.hold = k.term, n.wall, n.now+n.Window.Microseconds()
	n.out.Begun = append(n.out.Begun, a)
	return nil
}

// writeKey writes what became of a key and tells where it stands.
func (n *exchange) writeKey(k *exchangeKey) error {
	if k.held && k.step == 0 && k.waiting == 0 {
		n.releaseKey(k, nil)
	}
	if k.held && k.look && k.step == 0 {
		_, state, err := n.head(k)
		if err != nil {
			return err
		}
		k.atTarget = state.IsAtTarget()
	}
	n.out.Holdings[k.key] = n.holding(k)
	if !k.changed {
		return nil
	}
	var err error
	if k.given {
		_, err = n.exec(giveKey, n.space, k.key, k.interrupted, k.done, k.waiting, k.over, n.wall, k.ready, k.blocked)
	} else {
		_, err = n.exec(keepKey, n.space, k.key, k.step, k.begun, k.hold, k.interrupted, k.done, k.waiting, k.over, k.blocked)
	}
	return err
}

func (n *exchange) holding(k *exchangeKey) dispatch.Holding {
	switch {
	case !n.alive:
		return dispatch.Lost
	case k.given && k.named == k.term:
		return dispatch.Released
	case !k.held:
		return dispatch.Lost
	case k.step != 0 || k.atTarget:
		return dispatch.InProgress
	}
	return dispatch.Ready
}
