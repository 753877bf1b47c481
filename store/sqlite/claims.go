package sqlite

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Queues = (*Store)(nil)

// claims is the [claim.KeyTable] of a Store.
type claims struct{ *Store }

// Claims returns the table of claims.
func (s *Store) Claims() claim.KeyTable { return claims{s} }

const (
	// claimAliveSQL is aliveSQL for the holders of claims. The clock of another
	// boot cannot be asked; the wall clock, which the file's last users shared,
	// says when its sessions have ended. No harm is done if it errs, because every
	// effect of a claim is checked in the store.
	claimAliveSQL = `x.ended = 0 AND iif(x.boot = ?1, x.deadline_us > understudy_boot_us(),
  x.renewed_us <= understudy_wall_us() AND x.renewed_us + x.timeout_us > understudy_wall_us())`

	offerNew = `
INSERT INTO understudy_claim (space, key, since_us, ready_us)
VALUES (?1, ?2, ?3, ?4) ON CONFLICT (space, key) DO NOTHING`

	offerKnown = `
UPDATE understudy_claim SET ready_us = iif(step <> 0, ready_us, ?3), offered_us = iif(step <> 0, coalesce(min(offered_us, ?3), ?3), NULL)
WHERE space = ?1 AND key = ?2 AND blocked = 0 AND (step <> 0 OR ready_us IS NULL OR ready_us > ?3)
RETURNING session`

	// A queue's keys stay, because their sequence numbers must not begin again.
	withdraw = "DELETE FROM understudy_claim WHERE space = ?1 AND key = ?2 AND last = 0"

	beginStep = `
UPDATE understudy_claim SET step = term, begun_us = ?5, hold_us = ?6, offered_us = NULL
WHERE space = ?1 AND key = ?2 AND session = ?3 AND term = ?4 AND step = 0`

	finishStep = `
UPDATE understudy_claim SET step = 0, interrupted = 0, offered_us = NULL,
  ready_us = CASE WHEN offered_us IS NULL THEN ?5 ELSE coalesce(min(offered_us, ?5), offered_us) END
WHERE space = ?1 AND key = ?2 AND session = ?3 AND term = ?4`

	// A step of a key that is given back was interrupted. In this and all other
	// statements, what stands on the right is the row as it was.
	freeClaim = `
UPDATE understudy_claim SET session = '', since_us = ?5, ready_us = max(ready_us, ?5), interrupted = iif(step <> 0, step, interrupted), step = 0
WHERE space = ?1 AND key = ?2 AND session = ?3 AND term = ?4 AND session <> ''
RETURNING coalesce(ready_us <= ?5 AND blocked = 0, 0)`

	// wakeSome wakes members who sleep, first those who were heard of last.
	wakeSome = `
INSERT INTO understudy_wake (space, session)
SELECT m.space, m.session FROM understudy_member m JOIN understudy_session s ON s.id = m.session
WHERE m.space = ?1 AND m.asleep = 1 AND s.ended = 0 ORDER BY s.renewed_us DESC LIMIT ?2`

	claimColumns = `
SELECT c.key, c.term, c.session, c.since_us, c.ready_us, c.step <> 0, c.hold_us, c.interrupted <> 0,
  coalesce(x.instance, ''), coalesce(x.name, ''), coalesce(x.address, ''), coalesce(x.boot, ''), coalesce(` + claimAliveSQL + `, 0),
  understudy_boot_us(), understudy_wall_us()
FROM understudy_claim c `

	listClaims = claimColumns + "LEFT JOIN understudy_session x ON x.id = c.session WHERE c.space = ?2 AND c.key > ?3 ORDER BY c.key LIMIT ?4"

	listHeld = claimColumns + `INDEXED BY understudy_claim_held LEFT JOIN understudy_session x ON x.id = c.session
WHERE c.session = ?5 AND c.session <> '' AND c.space = ?2 AND c.key > ?3 ORDER BY c.key LIMIT ?4`
)

// Offer implements [claim.KeyTable].
func (s claims) Offer(ctx context.Context, space string, keys []string, in time.Duration) error {
	return s.write(ctx, "offering keys", func(t *txn) error {
		ready, woken := t.wall+in.Microseconds(), 0
		for _, key := range keys {
			n, err := t.exec(offerNew, space, key, t.wall, ready)
			free := n > 0
			if err == nil && !free {
				free, err = t.execReturning(offerKnown, func(session string) bool { return session == "" }, space, key, ready)
			}
			if err != nil {
				return err
			}
			if free && in <= 0 {
				woken++
			}
		}
		return t.wake(space, woken)
	})
}

// execReturning runs a statement that returns one column of the row that it changed, if
// it changed one, and reports whether it did and is says so.
func (t *txn) execReturning(text string, is func(string) bool, args ...any) (yes bool, err error) {
	err = t.each(text, args, func(scan scanner) error {
		var v string
		if err := scan(&v); err != nil {
			return err
		}
		yes = is(v)
		return nil
	})
	return yes, err
}

// wake wakes up to n members of the space who sleep.
func (t *txn) wake(space string, n int) error {
	if n == 0 {
		return nil
	}
	_, err := t.exec(wakeSome, space, n)
	return err
}

// Withdraw implements [claim.KeyTable].
func (s claims) Withdraw(ctx context.Context, space string, keys []string) error {
	return s.write(ctx, "withdrawing keys", func(t *txn) error {
		for _, key := range keys {
			if _, err := t.exec(withdraw, space, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// StartSteps implements [claim.KeyTable].
func (s claims) StartSteps(ctx context.Context, space, session string, hold time.Duration, named []claim.Claim) (begun []claim.Claim, err error) {
	err = s.write(ctx, "beginning steps", func(t *txn) error {
		if _, err := t.living(session); err != nil {
			return err
		}
		for _, c := range named {
			n, err := t.exec(beginStep, space, c.Key, session, c.Term, t.wall, t.now+hold.Microseconds())
			if err != nil {
				return err
			}
			if n > 0 {
				begun = append(begun, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// FinishSteps implements [claim.KeyTable].
func (s claims) FinishSteps(ctx context.Context, space, session string, done []claim.StepResult) (accepted []string, err error) {
	if session == "" {
		return nil, nil // free keys have that
	}
	err = s.write(ctx, "finishing steps", func(t *txn) error {
		woken := 0
		for _, d := range done {
			var ready any = t.wall + d.In.Microseconds()
			if d.Idle {
				ready = nil
			}
			n, err := t.exec(finishStep, space, d.Key, session, d.Term, ready)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			accepted = append(accepted, d.Key)
			if !d.Release {
				continue
			}
			ready2, err := t.release(space, session, d.Key, d.Term)
			if err != nil {
				return err
			}
			woken += ready2
		}
		return t.wake(space, woken)
	})
	if err != nil {
		return nil, err
	}
	return accepted, nil
}

// release gives a key back if it is held so, and returns 1 if it is ready then.
func (t *txn) release(space, session, key string, term int64) (ready int, err error) {
	yes, err := t.execReturning(freeClaim, func(ready string) bool { return ready == "1" }, space, key, session, term, t.wall)
	if yes {
		ready = 1
	}
	return ready, err
}

// Release implements [claim.KeyTable].
func (s claims) Release(ctx context.Context, space, session string, held []claim.Claim) error {
	return s.write(ctx, "releasing keys", func(t *txn) error {
		woken := 0
		for _, c := range held {
			ready, err := t.release(space, session, c.Key, c.Term)
			if err != nil {
				return err
			}
			woken += ready
		}
		return t.wake(space, woken)
	})
}

// List implements [claim.KeyTable].
func (s claims) List(ctx context.Context, q claim.Query) ([]claim.Row, error) {
	text, args := listClaims, []any{s.clocks.boot, q.Space, q.After, q.PageSize()}
	if q.Session != "" {
		text, args = listHeld, append(args, q.Session)
	}
	return readAll(ctx, s.Store, "listing keys", text, args, func(scan scanner) (claim.Row, error) { return scanRow(scan, s.clocks.boot) })
}

func scanRow(scan scanner, ours string) (r claim.Row, err error) {
	var since, hold, boot, wall int64
	var ready *int64
	var bootID string
	var alive bool
	err = scan(&r.Key, &r.Term, &r.Session, &since, &ready, &r.InStep, &hold, &r.Interrupted,
		&r.Holder.ID, &r.Holder.Name, &r.Holder.Address, &bootID, &alive, &boot, &wall)
	r.Since, r.Idle = time.UnixMicro(since), ready == nil
	r.Lapsed = r.Session != "" && !alive
	if ready != nil {
		r.In = micros(*ready - wall)
	}
	// After a reboot nobody works on what was started before it.
	if r.InStep && bootID == ours {
		r.Hold = micros(hold - boot)
	}
	if r.Session == "" {
		r.Holder = lease.Instance{}
	}
	return r, err
}
