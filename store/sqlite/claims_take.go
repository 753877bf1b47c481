package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// SQLite, which knows nothing of how much there is, would often rather go
	// through a whole space or queue: where the index matters, it is named.

	// holdersSQL steps from holder to holder in the index of what is held, however
	// many keys each of them has.
	holdersSQL = `
WITH RECURSIVE holder (id) AS (
  SELECT (SELECT c.session FROM understudy_claim c WHERE c.session <> '' AND c.session > '' ORDER BY c.session LIMIT 1)
  UNION ALL
  SELECT (SELECT c.session FROM understudy_claim c WHERE c.session <> '' AND c.session > holder.id ORDER BY c.session LIMIT 1)
  FROM holder WHERE holder.id IS NOT NULL)`

	lapsedSQL = `holder LEFT JOIN understudy_session x ON x.id = holder.id
WHERE holder.id IS NOT NULL AND NOT coalesce(` + claimAliveSQL + `, 0)`

	// readySQL is true of a key c that is ready.
	readySQL = "c.ready_us IS NOT NULL AND c.ready_us <= understudy_wall_us()"

	// anyFree reports whether there is anything to take.
	anyFree = `
EXISTS (SELECT 1 FROM understudy_claim c WHERE c.space = ?2 AND c.session = '' AND ` + readySQL + `)
OR EXISTS (` + holdersSQL + ` SELECT 1 FROM ` + lapsedSQL + `
  AND EXISTS (SELECT 1 FROM understudy_claim c INDEXED BY understudy_claim_held WHERE c.session = holder.id AND c.session <> '' AND c.space = ?2 AND ` + readySQL + `
    AND (c.step = 0 OR x.boot IS NOT ?1 OR c.hold_us <= understudy_boot_us())))`

	lookFirst = "SELECT EXISTS (SELECT 1 FROM understudy_session x WHERE x.id = ?3 AND x.boot = ?1 AND " + claimAliveSQL + "), " + anyFree

	lapsedHolders = holdersSQL + `
SELECT holder.id, coalesce(x.instance, ''), coalesce(x.name, ''), coalesce(x.boot = ?1, 0),
  coalesce(iif(x.boot = ?1, understudy_boot_us() - x.deadline_us, understudy_wall_us() - x.renewed_us - x.timeout_us), 0)
FROM ` + lapsedSQL

	lapsedKeys = `
SELECT c.key, c.term, c.ready_us, iif(c.step <> 0, c.step, c.interrupted) FROM understudy_claim c INDEXED BY understudy_claim_held
WHERE c.session = ?1 AND c.session <> '' AND c.space = ?2 AND c.ready_us IS NOT NULL AND c.ready_us <= ?3
  AND (c.step = 0 OR ?4 OR c.hold_us <= ?5) ORDER BY c.ready_us LIMIT ?6`

	// freeKeys looks past fresh keys that are not wanted, but not for ever.
	freeKeys = `
SELECT c.key, c.term, c.ready_us, c.interrupted, max(c.ready_us, c.since_us) FROM understudy_claim c
WHERE c.space = ?1 AND c.session = '' AND c.ready_us IS NOT NULL AND c.ready_us <= ?2 ORDER BY c.ready_us LIMIT ?3`

	takeClaim = `
UPDATE understudy_claim SET term = ?3, session = ?4, since_us = ?5, interrupted = ?6, step = 0
WHERE space = ?1 AND key = ?2`

	askMember = `
SELECT ` + claimAliveSQL + `, coalesce(m.asleep, -1)
FROM understudy_session x LEFT JOIN understudy_member m ON m.space = ?2 AND m.session = x.id
WHERE x.id = ?3 AND x.boot = ?1`

	putMember = `
INSERT INTO understudy_member (space, session, asleep) VALUES (?1, ?2, ?3)
ON CONFLICT (space, session) DO UPDATE SET asleep = ?3`

	forgetMembers = `
DELETE FROM understudy_member AS m WHERE m.space = ?2
  AND NOT EXISTS (SELECT 1 FROM understudy_session x WHERE x.id = m.session AND ` + claimAliveSQL + ")"

	shareOf = `
SELECT count(*), coalesce(sum(keys), 0), coalesce(min(keys), 0), coalesce(sum(iif(session = ?3, keys, 0)), 0), ` + anyFree + `,
  EXISTS (SELECT 1 FROM understudy_scheduled WHERE queue = iif(substr(?2, 1, 6) = 'queue/', substr(?2, 7), '') AND not_before_us <= understudy_wall_us())
FROM (
  SELECT m.session, (SELECT count(*) FROM understudy_claim c WHERE c.session = m.session AND c.session <> '' AND c.space = ?2) AS keys
  FROM understudy_member m JOIN understudy_session x ON x.id = m.session
  WHERE m.space = ?2 AND ` + claimAliveSQL + ")"
)

// ClaimKeys implements [claim.KeyTable]. Whoever finds nothing to take never asks for
// the write lock.
func (s claims) ClaimKeys(ctx context.Context, w claim.ClaimRequest) (taken []claim.Claim, err error) {
	const op = "taking keys"
	var alive, free bool
	err = s.readOne(ctx, op, lookFirst, []any{s.clocks.boot, w.Space, w.Session}, &alive, &free)
	if err == nil && !alive {
		err = fmt.Errorf("session %s: %w", w.Session, lease.ErrLapsed)
	}
	if err != nil || !free {
		return nil, err
	}
	err = s.write(ctx, op, func(t *txn) error {
		me, err := t.living(w.Session)
		if err != nil {
			return err
		}
		k := claimAttempt{txn: t, want: w, me: me, over: map[string]*history.Event{}}
		if err := k.run(); err != nil {
			return err
		}
		taken = k.taken
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// claimAttempt is one Take under way.
type claimAttempt struct {
	*txn
	want  claim.ClaimRequest
	me    sessionRow
	found []freeKey
	over  map[string]*history.Event // by the session that keys are taken over from
	taken []claim.Claim
}

// freeKey is a key that may be taken.
type freeKey struct {
	key, session string
	term, ready  int64
	interrupted  int64
}

func (k *claimAttempt) most() int { return min(k.want.Limit, claim.MaxKeys) }

func (k *claimAttempt) run() error {
	if err := k.findLapsed(); err != nil {
		return err
	}
	slices.SortStableFunc(k.found, func(a, b freeKey) int { return cmp.Compare(a.ready, b.ready) }) // of several holders
	if err := k.findFree(); err != nil {
		return err
	}
	for _, f := range k.found[:min(len(k.found), max(0, k.most()))] {
		term := max(f.term+1, k.wall/1000)
		if _, err := k.exec(takeClaim, k.want.Space, f.key, term, k.me.ID, k.wall, f.interrupted); err != nil {
			return err
		}
		k.taken = append(k.taken, claim.Claim{Key: f.key, Term: term, Interrupted: f.interrupted != 0})
		if e := k.over[f.session]; e != nil {
			e.Term = max(e.Term, term)
		}
	}
	for _, session := range slices.Sorted(maps.Keys(k.over)) {
		if e := k.over[session]; e.Term != 0 {
			if err := k.record(*e, changeTaken, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// findLapsed finds the keys of those who have lapsed.
func (k *claimAttempt) findLapsed() error {
	foreign := map[string]bool{}
	err := k.each(lapsedHolders, []any{k.boot}, func(scan scanner) error {
		var id string
		var who lease.Instance
		var ours bool
		var silent int64
		if err := scan(&id, &who.ID, &who.Name, &ours, &silent); err != nil {
			return err
		}
		e := &history.Event{Part: "claim", Subject: k.want.Space, To: k.me.Instance.Label(), Reason: history.Lapsed, Duration: micros(silent)}
		if who.ID != "" {
			e.From = who.Label()
		}
		k.over[id], foreign[id] = e, !ours
		return nil
	})
	for id := range k.over {
		if err != nil {
			return err
		}
		err = k.each(lapsedKeys, []any{id, k.want.Space, k.wall, foreign[id], k.now, k.most()}, func(scan scanner) error {
			f := freeKey{session: id}
			err := scan(&f.key, &f.term, &f.ready, &f.interrupted)
			k.found = append(k.found, f)
			return err
		})
	}
	return err
}

var errEnough = errors.New("enough")

// findFree finds what is nobody's and ready, and of what is so for a moment only as
// much as is wanted.
func (k *claimAttempt) findFree() error {
	const passed = claim.MaxKeys // fresh keys that are looked past
	fresh, settled, n := k.want.Fresh, k.wall-k.want.Linger.Microseconds(), 0
	err := k.each(freeKeys, []any{k.want.Space, k.wall, k.most() + passed}, func(scan scanner) error {
		var f freeKey
		var since int64
		if err := scan(&f.key, &f.term, &f.ready, &f.interrupted, &since); err != nil {
			return err
		}
		if since > settled {
			if fresh <= 0 {
				return nil
			}
			fresh--
		}
		k.found = append(k.found, f)
		if n++; n >= k.most() {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Join implements [claim.KeyTable]. It writes only what changes; and it counts after
// that, so that whoever falls asleep is shown the keys for which it will not be
// woken.
func (s claims) Join(ctx context.Context, m claim.Member) (share claim.Share, err error) {
	const op = "joining"
	var alive bool
	asleep := -1
	wanted := 0
	if m.Asleep {
		wanted = 1
	}
	args := []any{s.clocks.boot, m.Space, m.Session}
	err = s.read(ctx, op, func(c call) error {
		alive = false
		return notThere(c.one(askMember, args, &alive, &asleep))
	})
	if err != nil {
		return share, err
	}
	if !alive {
		return share, fmt.Errorf("session %s: %w", m.Session, lease.ErrLapsed)
	}
	if asleep != wanted {
		err = s.write(ctx, op, func(t *txn) error {
			if _, err := t.living(m.Session); err != nil {
				return err
			}
			if _, err := t.exec(forgetMembers, t.boot, m.Space); err != nil {
				return err
			}
			_, err := t.exec(putMember, m.Space, m.Session, wanted)
			return err
		})
		if err != nil {
			return share, err
		}
	}
	err = s.readOne(ctx, op, shareOf, args, &share.Members, &share.Held, &share.Least, &share.Mine, &share.Free, &share.Due)
	return share, err
}
