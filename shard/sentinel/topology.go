package sentinel

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// place is where a node is, as Sentinel writes it: an IPv6 host without brackets.
type place struct{ host, port string }

// String is the place as one word.
func (p place) String() string { return net.JoinHostPort(p.host, p.port) }

// words is the place as two words of a message.
func (p place) words() string { return p.host + " " + p.port }

// placeOf reads an address. It is false for one that would break a message apart.
func placeOf(address string) (place, bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(host, " \t\r\n@,") {
		return place{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return place{host, port}, err == nil && n > 0
}

// node as Sentinel's clients see it.
type node struct {
	place
	rec  shard.Record // zero if nothing is reported
	down bool
}

func (n node) run() string {
	if n.rec.Run != "" {
		return n.rec.Run
	}
	return n.rec.ID
}

// master is a shard as Sentinel's clients see it: its primary, which may be down, and its
// replicas.
type master struct {
	node
	name     string
	epoch    int64
	plan     int64 // epoch of the plan under way, 0 without one
	replicas []node
	// switchover tells that the primary is down because an operator moves it: nobody calls it down then.
	switchover bool
	endpoints  []node // the Sentinel endpoints of other agents of the shard
}

// masterOf translates a view. It is false as long as the shard has no primary that can be
// named. self is the ID of the endpoint that asks.
func masterOf(v shard.View, self string) (master, bool) {
	row := v.Row
	rec, known := v.Node(row.Primary)
	address := rec.Client()
	if m, ok := row.Member(row.Primary); !known && ok {
		address, rec.ID = m.Address, m.ID
	}
	at, ok := placeOf(address)
	if row.Primary == "" || !ok {
		return master{}, false
	}
	_, err := v.PrimaryEndpoint()
	m := master{node: node{at, rec, err != nil}, name: row.Name, epoch: row.PrimaryEpoch}
	if p := row.Plan; p != nil && p.Phase != shard.Following {
		m.plan, m.switchover = p.Epoch, p.Kind == shard.Switchover
	}
	for _, r := range v.Nodes {
		if at, ok := placeOf(r.Sentinel); ok && r.ID != self {
			m.endpoints = append(m.endpoints, node{at, r, !r.Live()})
		}
		_, member := row.Member(r.ID)
		if r.ID == row.Primary || !member && (r.Role != shard.Replica || r.PrimaryID != row.Primary) {
			continue
		}
		if at, ok := placeOf(r.Client()); ok {
			m.replicas = append(m.replicas, node{at, r, !r.Live() || r.Condition != shard.Up || !r.Synced})
		}
	}
	return m, true
}

// flags of the primary in the answers.
func (m master) flags() string {
	flags := "master"
	if m.isCalledDown() {
		flags = "master,s_down,o_down"
	}
	if m.plan != 0 {
		flags += ",failover_in_progress"
	}
	return flags
}

// isCalledDown reports whether subscribers are told that the primary is down.
func (m master) isCalledDown() bool { return m.down && !m.switchover }

// usable counts the endpoints that answer, with this one.
func (m master) usable() int {
	n := 1
	for _, e := range m.endpoints {
		if !e.down {
			n++
		}
	}
	return n
}

// linked tells that a replica copies from the primary.
func (m master) linked(r node) bool {
	l := r.rec.Link
	return !r.down && l != nil && l.Up && r.rec.PrimaryID == m.rec.ID
}

// field is a name with its value.
type field struct{ name, value string }

// fields of SENTINEL MASTER, in Sentinel's order.
func (m master) fields() []field {
	f := m.common(m.name, m.flags(), "master")
	return append(f, []field{
		{"config-epoch", strconv.FormatInt(m.epoch, 10)},
		{"num-slaves", strconv.Itoa(len(m.replicas))},
		{"num-other-sentinels", strconv.Itoa(len(m.endpoints))},
		{"quorum", "1"},
		{"failover-timeout", "180000"},
		{"parallel-syncs", "1"},
	}...)
}

// replica returns the fields of one of SENTINEL REPLICAS.
func (m master) replica(r node) []field {
	flags := "slave"
	if r.down {
		flags = "s_down,slave,disconnected"
	}
	status, downtime := "ok", "0"
	if !m.linked(r) {
		status = "err"
		if l := r.rec.Link; l != nil && l.Input > 0 {
			downtime = millis(l.Input)
		}
	}
	f := r.common(r.String(), flags, "slave")
	return append(f, []field{
		{"master-link-down-time", downtime},
		{"master-link-status", status},
		{"master-host", m.host},
		{"master-port", m.port},
		{"slave-priority", strconv.Itoa(r.rec.Priority)},
		{"slave-repl-offset", strconv.FormatInt(r.rec.Txn, 10)},
		{"replica-announced", "1"},
	}...)
}

func (n node) common(name, flags, role string) []field {
	heard := millis(n.rec.Age)
	f := []field{
		{"name", name}, {"ip", n.host}, {"port", n.port}, {"runid", n.run()}, {"flags", flags},
		{"link-pending-commands", "0"}, {"link-refcount", "1"}, {"last-ping-sent", "0"},
		{"last-ok-ping-reply", heard}, {"last-ping-reply", heard},
	}
	if n.down {
		f = append(f, field{"s-down-time", heard})
	}
	return append(f, []field{
		{"down-after-milliseconds", millis(n.rec.Timeout)},
		{"info-refresh", heard},
		{"role-reported", role},
		{"role-reported-time", heard},
	}...)
}

// endpoint returns the fields of one of SENTINEL SENTINELS.
func (n node) endpoint() []field {
	flags := "sentinel"
	if n.down {
		flags = "s_down,sentinel,disconnected"
	}
	heard := millis(n.rec.Age)
	return []field{
		{"name", n.rec.ID}, {"ip", n.host}, {"port", n.port}, {"runid", n.rec.ID}, {"flags", flags},
		{"link-pending-commands", "0"}, {"link-refcount", "1"}, {"last-ping-sent", "0"},
		{"last-ok-ping-reply", heard}, {"last-ping-reply", heard}, {"down-after-milliseconds", millis(n.rec.Timeout)},
		{"last-hello-message", heard}, {"voted-leader", "?"}, {"voted-leader-epoch", "0"},
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 0), 10) }
