package memory

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

var errSum = errors.New("memory: the sum of a token is not one")

// encoded is the form of a snapshot. Its events are kept apart: see [Snapshot.Events].
type encoded struct {
	LastID   int64                       `json:"last_id"`
	Sessions []encodedSession            `json:"sessions,omitempty"`
	Leases   []encodedLease              `json:"leases,omitempty"`
	Waiting  []encodedWaiting            `json:"waiting,omitempty"`
	Shards   []encodedShard              `json:"shards,omitempty"`
	Locks    map[string]encodedLock      `json:"locks,omitempty"`
	Queues   map[string][]encodedCommand `json:"queues,omitempty"`
	Tokens   []encodedToken              `json:"tokens,omitempty"`
}

type encodedSession struct {
	lease.Session
	Deadline time.Time `json:"deadline"`
}

type encodedLease struct {
	ID        lease.ID       `json:"id"`
	Term      int64          `json:"term"`
	Session   string         `json:"session,omitempty"`
	Holder    lease.Instance `json:"holder,omitzero"`
	Since     time.Time      `json:"since"`
	Successor string         `json:"successor,omitempty"`
	Reserved  time.Time      `json:"reserved,omitzero"`
	Asked     bool           `json:"asked,omitempty"`
	AskedFor  string         `json:"asked_for,omitempty"`
	Places    int            `json:"places,omitempty"`
}

type encodedWaiting struct {
	ID       lease.ID `json:"id"`
	Sessions []string `json:"sessions"`
}

type encodedShard struct {
	Row   shard.Row     `json:"row"`
	Nodes []encodedNode `json:"nodes,omitempty"`
}

type encodedNode struct {
	shard.Record
	At time.Time `json:"at"`
}

type encodedLock struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires"`
}

type encodedCommand struct {
	shard.Command
	Expires time.Time `json:"expires"`
}

type encodedToken struct {
	access.Token
	Secret string `json:"sum"`
}

// Events are those of the snapshot, oldest first.
func (c Snapshot) Events() []history.Event { return c.events }

// LastID is the number of the last event that the store ever had.
func (c Snapshot) LastID() int64 { return c.lastID }

// Sessions are the ids of the sessions that were not ended, in order.
func (c Snapshot) Sessions() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(c.sessions)) {
		if !c.sessions[id].Ended {
			ids = append(ids, id)
		}
	}
	return ids
}

// Session returns a session as it was started.
func (c Snapshot) Session(id string) (lease.Session, bool) {
	n, known := c.sessions[id]
	return n.Session, known
}

// Settle has a session live for at least d from now, or be over now, as something else than this store's clock says.
func (c Snapshot) Settle(id string, alive bool, now time.Time, d time.Duration) {
	n := c.sessions[id]
	if least := now.Add(d); alive && n.deadline.Before(least) {
		n.deadline = least
	} else if !alive && n.deadline.After(now) {
		n.deadline = now
	}
	c.sessions[id] = n
}

// Encode writes the snapshot without its events, the same one always in the same way.
func (c Snapshot) Encode() ([]byte, error) {
	e := encoded{LastID: c.lastID, Locks: map[string]encodedLock{}, Queues: map[string][]encodedCommand{}}
	for _, id := range slices.Sorted(maps.Keys(c.sessions)) {
		e.Sessions = append(e.Sessions, encodedSession{c.sessions[id].Session, c.sessions[id].deadline})
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.leases), compareIDs) {
		r := c.leases[id]
		e.Leases = append(e.Leases, encodedLease{r.id, r.term, r.session, r.holder, r.since, r.successor, r.reserved, r.asked, r.askedFor, r.places})
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.waiting), compareIDs) {
		e.Waiting = append(e.Waiting, encodedWaiting{id, c.waiting[id]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.shards.byName)) {
		of := c.shards.byName[name]
		s := encodedShard{Row: of.row}
		for _, id := range slices.Sorted(maps.Keys(of.nodes)) {
			s.Nodes = append(s.Nodes, encodedNode{of.nodes[id].Record, of.nodes[id].at})
		}
		e.Shards = append(e.Shards, s)
	}
	for primary, l := range c.shards.locks {
		e.Locks[primary] = encodedLock{l.value, l.expires}
	}
	for node, all := range c.shards.queues {
		for _, q := range all {
			e.Queues[node] = append(e.Queues[node], encodedCommand{q.Command, q.expires})
		}
	}
	for _, t := range c.tokens {
		e.Tokens = append(e.Tokens, encodedToken{t, hex.EncodeToString(t.Sum[:])})
	}
	return json.Marshal(e)
}

func compareIDs(a, b lease.ID) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Key, b.Key))
}

// DecodeSnapshot reads what [Snapshot.Encode] wrote.
func DecodeSnapshot(text []byte) (Snapshot, error) {
	var e encoded
	if err := json.Unmarshal(text, &e); err != nil {
		return Snapshot{}, err
	}
	c := Snapshot{sessions: map[string]session{}, leases: map[lease.ID]row{}, waiting: map[lease.ID][]string{}, lastID: e.LastID, shards: newShards()}
	for _, s := range e.Sessions {
		c.sessions[s.ID] = session{s.Session, s.Deadline}
	}
	for _, l := range e.Leases {
		c.leases[l.ID] = row{l.ID, l.Term, l.Session, l.Holder, l.Since, l.Successor, l.Reserved, l.Asked, l.AskedFor, l.Places}
	}
	for _, w := range e.Waiting {
		c.waiting[w.ID] = w.Sessions
	}
	for _, s := range e.Shards {
		for _, n := range s.Nodes {
			c.shards.put(n.Record, n.At)
		}
		c.shards.state(s.Row.Name).row = s.Row
	}
	for primary, l := range e.Locks {
		c.shards.locks[primary] = failoverLock{l.Value, l.Expires}
	}
	for node, all := range e.Queues {
		for _, q := range all {
			c.shards.queues[node] = append(c.shards.queues[node], queued{q.Command, q.Expires})
		}
	}
	for _, t := range e.Tokens {
		sum, err := hex.DecodeString(t.Secret)
		if err != nil || len(sum) != len(t.Sum) {
			return c, errSum
		}
		copy(t.Sum[:], sum)
		c.tokens = append(c.tokens, t.Token)
	}
	return c, nil
}
