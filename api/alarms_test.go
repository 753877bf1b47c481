package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
)

// badJob lets a job fail, with an alarm, and returns the alarm's ID.
func (g *monitorRig) badJob(name string) string {
	g.t.Helper()
	jobs := g.store.Jobs()
	change := func(d job.Decision) job.Job {
		g.t.Helper()
		j, err := jobs.Change(g.t.Context(), name, d)
		if err != nil {
			g.t.Fatal(err)
		}
		return j
	}
	change(job.Define(name, job.Definition{Schedule: "every 1h"}))
	change(job.Trigger("alice"))
	r, _ := change(job.Claim(job.Holder{Term: 1, Instance: lease.Instance{ID: "i", Name: "web-1"}})).Running()
	return change(job.Finish(r.Scheduled, 1, job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"})).Alarm.ID
}

// TestAllAlarms: the alarms of sources and of jobs are one list, the newest first, in pages, of one shape.
func TestAllAlarms(t *testing.T) {
	g := newMonitorRig(t, every("web"), every("job"))
	var want []string
	for i := range 3 {
		g.down("web", fmt.Sprint("w", i))
		want = append(want, fmt.Sprint("web w", i))
		g.clock.pass(time.Minute)
		g.badJob(fmt.Sprint("backup-", i))
		want = append(want, fmt.Sprint("job backup-", i))
		g.clock.pass(time.Minute)
	}
	slices.Reverse(want)
	var got, ids []string
	for query := "limit=2"; ; {
		var page apitype.Alarms
		a := g.do("GET", "/v1/alarms?"+query, "")
		a.want(200, "")
		a.into(&page)
		for _, al := range page.Alarms {
			got, ids = append(got, al.Check+" "+al.Source), append(ids, al.ID)
		}
		if page.Next == "" || len(got) > len(want) {
			break
		}
		query = "limit=2&after=" + url.QueryEscape(page.Next)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("alarms:\n%q, want\n%q", got, want)
	}

	for query, n := range map[string]int{"open=true": 6, "standing=true": 6, "check=job": 3, "check=web": 3, "source=backup-1": 1, "check=web&source=backup-1": 0, "check=other": 0} {
		var page apitype.Alarms
		g.do("GET", "/v1/alarms?"+query, "").into(&page)
		if len(page.Alarms) != n {
			t.Errorf("%s: %d alarms, want %d: %+v", query, len(page.Alarms), n, page.Alarms)
		}
	}
	var one apitype.Alarm
	g.do("GET", "/v1/alarms/"+ids[0], "").into(&one)
	if one.Source != "backup-2" || one.Reason != "failed" || one.Why != "exit code 3" || !one.Ended.IsZero() || one.Labels["exit_code"] != "3" || one.Labels["instance"] != "web-1/i" {
		t.Errorf("one: %+v", one)
	}
	if p := g.do("POST", "/v1/alarms/"+ids[0]+"/acknowledge", `{"by":"alice"}`).want(400, "invalid"); !strings.Contains(p.Detail, `job "backup-2"`) {
		t.Errorf("acknowledged: %s", p.Detail)
	}
	g.do("POST", "/v1/alarms/"+ids[1]+"/acknowledge", `{"by":"alice"}`).want(200, "")
	g.do("POST", "/v1/alarms/nothing/acknowledge", `{"by":"alice"}`).want(404, "no_alarm")
	g.do("GET", "/v1/alarms/nothing", "").want(404, "no_alarm")
}

// TestAlarmsWithoutMonitor: a store that has jobs and no monitor, as Redis, lists the alarms of jobs until their sinks know of the end.
func TestAlarmsWithoutMonitor(t *testing.T) {
	g := newJobRig(t)
	g.s.monitor.table = nil
	var claimed job.Alarm
	id := g.decide(job.ClaimAlarm(&claimed)).Alarm.ID
	list := func() []apitype.Alarm { return ask[apitype.Alarms](g, "GET", "/v1/alarms", "").Alarms }
	if all := list(); len(all) != 1 || all[0].ID != id || !all[0].Ended.IsZero() {
		t.Fatalf("it stands: %+v", all)
	}
	g.decide(job.MarkSent(claimed))
	g.run(2, job.Result{State: job.Succeeded})
	if all := list(); len(all) != 1 || all[0].Ended.IsZero() || all[0].End != "ABATED" {
		t.Errorf("after a good run: %+v", all)
	}
	g.run(3, job.Result{State: job.TimedOut, Why: "it took longer than its deadline"})
	if all := list(); len(all) != 1 || !all[0].Ended.IsZero() || all[0].Reason != "timed_out" {
		t.Errorf("after another bad one: %+v", all)
	}
	g.run(4, job.Result{State: job.Succeeded})
	g.decide(job.ClaimAlarm(&claimed))
	g.decide(job.MarkSent(claimed))
	if a := g.do("GET", "/v1/alarms", ""); strings.TrimSpace(a.Body) != `{"alarms":[]}` {
		t.Errorf("when the sinks know: %s", a.Body)
	}
	g.do("POST", "/v1/alarms/nothing/acknowledge", "").want(404, "store_without_sources")
}
