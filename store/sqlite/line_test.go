package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

const jobs = "jobs"

// line is a queue with some keys, and who delivers it.
type line struct {
	testing.TB
	*sqlite.Store
	path string
	me   lease.Session
}

func newLine(t testing.TB, cfg sqlite.Config) *line {
	t.Helper()
	l := &line{TB: t, Store: open(t, cfg), path: cfg.Path}
	if err := l.QueueAdmin().CreateQueue(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	l.me = session(t, l.Store, "me", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	return l
}

func (l *line) take(most int) []claim.Claim {
	l.Helper()
	held, err := l.Claims().ClaimKeys(l.Context(), claim.ClaimRequest{Space: dispatch.Space(jobs), Session: l.me.ID, Limit: most, Fresh: most})
	if err != nil {
		l.Fatal(err)
	}
	return held
}

func (l *line) turn(results []dispatch.Result, begin []claim.Claim) dispatch.ExchangeResult {
	l.Helper()
	out, err := l.Queue().Exchange(l.Context(), dispatch.Exchange{
		Queue: jobs, Session: l.me.ID, Results: results, Begin: begin, Window: time.Minute,
	})
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// committed are the results of assignments that went well, and the claims to go
// on with.
func committed(as []dispatch.Assignment) (results []dispatch.Result, next []claim.Claim) {
	for _, a := range as {
		results = append(results, dispatch.Result{
			Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: a.Attempt, Code: 200,
		})
		next = append(next, claim.Claim{Key: a.Key, Term: a.Term})
	}
	return results, next
}

func fillSQL(from, to, keys int) string {
	return fmt.Sprintf(`
WITH RECURSIVE i (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM i WHERE n + 1 < %d)
INSERT INTO understudy_enqueue (queue, key, payload) SELECT 'jobs', printf('key-%%06d', n %% %d), zeroblob(200) FROM i`, from, to, keys)
}
