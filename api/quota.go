package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/prometheus"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Bounds on what callers may add: what is never bounded is filled by one caller with a bug.
const (
	defaultLeases = 10_000
	maxSpaces     = 100
	maxQueues     = 1000
	// quotaFresh is how old a count may be. Several servers together may pass a bound by what they add in that time.
	quotaFresh = time.Second
)

var errQuota = errors.New("the quota is used up")

// quota bounds how many of something callers add, by space. What other processes add is bounded by nothing: they have the
// credentials of the store.
type quota struct {
	what  string // in the plural
	most  int
	freed string // how one makes room
	read  *sharedRead[map[string]int]

	mu    sync.Mutex
	added map[string]int // by this server, since the last read started
}

func newQuota(running context.Context, what string, most int, freed string, load func(context.Context) (map[string]int, error)) *quota {
	q := &quota{what: what, most: most, freed: freed, added: map[string]int{}}
	q.read = &sharedRead[map[string]int]{subject: "how many " + what + " there are", running: running, load: func(ctx context.Context) (map[string]int, error) {
		q.mu.Lock()
		clear(q.added) // first: what is added during the read counts, perhaps twice for a moment
		q.mu.Unlock()
		return load(ctx)
	}}
	return q
}

// check returns an error that wraps errQuota if no more may be added to the space.
func (q *quota) check(ctx context.Context, space string) error {
	counts, err := q.read.fresh(ctx, quotaFresh)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	in := ""
	if space != "" {
		in = fmt.Sprintf(" in the space %q", space)
	}
	n, known := counts[space]
	more, now := q.added[space]
	spaces := len(counts)
	for added := range q.added {
		if _, counted := counts[added]; !counted {
			spaces++
		}
	}
	switch {
	case n+more >= q.most:
		return fmt.Errorf("%w: there are %d %s%s, and at most %d are allowed; %s", errQuota, n+more, q.what, in, q.most, q.freed)
	case space != "" && !known && !now && spaces >= maxSpaces:
		return fmt.Errorf("%w: there are %d spaces, and at most %d are allowed; use one of them", errQuota, spaces, maxSpaces)
	}
	return nil
}

// add counts one that was added.
func (q *quota) add(space string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added[space]++
}

// used is how much of the quota is used in the fullest space; what the last read showed, and what was added.
func (q *quota) used(ctx context.Context) float64 {
	counts, _ := q.read.latest(ctx, quotaFresh)
	q.mu.Lock()
	defer q.mu.Unlock()
	most := 0
	for space, n := range counts {
		most = max(most, n+q.added[space])
	}
	return float64(most) / float64(q.most)
}

// countLeases counts the leases by space.
func countLeases(store lease.Roster) func(context.Context) (map[string]int, error) {
	return func(ctx context.Context) (map[string]int, error) {
		spaces, err := store.Spaces(ctx)
		counts := make(map[string]int, len(spaces))
		for _, s := range spaces {
			counts[s.Space] = s.Leases
		}
		return counts, err
	}
}

// countSessions counts the live sessions, as if of one space.
func countSessions(store lease.Roster) func(context.Context) (map[string]int, error) {
	return func(ctx context.Context) (map[string]int, error) {
		live, err := store.Sessions(ctx)
		return map[string]int{"": len(live)}, err
	}
}

// learned is how much of its quota the check has learned that has learned most of it.
func (p *monitorPart) learned(ctx context.Context) (most float64) {
	seen, _ := p.snapshot.latest(ctx, monitorScraped)
	for _, c := range seen.view.Checks {
		if n := c.Up + c.Down + c.PausedSources + c.Retired; !c.Fixed {
			most = max(most, float64(n)/float64(cmp.Or(c.MaxLearned, monitor.DefaultLearned)))
		}
	}
	return most
}

// collectQuotas adds how near to its bound each kind of thing is that callers add.
func (s *Server) collectQuotas(m prometheus.Scrape) {
	used := map[string]float64{"leases": s.leaseQuota.used(s.running), "sessions": s.sessionQuota.used(s.running)}
	if v, _ := s.queues.state(s.running); v != nil {
		used["queues"] = float64(v.Total) / maxQueues
	}
	if s.monitor.table != nil {
		used["sources"] = s.monitor.learned(s.running)
	}
	for resource, ratio := range used {
		m.Gauge("understudy_quota_used_ratio", "How much is used of what callers may add: of leases in the fullest space, live sessions, queues, and the sources of the check that has learned most of its own.", ratio, "resource", resource)
	}
}
