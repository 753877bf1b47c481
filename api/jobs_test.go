package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// jobRig is a server with a job that has run once, an hour after it was added.
type jobRig struct{ *queueRig }

func newJobRig(t *testing.T) jobRig {
	t.Helper()
	g := jobRig{newQueueRig(t)}
	g.decide(job.Define("backup", job.Definition{Schedule: "every 1h"}))
	g.run(1, job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"})
	return g
}

func (g jobRig) decide(d job.Decision) job.Job {
	g.t.Helper()
	j, err := g.store.Jobs().Change(g.t.Context(), "backup", d)
	if err != nil {
		g.t.Fatal(err)
	}
	g.s.jobsSeen.invalidate()
	return j
}

// run lets an hour pass and runs the job.
func (g jobRig) run(term int64, result job.Result) job.Run {
	g.t.Helper()
	g.clock.pass(time.Hour)
	r, on := g.decide(job.Claim(job.Holder{Term: term, Instance: lease.Instance{ID: "i", Name: "web-1"}})).Running()
	if !on {
		g.t.Fatal("nothing is due")
	}
	err := g.store.Jobs().PutOutput(g.t.Context(), job.RunKey{Job: "backup", Scheduled: r.Scheduled}, term, job.Output{Total: 100, Tail: []byte("ou\xfft")})
	if err != nil {
		g.t.Fatal(err)
	}
	g.clock.pass(time.Second)
	g.decide(job.Finish(r.Scheduled, term, result))
	return r
}

func ask[T any](g jobRig, method, path, body string) (v T) {
	g.t.Helper()
	a := g.do(method, path, body)
	a.want(200, "")
	a.into(&v)
	return v
}

func TestJobs(t *testing.T) {
	g := newJobRig(t)
	j := ask[apitype.Job](g, "GET", "/v1/jobs/backup", "")
	if j.State != "scheduled" || len(j.Next) != 5 || j.Next[1].Sub(j.Next[0]) != time.Hour || j.Last.State != "failed" || j.Ended["failed"] != 1 {
		t.Errorf("the job: %+v", j)
	}
	if a := j.Alarm; a == nil || a.Reason != "failed" || a.Sent || !a.Cleared.IsZero() || !a.NoSink {
		t.Errorf("its alarm: %+v", a)
	}
	list := ask[apitype.Jobs](g, "GET", "/v1/jobs?limit=1", "")
	if len(list.Jobs) != 1 || len(list.Jobs[0].Next) != 1 || list.Next != "backup" {
		t.Errorf("the list: %+v", list)
	}
	if more := ask[apitype.Jobs](g, "GET", "/v1/jobs?after=backup", ""); len(more.Jobs) != 0 || more.Next != "" {
		t.Errorf("the end of the list: %+v", more)
	}
	g.do("GET", "/v1/jobs/other", "").want(404, "no_job")
	newRig(t).do("GET", "/v1/jobs", "").want(404, "store_without_jobs")
}

func TestRuns(t *testing.T) {
	g := newJobRig(t)
	second := g.run(2, job.Result{State: job.Succeeded})
	runs := ask[apitype.Runs](g, "GET", "/v1/jobs/backup/runs?limit=1", "")
	want := apitype.Run{
		Scheduled: second.Scheduled, State: "succeeded", Attempt: 1, Term: 2, Instance: "web-1", Started: second.Started,
		Ended: second.Started.Add(time.Second), DurationMS: 1000, LateMS: second.Started.Sub(second.Scheduled).Milliseconds(),
	}
	if diff := cmp.Diff([]apitype.Run{want}, runs.Runs); diff != "" {
		t.Errorf("the latest run (-want +got):\n%s", diff)
	}
	if first := ask[apitype.Runs](g, "GET", "/v1/jobs/backup/runs?before="+runs.Next, ""); len(first.Runs) != 1 || first.Runs[0].ExitCode != 3 {
		t.Errorf("the page after it: %+v", first)
	}
	if bad := ask[apitype.Runs](g, "GET", "/v1/jobs/backup/runs?state=failed", ""); len(bad.Runs) != 1 {
		t.Errorf("those that failed: %+v", bad)
	}
	for _, run := range []string{"latest", runs.Next} {
		if o := ask[apitype.RunOutput](g, "GET", "/v1/jobs/backup/runs/"+run, ""); o.TotalBytes != 100 || string(o.Output) != "ou\xfft" || o.Term != 2 {
			t.Errorf("%s: %+v", run, o)
		}
	}
	g.do("GET", "/v1/jobs/backup/runs?state=fine", "").want(400, "invalid")
	g.do("GET", "/v1/jobs/backup/runs/yesterday", "").want(400, "invalid")
	g.do("GET", "/v1/jobs/backup/runs/2020-01-01T00:00:00Z", "").want(404, "no_job")
	g.do("GET", "/v1/jobs/other/runs", "").want(404, "no_job")
}

func TestActsOnJobs(t *testing.T) {
	g := newJobRig(t)
	if j := ask[apitype.Job](g, "POST", "/v1/jobs/backup/trigger", `{"by":"alice"}`); j.State != "queued" || !strings.HasPrefix(j.Open[0].Trigger, "alice") {
		t.Errorf("triggered: %+v", j)
	}
	if j := ask[apitype.Job](g, "POST", "/v1/jobs/backup/pause", ""); j.State != "paused" || j.PausedBy == "" {
		t.Errorf("paused: %+v", j)
	}
	if j := ask[apitype.Job](g, "POST", "/v1/jobs/backup/resume", ""); j.State != "queued" {
		t.Errorf("resumed: %+v", j)
	}
	g.decide(job.Claim(job.Holder{Term: 5}))
	if j := ask[apitype.Job](g, "GET", "/v1/jobs/backup", ""); j.State != "running" {
		t.Errorf("while it runs: %+v", j)
	}
	g.do("DELETE", "/v1/jobs/backup", "").want(409, "job_busy")
	g.decide(job.Finish(g.decide(job.Claim(job.Holder{Term: 5})).Open[0].Scheduled, 5, job.Result{State: job.Succeeded}))
	g.do("DELETE", "/v1/jobs/backup?by=bob", "").want(204, "")
	g.do("POST", "/v1/jobs/backup/trigger", "").want(404, "no_job")
	g.do("POST", "/v1/jobs/backup/pause", `{"by":"a token"}`).want(400, "invalid")
}

// A job needs attention after a bad run, until a good one, and while nobody runs it.
func TestOverviewOfJobs(t *testing.T) {
	g := newJobRig(t)
	needs := func() []apitype.Need {
		g.s.jobsSeen.invalidate()
		_, needs := ofPart(g.overview(), "job")
		return needs
	}
	if n := needs(); len(n) != 1 || n[0].Subject != "backup" || n[0].Severity != attention.Warn || !strings.Contains(n[0].What, "failed: exit code 3") {
		t.Errorf("after a failed run: %+v", n)
	}
	g.decide(job.Trigger("alice"))
	g.decide(job.Finish(g.decide(job.Claim(job.Holder{Term: 2})).Open[0].Scheduled, 2, job.Result{State: job.Cancelled}))
	if n := needs(); len(n) != 1 || !strings.Contains(n[0].What, "failed: exit code 3") {
		t.Errorf("after one that was stopped: %+v", n)
	}
	g.run(3, job.Result{State: job.Succeeded})
	if n := needs(); len(n) != 0 {
		t.Errorf("after a good run: %+v", n)
	}
	g.clock.pass(time.Hour + 2*time.Minute)
	if n := needs(); len(n) != 1 || n[0].Severity != attention.Bad || !strings.Contains(n[0].What, "overdue") {
		t.Errorf("when no instance is there: %+v", n)
	}
}

// TestFailsAfterOverdue: a job whose alarm began while no instance was there has failed, if its next run has.
func TestFailsAfterOverdue(t *testing.T) {
	g := newJobRig(t)
	var claimed job.Alarm
	send := func(reason job.State) {
		t.Helper()
		if g.decide(job.ClaimAlarm(&claimed)); claimed.Reason != reason {
			t.Fatalf("the alarm: %+v, want %s", claimed, reason)
		}
		g.decide(job.MarkSent(claimed))
	}
	send(job.Failed)
	g.run(2, job.Result{State: job.Succeeded})
	send(job.Failed) // its end
	g.clock.pass(time.Hour + 2*time.Minute)
	send(job.Overdue)
	since := claimed.Scheduled
	g.decide(job.Finish(g.decide(job.Claim(job.Holder{Term: 3})).Open[0].Scheduled, 3, job.Result{State: job.Failed, ExitCode: 4, Why: "no disk"}))
	g.decide(job.Trigger("alice"))
	j := g.decide(job.Finish(g.decide(job.Claim(job.Holder{Term: 4})).Open[0].Scheduled, 4, job.Result{State: job.Cancelled}))
	if a := j.Alarm; !hasFailed(j) || a.ID != claimed.ID || !a.Sent || a.ExitCode != 4 || !a.Scheduled.Equal(since) {
		t.Errorf("%+v", a)
	}
	if _, n := ofPart(g.overview(), "job"); len(n) != 1 || !strings.Contains(n[0].What, "failed: no disk") {
		t.Errorf("%+v", n)
	}
}

// The overview has no more jobs than that, and says that there are more.
func TestOverviewOfManyJobs(t *testing.T) {
	g := newJobRig(t)
	for n := range maxJobLabels {
		if h, _ := ofPart(g.overview(), "job"); h.First {
			t.Fatalf("with %d jobs there are more: %+v", n+1, h)
		}
		name := fmt.Sprintf("job-%03d", n)
		if _, err := g.store.Jobs().Change(t.Context(), name, job.Define(name, job.Definition{Schedule: "@yearly"})); err != nil {
			t.Fatal(err)
		}
		g.s.jobsSeen.invalidate()
	}
	if h, _ := ofPart(g.overview(), "job"); !h.First || h.Total != maxJobLabels {
		t.Errorf("of one more than it has: %+v", h)
	}
}

// TestTroubleAfterManyJobs: a job that fails is seen, whatever comes before it.
func TestTroubleAfterManyJobs(t *testing.T) {
	g := newJobRig(t)
	g.run(2, job.Result{State: job.Succeeded})
	change := func(name string, d job.Decision) job.Job {
		t.Helper()
		j, err := g.store.Jobs().Change(t.Context(), name, d)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	for n := range 1000 { // more than a page
		name := fmt.Sprintf("job-%03d", n)
		change(name, job.Define(name, job.Definition{Schedule: "@yearly"}))
	}
	change("zz", job.Define("zz", job.Definition{Schedule: "@yearly"}))
	change("zz", job.Trigger("alice"))
	r, _ := change("zz", job.Claim(job.Holder{Term: 1})).Running()
	change("zz", job.Finish(r.Scheduled, 1, job.Result{State: job.Failed, Why: "no disk"}))
	g.s.jobsSeen.invalidate()
	if _, needs := ofPart(g.overview(), "job"); len(needs) != 1 || needs[0].Subject != "zz" {
		t.Errorf("%+v", needs)
	}
	wantMetrics(t, start(t, Config{Store: g.store}), `understudy_job_last_run_failed{name="zz"} 1`, `understudy_job_last_run_failed{name="backup"} 0`)
}

func TestMetricsOfJobs(t *testing.T) {
	g := newJobRig(t)
	wantMetrics(t, start(t, Config{Store: g.store}),
		`understudy_job_last_run_failed{name="backup"} 1`, `understudy_job_overdue{name="backup"} 0`, `understudy_job_running{name="backup"} 0`,
		`understudy_job_runs_total{name="backup",state="failed"} 1`, `understudy_job_runs_total{name="backup",state="lost"} 0`)
}

// wantMetrics waits until /metrics has the lines.
func wantMetrics(t *testing.T, s *Server, lines ...string) {
	t.Helper()
	for _, want := range lines {
		text := send(t, s, request(t.Context(), "GET", "/metrics", "")).Body
		for deadline := time.Now().Add(enough); !strings.Contains(text, want+"\n"); text = send(t, s, request(t.Context(), "GET", "/metrics", "")).Body {
			if time.Now().After(deadline) {
				t.Fatalf("/metrics has no %s", want)
			}
		}
	}
}

// TestAlarmOfJob: the alarm is shown, and of the webhook only where it is.
func TestAlarmOfJob(t *testing.T) {
	g := newJobRig(t)
	g.decide(job.Define("backup", job.Definition{Schedule: "every 1h", AlarmURL: "https://ops.example/very/secret"}))
	var claimed job.Alarm
	g.decide(job.ClaimAlarm(&claimed))
	a := g.do("GET", "/v1/jobs/backup", "")
	var got apitype.Job
	a.into(&got)
	if got.Alarm == nil || got.Alarm.Reason != "failed" || got.Alarm.Sent || got.Alarm.Tries != 1 || got.Alarm.NoSink || got.AlarmHost != "ops.example" || strings.Contains(a.Body, "secret") {
		t.Errorf("%s", a.Body)
	}
	g.decide(job.MarkSent(claimed))
	g.do("DELETE", "/v1/jobs/backup?by=ops", "").want(204, "")
	if got := ask[apitype.Job](g, "GET", "/v1/jobs/backup", ""); got.ForgottenBy == "" || got.Alarm.Cleared.IsZero() || len(got.Next) != 0 {
		t.Errorf("forgotten while its alarm stands: %+v", got)
	}
	g.do("DELETE", "/v1/jobs/backup", "").want(204, "")
	g.do("GET", "/v1/jobs/backup", "").want(404, "no_job")
}

// TestAlarmWithoutSink: an alarm that nobody gets says so, until the store's monitor has a sink.
func TestAlarmWithoutSink(t *testing.T) {
	g := newJobRig(t)
	if j := ask[apitype.Job](g, "GET", "/v1/jobs/backup", ""); !j.Alarm.NoSink {
		t.Errorf("without a sink: %+v", j.Alarm)
	}
	session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("one", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	_, err := g.store.StartSession(t.Context(), session)
	if err == nil {
		err = g.store.Monitor().RegisterMember(t.Context(), monitor.Member{Session: session.ID, Sinks: []string{"mail"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	g.s.monitor.snapshot.invalidate()
	if list := ask[apitype.Jobs](g, "GET", "/v1/jobs", ""); list.Jobs[0].Alarm.NoSink {
		t.Errorf("with a sink: %+v", list.Jobs[0].Alarm)
	}
}

// TestJobsByName: a part of the name finds jobs, page by page.
func TestJobsByName(t *testing.T) {
	g := newJobRig(t)
	for _, name := range []string{"Nightly-a", "nightly-b", "other", "the-nightly"} {
		g.do("PUT", "/v1/jobs/"+name, `{"schedule":"@daily"}`).want(200, "")
	}
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		page := ask[apitype.Jobs](g, "GET", "/v1/jobs?limit=2&contains=NIGHTLY&after="+after, "")
		for _, j := range page.Jobs {
			got = append(got, j.Name)
		}
		after = page.Next
	}
	if want := []string{"Nightly-a", "nightly-b", "the-nightly"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
