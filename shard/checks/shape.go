package checks

import (
	"net"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// member is a node in the shape of Patroni's GET /patroni.
type member struct {
	State       string     `json:"state"`
	Role        string     `json:"role"`
	Server      string     `json:"server_version,omitempty"`
	Timeline    int64      `json:"timeline"`
	Location    location   `json:"xlog"`
	Replication []follower `json:"replication,omitempty"`
	Unlocked    bool       `json:"cluster_unlocked,omitempty"`
	Failsafe    bool       `json:"failsafe_mode_is_active,omitempty"`
	Pause       bool       `json:"pause,omitempty"`
	StoreSeen   int64      `json:"dcs_last_seen"`
	Trouble     string     `json:"trouble,omitempty"`
	Blocked     string     `json:"blocked,omitempty"`
	Agent       program    `json:"patroni"`
}

// location is a transaction id: of a primary in one field, of a replica in another.
type location struct {
	Location *int64 `json:"location,omitempty"`
	Received *int64 `json:"received_location,omitempty"`
	Replayed *int64 `json:"replayed_location,omitempty"`
}

type follower struct {
	Name    string `json:"application_name"`
	Address string `json:"client_addr"`
	State   string `json:"state"`
	Sync    string `json:"sync_state"`
}

type program struct {
	Version string `json:"version,omitempty"`
	Scope   string `json:"scope"`
	Name    string `json:"name"`
}

// status is an agent's status with durations in milliseconds, as everywhere in the API. Its view is the exception: it
// holds rows and records in the form in which stores keep them.
type status struct {
	shard.Status
	Finding       finding `json:"finding"`
	StoreDownMS   int64   `json:"store_down_ms"`
	PromisedForMS int64   `json:"promised_for_ms"`
	LoopAgeMS     int64   `json:"loop_age_ms"`
	TimeoutMS     int64   `json:"timeout_ms"`
}

type finding struct {
	shard.Finding
	WaitMS int64 `json:"wait_ms"`
}

func statusOf(s shard.Status) status {
	return status{
		Status: s, Finding: finding{s.Finding, s.Finding.RecheckAfter.Milliseconds()}, StoreDownMS: s.StoreDown.Milliseconds(),
		PromisedForMS: s.PromisedFor.Milliseconds(), LoopAgeMS: s.LoopAge.Milliseconds(), TimeoutMS: s.Timeout.Milliseconds(),
	}
}

func (h handler) member(s shard.Status) member {
	row := s.View.Row
	m := member{
		State: stateOf(s.Condition), Role: string(s.State.Role), Server: s.State.Version, Timeline: row.PrimaryEpoch,
		Unlocked: !s.View.Lease.Held(), Failsafe: s.Holding && s.StoreDown > 0, Pause: row.Paused != nil,
		StoreSeen: time.Now().Add(-s.StoreDown).Unix(), Trouble: s.Trouble, Blocked: s.Blocked,
		Agent: program{h.Version, row.Name, s.NodeID},
	}
	txn := s.State.Txn
	if s.State.Role == shard.Replica {
		m.Location = location{Received: &txn, Replayed: &txn}
		return m
	}
	m.Location = location{Location: &txn}
	for _, f := range s.State.Followers {
		state := "streaming"
		if !f.Online {
			state = "catchup"
		}
		m.Replication = append(m.Replication, follower{f.ID, f.Address, state, "async"})
	}
	return m
}

func stateOf(c shard.Condition) string {
	switch c {
	case shard.Up:
		return "running"
	case shard.Loading:
		return "starting"
	case shard.Down:
		return "stopped"
	}
	return "unknown"
}

// cluster is a shard in the shape of Patroni's GET /cluster.
type cluster struct {
	Members []clusterMember `json:"members"`
	Scope   string          `json:"scope"`
	Pause   bool            `json:"pause,omitempty"`
}

type clusterMember struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	API      string `json:"api_url,omitempty"`
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Timeline int64  `json:"timeline"`
	Lag      any    `json:"lag,omitempty"` // a number, or "unknown"
}

func clusterOf(v shard.View) cluster {
	out := cluster{Members: []clusterMember{}, Scope: v.Row.Name, Pause: v.Row.Paused != nil}
	leader, known := v.Node(v.Row.Primary)
	for _, r := range v.Nodes {
		host, port, _ := net.SplitHostPort(r.Client())
		m := clusterMember{Name: r.ID, Role: string(shard.Replica), State: stateOf(r.Condition), Host: host, Timeline: r.Epoch}
		m.Port, _ = strconv.Atoi(port)
		if r.Agent != "" {
			m.API = "http://" + r.Agent + "/patroni"
		}
		if !r.Live() {
			m.State = "unknown"
		}
		switch {
		case r.ID == v.Row.Primary:
			m.Role = "leader"
		case known:
			m.Lag = max(leader.Txn-r.Txn, 0)
		default:
			m.Lag = "unknown"
		}
		if r.ID != v.Row.Primary && m.State == "running" && r.Link != nil && r.Link.Up {
			m.State = "streaming"
		}
		out.Members = append(out.Members, m)
	}
	return out
}

// historyOf is what the row knows, in the shape of Patroni's GET /history: timeline, position, reason,
// time, new leader.
func historyOf(v shard.View) [][]any {
	p := v.Row.Last
	if p == nil || p.Failed != "" {
		return [][]any{}
	}
	txn := int64(0)
	if n := len(v.Row.Lineages); n > 1 {
		txn = v.Row.Lineages[n-2].End
	}
	return [][]any{{p.Epoch, txn, string(p.Kind) + ": " + p.Reason, p.Ended.UTC().Format(time.RFC3339Nano), p.To}}
}
