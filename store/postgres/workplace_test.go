package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

const work = "work" // the queue of most tests here

// workplace is a database with the queue and a session.
func workplace(t testing.TB, server *realserver.PostgresServer) (url string, s *postgres.Store, me lease.Session) {
	t.Helper()
	url = server.NewDatabase(t)
	s = open(t, url)
	if err := s.QueueAdmin().CreateQueue(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	return url, s, start(t, s, "a", time.Hour)
}

// fill enqueues batches to keys in turn, in one statement.
func fill(t testing.TB, url string, keys, batches int) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`INSERT INTO understudy.batch (queue, key, payload)
		SELECT '%s', 'key-' || n %% %d, decode(repeat('ab', 200), 'hex') FROM generate_series(1, %d) n`, work, keys, batches))
}

// deliverer delivers through turns of a fixed size, with a target that takes no time.
type deliverer struct {
	store   *postgres.Store
	session string
	size    int
	keys    []claim.Claim // started with in turn
	results []dispatch.Result
}

// take claims up to n keys.
func (d *deliverer) take(t testing.TB, n int) {
	t.Helper()
	for len(d.keys) < n {
		most := min(n-len(d.keys), claim.MaxKeys)
		got, err := d.store.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space(work), Session: d.session, Limit: most, Fresh: most})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return
		}
		d.keys = append(d.keys, got...)
	}
}

// turn settles what was started, starts with as many keys, and returns how many
// batches were settled.
func (d *deliverer) turn(ctx context.Context) (int, error) {
	begin := make([]claim.Claim, 0, d.size)
	for _, r := range d.results {
		begin = append(begin, claim.Claim{Key: r.Key, Term: r.Term})
	}
	fresh := min(d.size-len(begin), len(d.keys))
	begin = append(begin, d.keys[:fresh]...)
	d.keys = d.keys[fresh:]
	out, err := d.store.Queue().Exchange(ctx, dispatch.Exchange{Queue: work, Session: d.session, Results: d.results, Begin: begin, Window: time.Minute})
	if err != nil {
		return 0, err
	}
	settled := 0
	for _, s := range out.Receipts {
		if s.Accepted {
			settled++
		}
	}
	d.results = d.results[:0]
	for _, a := range out.Begun {
		d.results = append(d.results, dispatch.Result{Key: a.Key, Term: a.Term, Seq: a.Seq, State: dispatch.Committed, After: dispatch.Next, Attempt: a.Attempt, Code: 200})
	}
	for _, c := range begin {
		if out.Holdings[c.Key] == dispatch.Ready {
			d.keys = append(d.keys, c)
		}
	}
	return settled, nil
}

// drain delivers until there is nothing more, or that many batches, and returns how
// many they were.
func (d *deliverer) drain(t testing.TB, most int) (batches int) {
	t.Helper()
	for batches < most {
		n, err := d.turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		batches += n
		if len(d.results) < d.size && len(d.keys) == 0 {
			if d.take(t, 1000); len(d.results)+len(d.keys) == 0 {
				break
			}
		}
	}
	return batches
}
