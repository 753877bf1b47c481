package shard

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// plan reads KIND PHASE and settings; the plan's epoch is the row's, which becomes one more.
func (s *scene) plan(words []string) *Plan {
	if words[0] == "none" {
		return nil
	}
	s.v.Row.Epoch++
	p := &Plan{Epoch: s.v.Row.Epoch, Kind: Kind(words[0]), Phase: Phase(words[1]), From: s.v.Row.Primary, By: "ib", ByNode: sceneID("b"), Began: s.v.Now, Timeout: DefaultPause, Reason: "r"}
	for _, w := range words[2:] {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "from":
			p.From = sceneID(val)
		case "to":
			p.To = sceneID(val)
		case "by":
			p.By, p.ByNode = "i"+val, sceneID(val)
		case "wanted":
			p.Wanted = sceneID(val)
		case "force":
			p.Force, p.Request = true, "q"
		case "asked":
			p.Request = "q"
		case "txn":
			p.Txn = s.number(val)
		case "tried":
			for n := range strings.SplitSeq(val, ",") {
				p.Tried = append(p.Tried, sceneID(n))
			}
		case "failed":
			p.Failed, p.Steps = strings.ReplaceAll(val, "_", " "), []Step{{Phase: Detaching}}
		case "ended":
			p.Ended = s.v.Now.Add(-s.duration(val))
		default:
			s.t.Fatalf("plan: %q", w)
		}
	}
	return p
}

func (s *scene) request(words []string) {
	q := &Request{ID: "q", Kind: Kind(words[0]), By: "ann", At: s.v.Now}
	for _, w := range words[1:] {
		if to, ok := strings.CutPrefix(w, "to="); ok {
			q.To = sceneID(to)
		}
		q.Force = q.Force || w == "force"
	}
	s.v.Row.Request = q
}

func (s *scene) policy(words []string) {
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "max-lag":
			s.p.MaxLag = s.number(val)
		case "parallel":
			s.p.Parallel = int(s.number(val))
		case "fence-delay":
			s.p.FenceDelay = s.duration(val)
		default:
			s.t.Fatalf("policy: %q", w)
		}
	}
}

// done reads NODE ORDER and what differs from what the record shows.
func (s *scene) done(words []string) {
	r := s.node(words[0])
	d := Result{Epoch: s.v.Row.Epoch, Order: Order(words[1])}
	for _, w := range words[2:] {
		key, val, _ := strings.Cut(w, "=")
		if key == "error" {
			d.Error = strings.ReplaceAll(val, "_", " ")
			continue
		}
		s.edit(r, []string{w})
	}
	d.Txn, d.Lineage, d.Before = r.Txn, r.Lineage, r.Before
	r.Results = append(r.Results, d)
}

func (s *scene) install(words []string) []string {
	epoch, r := s.v.Row.Epoch, s.node(words[0])
	for _, w := range words[1:] {
		if at, ok := strings.CutPrefix(w, "epoch="); ok {
			epoch = s.number(at)
		} else {
			s.edit(r, []string{w})
		}
	}
	row, err := s.v.Row.WithNewPrimary(r.ID, epoch, State{Lineage: r.Lineage, Before: r.Before, Txn: r.Txn}, 0)
	if err != nil {
		return []string{fmt.Sprintf("changed=%v %v", errors.Is(err, ErrChanged), err)}
	}
	s.v.Row, s.s.PhaseFor = row, 0
	return []string{rowLine(row)}
}

// stand reads the node's letter and what its agent knows; the node's state is that of its
// record.
func (s *scene) stand(words []string) {
	r := s.node(words[0])
	me := Self{ID: r.ID, RunSeenFor: time.Hour, NoShardFor: time.Hour, Saved: SavedState{NodeID: r.ID, Run: "1", Lineage: Lineage{ID: "L"}, Txn: 100, Keys: 7}}
	me.State = State{Role: r.Role, Txn: r.Txn, Lineage: r.Lineage, Before: r.Before, Loading: r.Condition == Loading, Link: r.Link,
		Followers: r.Followers, Synced: r.Synced, Keys: r.Keys, Run: "1"}
	for _, w := range words[1:] {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "holding":
			me.Holding = true
		case "new-store":
			me.NoShardFor = 0
		case "new-agent":
			me.RunSeenFor = 0
		case "discard":
			me.DiscardData = true
		case "restarted":
			me.State.Run = "2"
		case "promoted":
			me.PromotedRun = me.State.Run
		case "no-memory":
			me.Saved = SavedState{}
		case "for":
			me.RunSeenFor, _ = time.ParseDuration(val)
		case "seen":
			me.Saved.Epoch = s.number(val)
		case "log":
			me.State.AppendLog = AppendLog{1, s.number(val)}
		case "boot":
			me.Saved.Boot = val
		case "address":
			me.Address = s.node(val).Address
		case "had":
			me.Saved.Txn = s.number(val)
		case "had-lineage":
			me.Saved.Lineage.ID = val
		default:
			s.t.Fatalf("stand: %q", w)
		}
	}
	s.self = me
}

func finding(f Finding) string {
	text := string(f.Health)
	if f.Proved {
		text += " proved"
	}
	if f.RecheckAfter > 0 {
		text += " wait=" + f.RecheckAfter.String()
	}
	return text + ": " + f.Why
}

func (s *scene) actions() []string {
	a, head := s.action, ""
	if a.Lock {
		head += " lock"
	}
	if a.FenceAt != "" {
		head += " fence=" + a.FenceAt
	}
	if len(a.DetachAt) > 0 {
		head += " detach=" + strings.Join(a.DetachAt, ",")
	}
	if a.Wait > 0 {
		head += " wait=" + a.Wait.String()
	}
	out := []string{strings.TrimSpace(cmp.Or(head, "nothing"))}
	if a.Blocked != "" {
		out = append(out, "blocked: "+a.Blocked)
	}
	if a.Update != nil {
		out = append(out, "decide "+rowLine(a.Update.Row))
		for _, c := range a.Update.Commands {
			out = append(out, "  with "+commandLine(c))
		}
		for _, id := range a.Update.Drop {
			out = append(out, "  drop "+id)
		}
	}
	for _, c := range a.Send {
		out = append(out, "send "+commandLine(c))
	}
	return out
}

func commandLine(c Command) string {
	text := fmt.Sprintf("%s %s", c.Node, c.Order)
	if c.To != "" {
		text += " to=" + c.To
	}
	if c.Txn != 0 {
		text += fmt.Sprintf(" txn=%d", c.Txn)
	}
	if c.For != 0 {
		text += " for=" + c.For.String()
	}
	return text
}

func rowLine(r Row) string {
	out := []string{fmt.Sprintf("epoch=%d primary=%s/%d", r.Epoch, r.Primary, r.PrimaryEpoch)}
	for _, l := range r.Lineages {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s/%d", l.ID, l.End), "/0"))
	}
	var letters []string
	for _, m := range r.Members {
		letters = append(letters, m.ID[:1])
	}
	out = append(out, "members="+strings.Join(letters, ""))
	if p := r.Plan; p != nil {
		out = append(out, fmt.Sprintf("plan: %s %s to=%s", p.Kind, p.Phase, cmp.Or(p.To, "?")))
		if p.Txn != 0 {
			out = append(out, fmt.Sprintf("txn=%d", p.Txn))
		}
		if len(p.Tried) > 0 {
			out = append(out, "tried="+strings.Join(p.Tried, ","))
		}
		if p.NewHistory {
			out = append(out, "anew")
		}
	} else if r.Last != nil {
		out = append(out, "last: "+r.Last.String())
	}
	if r.Request != nil {
		out = append(out, "request")
	}
	return strings.Join(out, " ")
}
