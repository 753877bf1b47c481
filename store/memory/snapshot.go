package memory

import (
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// Snapshot is what a backup of the store would hold.
type Snapshot struct {
	sessions map[string]session
	leases   map[lease.ID]row
	states   map[lease.ID]lease.State // of which no byte is ever changed
	waiting  map[lease.ID][]string
	events   []history.Event
	lastID   int64
	shards   shards
	tokens   []access.Token
	jobs     map[string]*jobRow
}

// Snapshot copies the store as it stands.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Snapshot{
		sessions: map[string]session{}, leases: map[lease.ID]row{}, waiting: copyWaiting(s.waiting), states: maps.Clone(s.states),
		events: slices.Clone(s.events), lastID: s.lastID, shards: s.shards.copy(),
		tokens: slices.Clone(s.tokens), jobs: copyJobs(s.jobs),
	}
	for id, n := range s.sessions {
		c.sessions[id] = *n
	}
	for id, r := range s.leases {
		c.leases[id] = *r
	}
	return c
}

// Restore puts the store back to a snapshot, as an operator does with a backup.
// Its clock continues, those who watch it continue watching, and nobody is told.
func (s *Store) Restore(c Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions, s.leases = map[string]*session{}, map[lease.ID]*row{}
	for id, n := range c.sessions {
		s.sessions[id] = &n
	}
	for id, r := range c.leases {
		s.leases[id] = &r
	}
	s.states = map[lease.ID]lease.State{}
	maps.Copy(s.states, c.states)
	s.waiting, s.events, s.lastID = copyWaiting(c.waiting), slices.Clone(c.events), c.lastID
	s.shards.restore(c.shards)
	s.tokens, s.jobs = slices.Clone(c.tokens), copyJobs(c.jobs)
}

func copyJobs(from map[string]*jobRow) map[string]*jobRow {
	to := map[string]*jobRow{}
	for name, j := range from {
		copied := jobRow{Job: j.shown(), runs: map[int64]*runRow{}}
		for at, r := range j.runs {
			run := *r
			copied.runs[at] = &run
		}
		to[name] = &copied
	}
	return to
}

func copyWaiting(from map[lease.ID][]string) map[lease.ID][]string {
	to := maps.Clone(from)
	for id, waiting := range to {
		to[id] = slices.Clone(waiting)
	}
	return to
}
