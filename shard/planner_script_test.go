package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/script"
)

// TestScripts replays testdata/*.txt through the pure core. A line that begins with "> " changes
// what is seen or asks something; the answer follows. "-- name" begins anew with three
// nodes: a, the primary, whose agent holds the lease, and its replicas b and c, all well
// and at transaction 100 of lineage L.
func TestScripts(t *testing.T) {
	script.Transcripts(t, "testdata/*.txt", func(t *testing.T, _ string) script.Play {
		s := newScene(t)
		return func(in script.Input) (_, after []string) {
			for _, answer := range s.input(in.Words) {
				after = append(after, readable(answer))
			}
			return nil, after
		}
	})
}

// sceneID is the id of the node that scripts call by one letter.
func sceneID(name string) string {
	if name == "" {
		return ""
	}
	return strings.Repeat(name, 40)
}

// readable puts the letters of nodes in the place of their labels and ids.
func readable(s string) string {
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		label := Record{Address: n + ":1", ID: sceneID(n)}.Label()
		for _, long := range []string{label, sceneID(n), strings.Repeat(n, 8)} {
			s = strings.ReplaceAll(s, long, n)
		}
	}
	return s
}

// scene is what is seen, and who looks.
type scene struct {
	t      *testing.T
	v      View
	s      Observation
	p      Policy
	self   Self
	action Action
}

func newScene(t *testing.T) *scene {
	now := time.Date(1960, 1, 2, 3, 4, 5, 0, time.UTC) // before 1970, so that epochs are small numbers
	s := &scene{t: t, p: Policy{FenceDelay: 3 * time.Second}}
	s.v = View{Now: now, Row: Row{Name: "s", Rev: 1, Epoch: 1, Primary: sceneID("a"), PrimaryEpoch: 1, Lineages: []Lineage{{ID: "L"}}}}
	for _, n := range []string{"a", "b", "c"} {
		s.v.Row.Members = append(s.v.Row.Members, Member{ID: sceneID(n), Address: n + ":1", Since: now})
		s.node(n)
	}
	s.lease([]string{"a"})
	s.s = Observation{Node: sceneID("b"), Instance: "ib", StoreSeenFor: time.Hour}
	s.self = Self{ID: sceneID("a"), RunSeenFor: time.Hour, NoShardFor: time.Hour}
	return s
}

// node returns the record of a node, a new one if there is none.
func (s *scene) node(name string) *Record {
	i := slices.IndexFunc(s.v.Nodes, func(r Record) bool { return r.ID == sceneID(name) })
	if i >= 0 {
		return &s.v.Nodes[i]
	}
	r := Record{Shard: "s", ID: sceneID(name), Address: name + ":1", Role: Replica, PrimaryID: sceneID("a"), Txn: 100, Condition: Up,
		Lineage: Lineage{ID: "L"}, Synced: true, Priority: 100, Instance: "i" + name, Interval: time.Second, Timeout: 5 * time.Second, Fence: Closed,
		Link: &Upstream{Address: "a:1", Up: true}, Keys: 7}
	if name == "a" {
		r.Role, r.PrimaryID, r.Link, r.Fence, r.Armed = Primary, "", nil, Armed, true
	}
	s.v.Nodes = append(s.v.Nodes, r)
	return &s.v.Nodes[len(s.v.Nodes)-1]
}

func (s *scene) input(words []string) []string {
	rest := words[1:]
	switch words[0] {
	case "node":
		s.edit(s.node(rest[0]), rest[1:])
	case "cut":
		for i := range s.v.Nodes {
			if l := s.v.Nodes[i].Link; l != nil {
				l.Up = false
			}
		}
	case "drop":
		s.v.Nodes = slices.DeleteFunc(s.v.Nodes, func(r Record) bool { return r.ID == sceneID(rest[0]) })
	case "lease":
		s.lease(rest)
	case "me":
		s.me(rest)
	case "row":
		s.row(rest)
	case "plan":
		s.v.Row.Plan = s.plan(rest)
	case "last":
		s.v.Row.Last = s.plan(rest)
	case "request":
		s.request(rest)
	case "policy":
		s.policy(rest)
	case "done":
		s.done(rest)
	case "pass":
		d := s.duration(rest[0])
		s.v.Now, s.s.PhaseFor = s.v.Now.Add(d), s.s.PhaseFor+d
	case "judge":
		return []string{finding(Judge(s.v, s.s, s.p.FenceDelay))}
	case "next":
		s.action = NextAction(s.v, s.s, s.p)
		return s.actions()
	case "apply":
		s.v.Row, s.s.PhaseFor = s.action.Update.Row, 0
		s.v.Row.Rev++
		for _, id := range s.action.Update.Drop {
			s.v.Nodes = slices.DeleteFunc(s.v.Nodes, func(r Record) bool { return r.ID == id })
		}
		return []string{rowLine(s.v.Row)}
	case "install":
		return s.install(rest)
	case "stand":
		s.stand(rest)
		b := Decide(s.v, s.self)
		return []string{strings.TrimSuffix(fmt.Sprintf("%s %s: %s", b.Assignment, cmp.Or(b.Address, "-"), b.Why), ": ")}
	case "admit":
		row, changed := s.v.AdmitMembers(24 * time.Hour)
		s.v.Row = row
		return []string{fmt.Sprintf("changed=%v %s", changed, rowLine(row))}
	case "where":
		e, err := s.v.PrimaryEndpoint()
		if err != nil {
			return []string{err.Error()}
		}
		return []string{fmt.Sprintf("%s epoch=%d", e.Address, e.Epoch)}
	default:
		s.t.Fatalf("unknown: %q", words)
	}
	return nil
}

func (s *scene) duration(w string) time.Duration {
	d, err := time.ParseDuration(w)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *scene) number(w string) int64 {
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// edit changes a record: a bare word is a condition, a verdict, a fence or a role.
func (s *scene) edit(r *Record, words []string) {
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "up", "loading", "silent", "down", "refused":
			r.Condition = Condition(key)
		case "open", "armed", "closed":
			r.Fence, r.Armed = Fence(key), key == "armed"
		case "primary":
			r.Role, r.PrimaryID, r.Link = Primary, "", nil
		case "replica":
			r.Role, r.PrimaryID, r.Link, r.Fence, r.Armed = Replica, sceneID(val), &Upstream{Address: val + ":1", Up: true}, Closed, false
		case "detached":
			r.Role, r.PrimaryID, r.Link = Replica, "", &Upstream{Address: "nowhere:1"}
		case "answers", "refuses", "mute":
			r.Opinion = &Opinion{Of: cmp.Or(sceneID(val), s.v.Row.Primary), Reachability: Reachability(key)}
		case "silence":
			r.Opinion.Silence = s.duration(val)
		case "shut":
			r.Opinion.Closed = s.duration(val)
		case "opinion-age":
			r.Opinion.Age = s.duration(val)
		case "no-opinion":
			r.Opinion = nil
		case "knows-log":
			r.PrimaryLog = PrimaryLog{Node: sceneID("a"), At: 1, Boot: "boot", Written: AppendLog{1, s.number(val)}, Synced: AppendLog{1, s.number(val) - 100}}
		case "age":
			r.Age = s.duration(val)
		case "input":
			r.Link.Input = s.duration(val)
		case "link":
			r.Link.Up, r.Link.Syncing = val == "up", val == "syncing"
		case "txn":
			r.Txn = s.number(val)
		case "keys":
			r.Keys = s.number(val)
		case "priority":
			r.Priority = int(s.number(val))
		case "lineage":
			r.Lineage.ID = val
		case "before":
			id, end, _ := strings.Cut(val, "/")
			r.Before = Lineage{id, s.number(end)}
		case "epoch":
			r.Epoch = s.number(val)
		case "led":
			r.Led = s.number(val)
		case "free":
			r.Role, r.PrimaryID, r.Link = Replica, "", &Upstream{}
		case "partial":
			r.Synced = false
		case "followers":
			r.Followers = nil
			for n := range strings.SplitSeq(val, ",") {
				r.Followers = append(r.Followers, Follower{Address: n + ":1", ID: sceneID(n), Online: true})
			}
		case "sees": // of a node whose agent is silent: NODE/refuses, /mute, /follows, /hears or /detached
			of, what, _ := strings.Cut(val, "/")
			o := Opinion{Of: sceneID(of), Reachability: Reachability(what)}
			switch what {
			case "follows":
				o.Reachability, o.Link = Reachable, &Upstream{Address: "a:1", Input: time.Hour}
			case "hears":
				o.Reachability, o.Link = Reachable, &Upstream{Address: "a:1", Up: true}
			case "detached":
				o.Reachability, o.Link = Reachable, &Upstream{}
			}
			r.Unattended = []Opinion{o}
		case "needs":
			r.Needs = int(s.number(val))
		case "trouble":
			r.Trouble = strings.ReplaceAll(val, "_", " ")
		case "instance":
			r.Instance = val
		default:
			s.t.Fatalf("node: %q", w)
		}
	}
}

// lease tells who holds it: a node's letter or "free", and what of its session remains.
func (s *scene) lease(words []string) {
	s.v.Lease.Session, s.v.Lease.Holder.ID, s.v.Lease.Remaining = "", "", 0
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch {
		case key == "free":
		case key == "left":
			s.v.Lease.Remaining = s.duration(val)
		case key == "age":
			s.v.Lease.Age = s.duration(val)
		default:
			s.v.Lease.Session, s.v.Lease.Holder.ID, s.v.Lease.Remaining = "x", "i"+key, 4*time.Second
		}
	}
	if s.v.Lease.Timing.Timeout = 5 * time.Second; slices.Contains(words, "free") {
		s.v.Lease.Timing.Timeout = 0 // as stores have it
	}
}

func (s *scene) me(words []string) {
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "over":
			s.s.LeaseTakeable, s.s.TakeableFor = true, s.duration(val)
		case "not-over":
			s.s.LeaseTakeable, s.s.TakeableFor = false, 0
		case "fenced":
			s.s.Fenced = true
		case "store-seen":
			s.s.StoreSeenFor = s.duration(val)
		case "lock":
			s.s.Orchestrating = true
		case "no-lock":
			s.s.Orchestrating = false
		case "again":
			s.s.Instance = val
		default:
			s.s.Node, s.s.Instance = sceneID(key), "i"+key
		}
	}
}

func (s *scene) row(words []string) {
	row := &s.v.Row
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "none":
			*row = Row{Name: "s"}
		case "primary":
			row.Primary = sceneID(val)
		case "paused":
			row.Paused = &Pause{By: val}
		case "members":
			row.Members = nil
			for n := range strings.SplitSeq(val, ",") {
				row.Members = append(row.Members, Member{ID: sceneID(n), Address: n + ":1", Since: s.v.Now})
			}
		case "failovers":
			for ago := range strings.SplitSeq(val, ",") {
				row.Failovers = append(row.Failovers, s.v.Now.Add(-s.duration(ago)))
			}
		case "lineages":
			row.Lineages = nil
			for l := range strings.SplitSeq(val, ",") {
				id, end, _ := strings.Cut(l, "/")
				row.Lineages = append(row.Lineages, Lineage{id, s.number(cmp.Or(end, "0"))})
			}
		default:
			s.t.Fatalf("row: %q", w)
		}
	}
}
