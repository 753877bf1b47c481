package shard

import (
	"testing"
	"time"
)

// TestWhole follows one replica through copies, restarts and a promotion.
func TestWhole(t *testing.T) {
	up, down, copying := &Upstream{Up: true}, &Upstream{}, &Upstream{Syncing: true}
	half := &Upstream{} // down as well: the copy broke off
	state := func(run, lineage string, txn int64, l *Upstream) State {
		s := State{Role: Replica, Txn: txn, Lineage: Lineage{ID: lineage}, Run: run, Link: l, Synced: l != half, Keys: txn}
		if l == nil {
			s.Role = Primary
		}
		return s
	}
	var m SavedState
	for _, step := range []struct {
		name    string
		s       State
		holding bool
		whole   bool
		txn     int64 // remembered afterwards
	}{
		{name: "its first copy", s: state("1", "X", 0, copying), txn: 0},
		{name: "it broke off", s: state("1", "X", 1, down)},
		{name: "linked", s: state("1", "L", 100, up), whole: true, txn: 100},
		{name: "the link is down", s: state("1", "L", 100, down), whole: true, txn: 100},
		{name: "restarted from an old copy", s: state("2", "L", 60, down), txn: 100},
		{name: "… and asked again", s: state("2", "L", 60, down), txn: 100},
		{name: "restarted with all", s: state("3", "L", 100, down), whole: true, txn: 100},
		{name: "restarted with another history", s: state("4", "R", 500, down), txn: 100},
		{name: "linked again", s: state("4", "L", 120, up), whole: true, txn: 120},
		{name: "another full copy", s: state("4", "L", 1, copying), txn: 120},
		{name: "… broke off", s: state("4", "L", 1, half), txn: 120},
		{name: "another one", s: state("4", "L", 1, copying), txn: 120},
		{name: "… ended, and the link with it", s: state("4", "M", 125, down), whole: true, txn: 125},
		{name: "another one", s: state("4", "M", 1, copying), txn: 125},
		{name: "… and restarted with all that it had", s: state("4b", "M", 125, down), txn: 125},
		{name: "… and was done", s: state("4", "M", 130, up), whole: true, txn: 130},
		{name: "promoted", s: state("4", "N", 130, nil), whole: true, txn: 130},
		{name: "the primary", s: state("4", "N", 140, nil), holding: true, whole: true, txn: 140},
		{name: "restarted as the primary", s: state("5", "R", 90, nil), txn: 140},
	} {
		if got := m.HasAllData(step.s); got != step.whole {
			t.Errorf("%s: whole is %v", step.name, got)
		}
		if m = m.Updated(step.s, step.holding); m.Txn != step.txn {
			t.Errorf("%s: it remembers %d, not %d", step.name, m.Txn, step.txn)
		}
	}
}

// Where a node has no name of its runs, a promotion that failed leaves it with another lineage, and all that it had.
func TestWholeAfterAPromotion(t *testing.T) {
	saved := SavedState{Lineage: Lineage{ID: "A"}, Txn: 100}
	for end, whole := range map[int64]bool{100: true, 120: true, 99: false} {
		s := State{Role: Primary, Txn: end, Lineage: Lineage{ID: "B"}, Before: Lineage{ID: "A", End: end}, Synced: true}
		if got := saved.HasAllData(s); got != whole {
			t.Errorf("promoted at %d: whole is %v", end, got)
		}
	}
}

// A store that lost its latest writes gives no epoch out again that an agent has seen.
func TestEpochsAfterLoss(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := View{Row: Row{Epoch: 7}, Now: now}
	if got := v.nextEpoch(); got != now.UnixMilli() {
		t.Errorf("got %d, want the clock's %d", got, now.UnixMilli())
	}
	v.Nodes = []Record{{Epoch: now.UnixMilli() + 5}}
	if got, want := v.nextEpoch(), now.UnixMilli()+6; got != want {
		t.Errorf("got %d, want more than any record: %d", got, want)
	}
	v.Row.Epoch = now.UnixMilli() + 50
	if got, want := v.nextEpoch(), now.UnixMilli()+51; got != want {
		t.Errorf("got %d, want more than the row: %d", got, want)
	}
}

// A primary whose lineage is called otherwise since its first replica came has lost nothing.
func TestRenamedLineage(t *testing.T) {
	id := "00112233445566778899aabbccddeeff00112233"
	m := SavedState{NodeID: id, Run: "r1", Lineage: Lineage{ID: "old"}, Txn: 100, Keys: 5}
	s := State{Role: Primary, Run: "r1", Lineage: Lineage{ID: "new"}, Txn: 101, Keys: 5}
	v := View{Row: Row{Rev: 1, Epoch: 1, Primary: id, PrimaryEpoch: 1, Lineages: []Lineage{{ID: "old"}}}}
	stance := func(s State) Assignment { return Decide(v, Self{ID: id, State: s, Saved: m, Holding: true}).Assignment }
	if got := stance(s); got != AssignLead {
		t.Errorf("the same process: %s", got)
	}
	restarted, promoted, back := s, s, s
	restarted.Run, promoted.Before, back.Txn = "r2", Lineage{ID: "other"}, 99
	for name, s := range map[string]State{"restarted": restarted, "promoted by hand": promoted, "with less": back} {
		if got := stance(s); got == AssignLead {
			t.Errorf("%s: %s", name, got)
		}
	}
	row, changed := v.Row.RenameLineage(s.Lineage, s.Txn)
	if !changed || len(row.Lineages) != 2 || row.Lineages[0] != (Lineage{"old", 101}) || row.Lineages[1] != (Lineage{ID: "new"}) {
		t.Errorf("got %+v, %v", row.Lineages, changed)
	}
	if _, changed := row.RenameLineage(s.Lineage, s.Txn); changed {
		t.Error("it was renamed again")
	}
	v.Row.Plan = &Plan{}
	if _, changed := v.Row.RenameLineage(s.Lineage, s.Txn); changed {
		t.Error("it was renamed while a plan is under way")
	}
}

// A primary that its agent starts again follows nobody at first. It continues if it has all that it
// had, also after it was promoted for that, and on the way is not taken for one that was demoted.
func TestGoingOnAfterAStop(t *testing.T) {
	id := "00112233445566778899aabbccddeeff00112233"
	v := View{Row: Row{Rev: 1, Epoch: 1, Primary: id, PrimaryEpoch: 1, Lineages: []Lineage{{ID: "L"}}, Members: []Member{{ID: id}, {ID: "other"}}}}
	m := SavedState{NodeID: id, Run: "1", Lineage: Lineage{ID: "L"}, Txn: 100, Keys: 5}
	detached := State{Role: Replica, Run: "2", Lineage: Lineage{ID: "L"}, Txn: 100, Keys: 5, Link: &Upstream{}, Synced: true}
	promoted := State{Role: Primary, Run: "2", Lineage: Lineage{ID: "N"}, Before: Lineage{ID: "L", End: 100}, Txn: 100, Keys: 5, Synced: true}
	for _, run := range []string{"1", "2"} { // also when the new run was noted already
		m.Run = run
		for _, s := range []State{detached, promoted} {
			if b := Decide(v, Self{ID: id, State: s, Saved: m}); b.Assignment != AssignResume {
				t.Errorf("%s, noted run %s: %s, %s", s.Role, run, b.Assignment, b.Why)
			}
			s.Txn, s.Before.End = 99, min(s.Before.End, 99)
			if b := Decide(v, Self{ID: id, State: s, Saved: m}); b.Assignment == AssignResume || b.Assignment == AssignLead {
				t.Errorf("%s with less, noted run %s: %s, %s", s.Role, run, b.Assignment, b.Why)
			}
		}
	}
}
