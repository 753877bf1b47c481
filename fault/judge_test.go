package fault_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/history"
)

const ms = time.Millisecond

func effect(at time.Duration, holder string, term int64) ledger.Effect {
	return ledger.Effect{At: at, Subject: "r", Holder: holder, Term: term}
}

func acquired(to string, term int64) history.Event {
	return history.Event{Part: "role", Subject: "r", To: to, Term: term}
}

func released(from string, term int64) history.Event {
	return history.Event{Part: "role", Subject: "r", From: from, Term: term}
}

// sound is evidence that breaks no rule: a holds, is asked, releases; b follows.
func sound() fault.Evidence {
	asked := acquired("a", 10)
	asked.From = "a"
	return fault.Evidence{
		Part: "role",
		Effects: []ledger.Effect{
			effect(100*ms, "a", 10), effect(110*ms, "a", 10), effect(120*ms, "a", 10),
			effect(150*ms, "b", 20), effect(160*ms, "b", 20),
		},
		Events: []history.Event{acquired("a", 10), asked, released("a", 10), acquired("b", 20)},
		MaxGap: 50 * ms,
		Until:  180 * ms,
	}
}

// TestFaultJudgeCatches shows the judge one broken ledger or history after the
// other.
func TestFaultJudgeCatches(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(e *fault.Evidence)
		want  []fault.Rule
	}{
		{"nothing wrong", func(*fault.Evidence) {}, nil},
		{"an old primary goes on after the takeover", func(e *fault.Evidence) {
			e.Effects = append(e.Effects, effect(161*ms, "a", 10), effect(162*ms, "a", 10))
		}, []fault.Rule{fault.Late, fault.Overlap}},
		{"an old primary's effect lands late, stamped before it was paused", func(e *fault.Evidence) {
			e.Effects = append(e.Effects, effect(121*ms, "a", 10))
		}, []fault.Rule{fault.Late}},
		{"the successor began before the old primary's last effect, landing after it", func(e *fault.Evidence) {
			e.Effects[3].At = 119 * ms
		}, []fault.Rule{fault.Overlap}},
		{"two instances share a term", func(e *fault.Evidence) {
			e.Effects[3].Term, e.Effects[4].Term = 10, 10
		}, []fault.Rule{fault.Terms, fault.History}},
		{"the term falls with the holder, in store and ledger", func(e *fault.Evidence) {
			e.Effects[3].Term, e.Effects[4].Term = 9, 9
			e.Events[3].Term = 9
		}, []fault.Rule{fault.Terms, fault.Late, fault.History}},
		{"the store gives a term twice", func(e *fault.Evidence) {
			e.Events[3].Term = 10
		}, []fault.Rule{fault.Terms, fault.History}},
		{"nobody is there for too long", func(e *fault.Evidence) {
			e.Effects[3].At, e.Effects[4].At, e.Until = 250*ms, 260*ms, 270*ms
		}, []fault.Rule{fault.Gap}},
		{"nobody is there in the end", func(e *fault.Evidence) {
			e.Until = 240 * ms
		}, []fault.Rule{fault.Gap}},
		{"effects under a term that nobody was given", func(e *fault.Evidence) {
			e.Events = e.Events[:3]
		}, []fault.Rule{fault.History}},
		{"effects of one under the term of another", func(e *fault.Evidence) {
			e.Events[3].To = "c"
		}, []fault.Rule{fault.History}},
		{"a release of what was never acquired", func(e *fault.Evidence) {
			e.Events = append(e.Events, released("c", 30))
		}, []fault.Rule{fault.History}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := sound()
			c.spoil(&e)
			var got []fault.Rule
			for _, v := range fault.Judge(e).Violations {
				got = append(got, v.Rule)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("rules broken (-want +got):\n%s\n%v", diff, fault.Judge(e).Violations)
			}
		})
	}
}

func TestFaultJudgeFindings(t *testing.T) {
	got := fault.Judge(sound()).Findings
	want := map[string]fault.Finding{"r": {Effects: 5, Terms: 2, Holders: 2, Acquired: 2, Gap: 30 * ms, GapAt: 20 * ms, Handover: 30 * ms}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// Subjects are judged apart.
func TestFaultJudgeSubjects(t *testing.T) {
	e := sound()
	other := effect(155*ms, "a", 5)
	other.Subject = "s"
	e.Effects = append(e.Effects, other)
	e.Events = append(e.Events, history.Event{Part: "role", Subject: "s", To: "a", Term: 5},
		history.Event{Part: "claim", Subject: "r", To: "x", Term: 1})
	e.MaxGap = 0
	if v := fault.Judge(e).Violations; len(v) > 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if got, err := ledger.Read(path, 0); err != nil || len(got) != 0 {
		t.Fatalf("no ledger: %v, %v", got, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want []ledger.Effect
	for i := range 20 {
		e := effect(time.Duration(i), "ünïcode/<1>", int64(i))
		want = append(want, e)
		if err := ledger.Append(f, e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ledger.Read(path, 5)
	if diff := cmp.Diff(want[5:], got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	long := effect(0, string(make([]byte, 300)), 1)
	if err := ledger.Append(f, long); err == nil {
		t.Error("an effect that fits into no record was taken")
	}
	if _, err := f.WriteString(string(make([]byte, 256))); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Read(path, 0); err == nil {
		t.Error("a broken record was passed over")
	}
}
