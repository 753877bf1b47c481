package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/job"
)

func testList(b *bench) {
	var want []string
	for _, name := range []string{"b", "a", "B", "a b", "ä", "job_1", "job2"} {
		b.define(name)
		want = append(want, name)
	}
	slices.Sort(want)
	var got []string
	for after := ""; len(got) <= len(want); {
		page, _, err := b.Other.List(b.ctx, job.Query{After: after, Limit: 2})
		if err != nil {
			b.Fatal(err)
		}
		for _, j := range page {
			got = append(got, j.Name)
			after = j.Name
		}
		if len(page) < 2 {
			break
		}
	}
	b.same("the names", want, got)
}

func testDue(b *bench) {
	b.define("hourly")
	b.change("daily", job.Define("daily", job.Definition{Schedule: "every 24h"}))
	b.define("paused until it is triggered")
	for _, c := range []struct {
		within time.Duration
		want   []string
	}{
		{time.Minute, nil}, {61 * time.Minute, []string{"hourly", "paused until it is triggered"}},
		{25 * time.Hour, []string{"daily", "hourly", "paused until it is triggered"}},
	} {
		b.same(fmt.Sprint("due within ", c.within), c.want, b.due(c.within))
	}
	b.change("daily", job.Trigger("x"))
	b.same("after a trigger", []string{"daily"}, b.due(time.Second))
	j := b.change("daily", job.Claim(holder(1)))
	b.same("while a run is on", []string{"daily"}, b.due(time.Second))
	b.change("daily", job.Finish(j.Open[0].Scheduled, 1, job.Result{State: job.Failed}))
	b.same("while its alarm is to be sent", []string{"daily"}, b.due(time.Second))
	var a job.Alarm
	b.change("daily", job.ClaimAlarm(&a))
	b.same("while an instance sends it", []string(nil), b.due(time.Second))
	b.Advance(time.Minute)
	b.same("when that instance has died", []string{"daily"}, b.due(time.Second))
	b.change("daily", job.MarkSent(a))
	b.same("once it was sent", []string(nil), b.due(time.Second))
	page, _, err := b.Jobs.List(b.ctx, job.Query{After: "daily", DueWithin: 25 * time.Hour, Limit: 1})
	if err != nil || len(page) != 1 || page[0].Name != "hourly" {
		b.Errorf("a page of what is due: %+v, %v", page, err)
	}
}

func (b *bench) due(within time.Duration) (names []string) {
	b.Helper()
	all, _, err := b.Other.List(b.ctx, job.Query{DueWithin: within, Limit: 1000})
	if err != nil {
		b.Fatal(err)
	}
	for _, j := range all {
		names = append(names, j.Name)
	}
	return names
}

func testRuns(b *bench) {
	b.define("a")
	b.define("ab")
	var keys []time.Time
	for term := range int64(5) {
		b.Advance(time.Hour)
		r, on := b.change("a", job.Claim(holder(term+1))).Running()
		if !on {
			b.Fatalf("run %d was not claimed", term)
		}
		keys = append(keys, r.Scheduled)
		state := []job.State{job.Succeeded, job.Failed}[term%2]
		b.change("a", job.Finish(r.Scheduled, r.Term, job.Result{State: state, Why: `"state":"succeeded"`}))
	}
	slices.Reverse(keys)
	for _, c := range []struct {
		q    job.RunQuery
		want []time.Time
	}{
		{job.RunQuery{Job: "a"}, keys},
		{job.RunQuery{Job: "a", Limit: 2}, keys[:2]},
		{job.RunQuery{Job: "a", Limit: 2, Before: keys[1]}, keys[2:4]},
		{job.RunQuery{Job: "a", State: job.Failed}, []time.Time{keys[1], keys[3]}},
		{job.RunQuery{Job: "a", State: job.Lost}, nil},
		{job.RunQuery{Job: "ab"}, nil},
		{job.RunQuery{Job: "none"}, nil},
	} {
		var got []time.Time
		for _, r := range b.runs(c.q) {
			got = append(got, r.Scheduled)
		}
		b.same(fmt.Sprintf("%+v", c.q), c.want, got)
	}
}

func testPrune(b *bench) {
	const more = 5
	j := b.define("a")
	first := j.Created.Truncate(time.Second).UTC()
	c := job.Change{}
	for n := range job.KeepRuns + more {
		c.Runs = append(c.Runs, job.Run{Scheduled: first.Add(time.Duration(n) * time.Second), State: job.Succeeded, Term: 1})
	}
	put := func(j job.Job, _ time.Time) (job.Change, error) {
		out := c
		out.Job = j
		return out, nil
	}
	b.change("a", put)
	c.Runs = nil
	old, recent := job.RunKey{Job: "a", Scheduled: first.Add(2 * more * time.Second)}, job.RunKey{Job: "a", Scheduled: first.Add((job.KeepRuns) * time.Second)}
	for _, key := range []job.RunKey{old, recent} {
		if err := b.Jobs.PutOutput(b.ctx, key, 1, job.Output{Total: 2, Tail: []byte("hi")}); err != nil {
			b.Fatal(err)
		}
	}
	for j.Version == 1 || !job.PrunesAt(j.Version) {
		j = b.change("a", put)
	}
	if got := b.runs(job.RunQuery{Job: "a", Before: first.Add(more * time.Second)}); len(got) != 0 {
		b.Errorf("%d runs are left that are too old", len(got))
	}
	if got := b.runs(job.RunQuery{Job: "a", Before: first.Add((more + 1) * time.Second)}); len(got) != 1 {
		b.Errorf("the oldest run that is to be kept is gone")
	}
	for key, want := range map[job.RunKey]string{old: "", recent: "hi"} {
		if o, err := b.Jobs.Output(b.ctx, key); err != nil || string(o.Tail) != want {
			b.Errorf("%s has the output %q, want %q (%v)", key, o.Tail, want, err)
		}
	}
}

func testOutput(b *bench) {
	b.define("a")
	b.Advance(time.Hour)
	r, _ := b.change("a", job.Claim(holder(1))).Running()
	key := job.RunKey{Job: "a", Scheduled: r.Scheduled}
	if o, err := b.Jobs.Output(b.ctx, key); err != nil || o.Total != 0 || len(o.Tail) != 0 {
		b.Errorf("at first: %+v, %v", o, err)
	}
	all := bytes.Repeat([]byte("\x00\xff\r\n'\"\\ 42 ü"), job.MaxTail/16)
	for _, want := range []job.Output{{Total: 1 << 40, Tail: all}, {Total: 3, Tail: []byte("abc")}, {Total: 4, Tail: []byte{}}} {
		if err := b.Jobs.PutOutput(b.ctx, key, 1, want); err != nil {
			b.Fatal(err)
		}
		got, err := b.Other.Output(b.ctx, key)
		if err != nil {
			b.Fatal(err)
		}
		b.same("the output", want, got)
	}
	other := job.RunKey{Job: "a", Scheduled: r.Scheduled.Add(time.Second)}
	for what, err := range map[string]error{
		"another term": b.Jobs.PutOutput(b.ctx, key, 2, job.Output{Total: 1, Tail: []byte("x")}),
		"another run":  b.Jobs.PutOutput(b.ctx, other, 1, job.Output{}),
	} {
		if !isNotFound(err) {
			b.Errorf("output of %s: %v, want ErrNotFound", what, err)
		}
	}
	if _, err := b.Jobs.Output(b.ctx, other); !isNotFound(err) {
		b.Errorf("reading that of another run: %v, want ErrNotFound", err)
	}
	if o, err := b.Jobs.Output(b.ctx, key); err != nil || o.Total != 4 {
		b.Errorf("afterwards: %+v, %v", o, err)
	}
	b.change("a", job.Finish(r.Scheduled, 1, job.Result{State: job.Succeeded}))
	if o, err := b.Jobs.Output(b.ctx, key); err != nil || o.Total != 4 {
		b.Errorf("after the end of the run: %+v, %v", o, err)
	}
}

func testForget(b *bench) {
	b.define("a")
	b.define("b")
	b.Advance(time.Hour)
	for _, name := range []string{"a", "b"} {
		r, _ := b.change(name, job.Claim(holder(1))).Running()
		b.change(name, job.Finish(r.Scheduled, 1, job.Result{State: job.Succeeded}))
	}
	if j := b.change("a", job.Forget("alice")); j.Version != 0 {
		b.Errorf("forgotten: %+v", j)
	}
	if _, _, err := b.Other.Get(b.ctx, "a"); !isNotFound(err) {
		b.Errorf("Get: %v, want ErrNotFound", err)
	}
	b.same("what is due", []string{"b"}, b.due(25*time.Hour))
	if n := len(b.runs(job.RunQuery{Job: "a"})); n != 0 {
		b.Errorf("%d runs are left", n)
	}
	if n := len(b.runs(job.RunQuery{Job: "b"})); n != 1 {
		b.Errorf("another job has %d runs, want 1", n)
	}
	if j := b.define("a"); j.Version != 1 || j.Ended[job.Succeeded] != 0 {
		b.Errorf("added again: %+v", j)
	}
	if e := b.events("a"); len(e) != 3 || e[1].Reason != "forgotten by alice" {
		b.Errorf("events: %+v", e)
	}
}

func testHostile(b *bench) {
	for _, name := range []string{"'; DROP TABLE x; --", `"\{}[]%_$1 ?1`, "naïve 名前 🙂", "0", "null", "due", "a:due"} {
		b.define(name)
		b.change(name, job.Trigger(name))
		j := b.change(name, job.Claim(holder(1)))
		kept, _ := b.get(name)
		b.same(name, j, kept)
		if runs := b.runs(job.RunQuery{Job: name}); len(runs) != 1 || runs[0].Trigger != name {
			b.Errorf("%q: runs %+v", name, runs)
		}
	}
}

func testContext(b *bench) {
	over, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Jobs.Change(over, "a", job.Define("a", hourly)); err == nil {
		b.Error("a change was made although its context was over")
	}
	if _, _, err := b.Jobs.Get(b.ctx, "a"); !isNotFound(err) {
		b.Errorf("afterwards: %v, want ErrNotFound", err)
	}
}
