package monitortest

import (
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/monitor"
)

// events are the reasons in the history of a subject.
func (b *bench) events(subject string) (reasons []string) {
	b.Helper()
	if b.rig.History == nil {
		b.Skip("this rig has no history")
	}
	events, err := b.rig.History.Read(b.ctx, history.Query{Part: "monitor", Subject: subject})
	if err != nil {
		b.Fatalf("history: %v", err)
	}
	for _, e := range events {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// wantHistory checks all that the history says of a subject, but for when, and under which number.
func (b *bench) wantHistory(subject string, want ...history.Event) {
	b.Helper()
	if b.rig.History == nil {
		return
	}
	got, err := b.rig.History.Read(b.ctx, history.Query{Part: "monitor", Subject: subject})
	if err != nil || len(got) != len(want) {
		b.Fatalf("history of %s: %+v, %v; want %+v", subject, got, err, want)
	}
	for i, w := range want {
		w.ID, w.At, w.Part, w.Subject = got[i].ID, got[i].At, "monitor", subject
		if near(got[i].Duration, w.Duration) {
			w.Duration = got[i].Duration
		}
		if got[i] != w {
			b.Errorf("history of %s: %+v after %v, want %+v after %v", subject, got[i], got[i].Duration, w, w.Duration)
		}
	}
}

// testHistory: an alarm's start and its end say for how long the outage had lasted then.
func testHistory(b *bench) {
	ids := b.ready("a", "b", "c")
	b.onset(ids[0])
	c := b.change(b.candidate(ids[1]), monitor.Onset)
	c.Reason, c.At = monitor.Failed, c.At.Add(-time.Hour)
	b.apply(c)
	b.step(2 * time.Hour)
	b.beat(ids...)
	b.apply(b.change(b.candidate(ids[0]), monitor.Abated))
	lost := b.change(monitor.Candidate{ID: ids[2], Source: "c"}, monitor.Onset)
	lost.At = b.now()
	b.refused(lost, "a change of what it is not")
	b.apply(b.change(b.candidate(ids[1]), monitor.Retire))
	b.wantHistory("e/a", history.Event{Reason: "silent"}, history.Event{Reason: "ABATED", Duration: 2 * time.Hour})
	b.wantHistory("e/b", history.Event{Reason: "failed", Duration: time.Hour}, history.Event{Reason: "retire", Duration: 3 * time.Hour})
	b.wantHistory("e/c")
}
