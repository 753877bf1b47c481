package dispatch

import (
	"math"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/claim"
)

// room is how many more keys may be claimed. Keys whose message is stuck only wait, perhaps for ever: up to as many of them as
// others do not count, so that they do not keep others from being claimed.
func (m *machine) room() int {
	return min(claim.MaxKeys, m.cfg.MaxKeys-len(m.slots)+min(m.stuck, m.cfg.MaxKeys))
}

// shouldClaim reports whether to claim keys now.
func (m *machine) shouldClaim(now time.Duration) bool {
	if m.session == "" || m.stopping || m.room() <= 0 {
		return false
	}
	return m.woken || now >= m.claimAt || now >= m.retries.next()
}

func (m *machine) claimRequest(now time.Duration) *claim.ClaimRequest {
	m.woken = false
	m.retries.drop(now)
	room := m.room()
	return &claim.ClaimRequest{
		Space: Space(m.cfg.Name), Session: m.session, Limit: room, Fresh: m.share.Fresh(room), Linger: claim.Linger,
	}
}

// handleClaims applies the store's answer to a claim, and decides when to claim next.
func (m *machine) handleClaims(now time.Duration, req claim.ClaimRequest, claims []claim.Claim, err error) {
	if !m.requestEnded(now, err) {
		m.woken = true
		return
	}
	if m.foundNothing = len(claims) == 0; m.foundNothing {
		m.claimPause = min(2*m.claimPause, claimSlow)
	} else {
		m.claimPause = claimBusy
	}
	m.asleep = m.asleep && m.foundNothing
	for _, c := range claims {
		if c.Interrupted {
			m.observed.TakenOver++
		}
		s := &slot{ref: ref{c.Key, c.Term}, session: req.Session, phase: ready}
		m.addSlot(s)
		m.readySlots = append(m.readySlots, s)
	}
	switch {
	case len(claims) == req.Limit:
		m.claimAt = now // there may be more
	case m.counts[ready] >= m.cfg.Concurrency:
		m.claimAt = now + claim.Linger
	case !m.isIdle():
		m.claimAt = now + m.claimPause
	case req.Fresh < req.Limit && m.share.Free:
		m.claimAt = now + claim.Linger
	default:
		m.claimAt = now + claim.PollInterval
		if !m.asleep {
			m.joinAt = now // to ask for a wake-up, and to claim once more
		}
	}
}

// handleJoin applies the store's answer to join: surplus keys are released, and keys
// that had their turn make room for others that wait.
func (m *machine) handleJoin(now time.Duration, share claim.Share, err error) {
	if !m.requestEnded(now, err) {
		m.asleep = false
		return
	}
	m.share, m.surplus = share, 0
	m.unknownKeys.compareCounts(share.Mine, m.countHeld())
	if m.asleep {
		m.woken = true // a key may have become ready before the store knew that we sleep
	}
	surplus := share.Surplus()
	if surplus == 0 && share.Free && m.room() <= 0 {
		m.rotateKeys()
		return
	}
	released := m.releaseReady(surplus, func(*slot) bool { return true })
	m.surplus = surplus - released // each is released when its step has ended
	m.observed.Released += int64(released)
}

// rotateKeys releases keys that had their turn, when more keys wait than this instance
// may hold.
func (m *machine) rotateKeys() {
	m.releaseReady(max(1, m.cfg.MaxKeys/4), func(s *slot) bool { return s.streak > 0 })
}

// releaseReady releases up to n waiting keys, those whose turn is last first, and
// returns how many.
func (m *machine) releaseReady(n int, may func(*slot) bool) (released int) {
	for i := len(m.readySlots) - 1; i >= 0 && released < n; i-- {
		if s := m.readySlots[i]; s.phase == ready && may(s) {
			m.releaseLater(s)
			released++
		}
	}
	return released
}

// handleRelease applies the store's answer to a release.
func (m *machine) handleRelease(now time.Duration, req releaseRequest, err error) {
	if m.requestEnded(now, err) {
		return
	}
	for _, c := range req.claims { // again: releasing twice has no effect
		m.toRelease = append(m.toRelease, &slot{ref: ref{c.Key, c.Term}, session: req.session, phase: gone})
	}
}

// dueTimes are when keys that were released for a later attempt are due: the queue is then claimed from at once, and not
// when its next poll comes. They are hints, and bounded: past maxDueTimes the poll is good enough.
type dueTimes []time.Duration

const maxDueTimes = 1000

func (d *dueTimes) add(at time.Duration) {
	if len(*d) < maxDueTimes {
		i, _ := slices.BinarySearch(*d, at)
		*d = slices.Insert(*d, i, at)
	}
}

// next is when the first is due.
func (d dueTimes) next() time.Duration {
	if len(d) == 0 {
		return math.MaxInt64
	}
	return d[0]
}

// drop forgets those that are due.
func (d *dueTimes) drop(now time.Duration) {
	i, _ := slices.BinarySearch(*d, now+1)
	*d = slices.Delete(*d, 0, i)
}

// keyFinder notices keys that the store gave to this session in an answer that was
// lost. No other instance may take them while the session lives.
type keyFinder struct {
	more   int    // times in a row that the store counted more keys than are known
	wanted bool   // list them
	after  string // where the listing continues
}

func (f *keyFinder) compareCounts(counted, known int) {
	if f.more++; counted <= known {
		f.more = 0
	}
	// Twice in a row: a claim that timed out here may still be applied there.
	f.wanted = f.more > 1
}

// countHeld is how many keys the store must count for the session.
func (m *machine) countHeld() (n int) {
	for _, s := range m.slots {
		if s.session == m.session {
			n++
		}
	}
	for _, s := range m.toRelease {
		if s.session == m.session {
			n++
		}
	}
	return n
}

func (m *machine) listRequest() *claim.Query {
	m.unknownKeys.wanted = false
	return &claim.Query{Space: Space(m.cfg.Name), Session: m.session, After: m.unknownKeys.after, Limit: claim.MaxKeys}
}

// handleList applies the list of keys that the store has under this session. A step on an
// unknown key was started by an exchange whose answer was lost: nothing was sent for
// it, so it may be started again.
func (m *machine) handleList(now time.Duration, q claim.Query, rows []claim.Row, err error) {
	if !m.requestEnded(now, err) {
		return
	}
	m.unknownKeys.after = ""
	if len(rows) == q.Limit {
		m.unknownKeys.after = rows[len(rows)-1].Key
	}
	leaving := map[ref]bool{}
	for _, s := range m.toRelease {
		leaving[s.ref] = true
	}
	for _, row := range rows {
		at := ref{row.Key, row.Term}
		if m.slots[at] != nil || leaving[at] || q.Session != m.session {
			continue
		}
		s := &slot{ref: at, session: q.Session, phase: ready, restart: row.InStep}
		m.addSlot(s)
		m.readySlots = append(m.readySlots, s)
	}
}
