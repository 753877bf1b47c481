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
	LastID   int64                   `json:"last_id"`
	Sessions []session               `json:"sessions,omitempty"`
	Leases   []row                   `json:"leases,omitempty"`
	Waiting  []encodedWaiting        `json:"waiting,omitempty"`
	Shards   []encodedShard          `json:"shards,omitempty"`
	Locks    map[string]failoverLock `json:"locks,omitempty"`
	Queues   map[string][]queued     `json:"queues,omitempty"`
	Tokens   []encodedToken          `json:"tokens,omitempty"`
}

type encodedWaiting struct {
	ID       lease.ID `json:"id"`
	Sessions []string `json:"sessions"`
}

type encodedShard struct {
	Row   shard.Row `json:"row"`
	Nodes []node    `json:"nodes,omitempty"`
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
	if least := now.Add(d); alive && n.Deadline.Before(least) {
		n.Deadline = least
	} else if !alive && n.Deadline.After(now) {
		n.Deadline = now
	}
	c.sessions[id] = n
}

// Encode writes the snapshot without its events, the same one always in the same way.
func (c Snapshot) Encode() ([]byte, error) {
	e := encoded{LastID: c.lastID, Locks: c.shards.locks, Queues: c.shards.queues}
	for _, id := range slices.Sorted(maps.Keys(c.sessions)) {
		e.Sessions = append(e.Sessions, c.sessions[id])
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.leases), compareIDs) {
		e.Leases = append(e.Leases, c.leases[id])
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.waiting), compareIDs) {
		e.Waiting = append(e.Waiting, encodedWaiting{id, c.waiting[id]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.shards.byName)) {
		of := c.shards.byName[name]
		s := encodedShard{Row: of.row}
		for _, id := range slices.Sorted(maps.Keys(of.nodes)) {
			s.Nodes = append(s.Nodes, of.nodes[id])
		}
		e.Shards = append(e.Shards, s)
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
		c.sessions[s.ID] = s
	}
	for _, l := range e.Leases {
		c.leases[l.ID] = l
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
	maps.Copy(c.shards.locks, e.Locks)
	maps.Copy(c.shards.queues, e.Queues)
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
