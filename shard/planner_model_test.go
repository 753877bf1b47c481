package shard

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

var modelSeed = flag.Uint64("shard-model-seed", 0, "walk this seed only, and print what happened")

var modelWalks = flag.Int("shard-model-walks", 300, "how many walks")

// modelSteps is how long a walk is before faults cease.
const modelSteps = 600

// TestModel takes random walks through the model. However commands are lost, late or
// doubled, agents and nodes die and hosts are cut off: at most one node is installed per epoch, none is
// installed that went its own way, no write is accepted under an epoch after one under a later, and
// when faults cease the shard has a primary that everyone follows, or someone says why not.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		w := newModel(*modelSeed, modelRules{})
		w.walk(modelSteps)
		t.Log(strings.Join(w.trace, "\n"))
		t.Fatal(strings.Join(w.wrong, "\n"))
	}
	for _, known := range []func(*modelWorld){(*modelWorld).calm, (*modelWorld).returning} {
		w := newModel(1, modelRules{})
		if known(w); len(w.wrong) > 0 {
			t.Fatalf("%s\n%s", strings.Join(w.trace, "\n"), w.wrong)
		}
	}
	walks, asked, epochs := *modelWalks, 0, int64(0)
	for seed := range uint64(walks) {
		w := newModel(seed+1, modelRules{})
		w.walk(modelSteps)
		if len(w.wrong) > 0 {
			t.Fatalf("-shard-model-seed %d: %s", seed+1, w.wrong)
		}
		epochs += w.row.Epoch
		if w.asked {
			asked++
		}
	}
	t.Logf("%d walks, %d epochs, %d ended with a question to a person", walks, epochs, asked)
	if asked > walks/4 || epochs < int64(walks) {
		t.Errorf("of %d walks %d ended with a question, with %d epochs: the model tries too little", walks, asked, epochs)
	}
}

// TestModelCatches proves the model by rules that are broken.
func TestModelCatches(t *testing.T) {
	if *modelSeed != 0 {
		t.Skip("one walk only")
	}
	each := func(edit func(*Record)) func(View) View {
		return func(v View) View {
			v.Nodes = slices.Clone(v.Nodes)
			for i := range v.Nodes {
				v.Nodes[i].Results = slices.Clone(v.Nodes[i].Results)
				edit(&v.Nodes[i])
			}
			return v
		}
	}
	blind := func(install func(r Row) bool) func(Row, string, int64, Lineage, int64) (Row, error) {
		return func(r Row, node string, epoch int64, l Lineage, txn int64) (Row, error) {
			if r.Plan == nil || !install(r) {
				r = r.Copy()
				r.Primary, r.PrimaryEpoch, r.Lineages = node, epoch, extend(r.Lineages, l.ID, txn)
				return r, nil
			}
			p := *r.Plan
			p.Epoch, p.To, p.Phase = epoch, node, Promoting
			r.Plan = &p
			return r.WithNewPrimary(node, epoch, State{Lineage: l, Txn: txn}, 0)
		}
	}
	for name, rules := range map[string]modelRules{
		"install without the plan's check": {install: blind(func(Row) bool { return true })},
		"an epoch not raised on replacement": {decide: func(before Row, d *RowUpdate) {
			if p := d.Row.Plan; p != nil && before.Plan != nil && p.Epoch > before.Plan.Epoch {
				p.Epoch, d.Row.Epoch = before.Plan.Epoch, before.Epoch
				for i := range d.Commands {
					d.Commands[i].Epoch = p.Epoch
				}
			}
		}},
		"one signal: nobody has an answer": {sight: func(s *Observation) { s.LeaseTakeable, s.TakeableFor = true, max(s.TakeableFor, modelT) }},
		"one signal: the session": {view: each(func(r *Record) {
			if r.Link != nil {
				l := *r.Link
				l.Input, r.Link = -1, &l
			}
			if r.Opinion != nil {
				r.Opinion = &Opinion{Of: r.Opinion.Of, Reachability: Refused}
			}
		})},
		"dead replicas look alive": {view: func(v View) View {
			return each(func(r *Record) {
				if r.ID != v.Row.Primary {
					r.Age, r.Condition = 0, Up
				}
			})(v)
		}},
		"lineages do not count": {view: func(v View) View {
			l := v.Row.Lineages[len(v.Row.Lineages)-1]
			return each(func(r *Record) {
				r.Lineage = l
				for i := range r.Results {
					r.Results[i].Lineage = l
				}
			})(v)
		}},
		"a plan's primary opens by itself": {stand: func(v View) View { v.Row.Plan = nil; return v }},
		"a primary opens on an old view":   {stale: true},
		"nobody yields": {send: func(c []Command) []Command {
			return slices.DeleteFunc(c, func(c Command) bool { return c.Order == OrderYield })
		}},
		"a dead orchestrator's plan stays": {decide: func(before Row, d *RowUpdate) {
			if p := d.Row.Plan; p != nil && before.Plan != nil && p.Epoch != before.Plan.Epoch {
				d.Row.Rev = -1
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(500) {
				w := newModel(1+seed, rules)
				switch seed {
				case 0:
					w.calm()
				case 1:
					w.returning()
				default:
					w.walk(modelSteps)
				}
				if len(w.wrong) > 0 {
					t.Logf("caught in walk %d: %s", seed+1, w.wrong[0])
					return
				}
			}
			t.Error("not caught")
		})
	}
}
