package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func (g jobRig) session(name string) string {
	g.t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name, ""), Timing: lease.Timing{Interval: time.Minute, Timeout: 24 * time.Hour}}
	if _, err := g.store.StartSession(g.t.Context(), n); err != nil {
		g.t.Fatal(err)
	}
	return n.ID
}

func (g jobRig) next(session string) (run apitype.Run) {
	g.t.Helper()
	return ask[apitype.Run](g, "POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, session))
}

func (g jobRig) end(r apitype.Run, session, state, more string) answer {
	g.t.Helper()
	path := "/v1/jobs/backup/runs/" + url.PathEscape(r.Scheduled.Format(time.RFC3339Nano)) + "/end"
	return g.do("POST", path, fmt.Sprintf(`{"session":%q,"term":%d,"state":%q%s}`, session, r.Term, state, more))
}

// TestRunsOverHTTP: a program that has nothing but HTTP runs a job. Each time has one run, and what came due while it was on is decided.
func TestRunsOverHTTP(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	next := func(session string) answer {
		return g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, session))
	}
	next(php).want(204, "")
	g.clock.pass(time.Hour)
	run := g.next(php)
	if run.State != "running" || run.Instance != "php" || run.Term == 0 {
		t.Fatalf("%+v", run)
	}
	if again := g.next(php); again.Term != run.Term || !again.Scheduled.Equal(run.Scheduled) {
		t.Errorf("asked again: %+v, and it was %+v", again, run)
	}
	next(perl).want(204, "")
	next("nobody").want(410, "lapsed")

	g.clock.pass(90 * time.Minute) // a time that comes while it runs is skipped
	if on := ask[apitype.Job](g, "GET", "/v1/jobs/backup", ""); on.State != "running" {
		t.Errorf("while its run outlasts the next time it is %q", on.State)
	}
	g.end(run, php, "fine", "").want(400, "invalid")
	g.end(run, php, "succeeded", `,"output":"ZG9uZQ=="`).want(200, "")
	g.end(run, php, "succeeded", "").want(200, "") // the answer was lost
	g.end(run, php, "failed", "").want(409, "run_over")
	j := ask[apitype.Job](g, "GET", "/v1/jobs/backup", "")
	if j.Ended["succeeded"] != 1 || j.Ended["skipped"] != 1 || len(j.Open) != 0 {
		t.Errorf("%+v", j)
	}
	out := ask[apitype.RunOutput](g, "GET", "/v1/jobs/backup/runs/"+url.PathEscape(run.Scheduled.Format(time.RFC3339Nano)), "")
	if string(out.Output) != "done" {
		t.Errorf("output %q", out.Output)
	}

	// One that dies while it runs leaves a run that is lost, and a late result changes nothing.
	g.clock.pass(time.Hour)
	run = g.next(php)
	if err := g.store.EndSession(t.Context(), php, "killed"); err != nil {
		t.Fatal(err)
	}
	g.clock.pass(time.Hour)
	second := g.next(perl)
	if second.Term <= run.Term {
		t.Errorf("term %d after %d", second.Term, run.Term)
	}
	g.end(run, php, "succeeded", "").want(409, "run_over")
	g.end(second, perl, "failed", `,"exit_code":3,"why":"no disk"`).want(200, "")
	j = ask[apitype.Job](g, "GET", "/v1/jobs/backup", "")
	if j.Ended["lost"] != 1 || j.Last.State != string(job.Failed) || j.Last.ExitCode != 3 || j.Last.Why != "no disk" {
		t.Errorf("%+v, last %+v", j, j.Last)
	}
}

// TestNextRunVanished: a caller that has gone when its turn comes gets no run, and does not keep others from it.
func TestNextRunVanished(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	g.clock.pass(time.Hour)
	ctx, vanish := context.WithCancel(t.Context())
	g.queues.acquired = vanish
	send(t, g.s, request(ctx, "POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, php)))
	g.queues.acquired = nil
	if ctx.Err() == nil {
		t.Fatal("it acquired no lease")
	}
	if run := g.next(perl); run.Instance != "perl" || run.Attempt != 1 {
		t.Errorf("another got %+v", run)
	}
}

// silentJobs loses the answer of the next change: it was applied or, if late is set, is applied by late.
type silentJobs struct {
	job.Store
	lose bool
	late func() error
}

func (s *silentJobs) Change(ctx context.Context, name string, decide job.Decision) (job.Job, error) {
	if !s.lose {
		return s.Store.Change(ctx, name, decide)
	}
	s.lose = false
	apply := func() error {
		_, err := s.Store.Change(context.WithoutCancel(ctx), name, decide)
		return err
	}
	if s.late != nil {
		s.late = apply
		return job.Job{}, lease.ErrUnknown
	}
	return job.Job{}, errors.Join(apply(), lease.ErrUnknown)
}

// TestNextRunUnknown: a run whose claim had no answer is that of whoever asks again if the claim was applied. Otherwise it is anybody's, and a
// claim that comes late is refused.
func TestNextRunUnknown(t *testing.T) {
	for name, late := range map[string]func() error{"applied": nil, "late": func() error { return errors.New("not claimed") }} {
		t.Run(name, func(t *testing.T) {
			g := newJobRig(t)
			php, perl := g.session("php"), g.session("perl")
			g.clock.pass(time.Hour)
			jobs := &silentJobs{Store: g.s.jobs, lose: true, late: late}
			g.s.jobs = jobs
			g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, php)).want(504, "unknown_outcome")
			who, session := "php", php
			if late != nil {
				if err := jobs.late(); !errors.Is(err, job.ErrStale) {
					t.Errorf("a claim that comes after its lease was released: %v", err)
				}
				who, session = "perl", perl
			} else {
				g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, perl)).want(204, "")
			}
			if run := g.next(session); run.Instance != who || run.Attempt != 1 {
				t.Errorf("%s got %+v", who, run)
			}
			if j := ask[apitype.Job](g, "GET", "/v1/jobs/backup", ""); j.Ended["lost"] != 0 {
				t.Errorf("%+v", j)
			}
		})
	}
}

// goneCaller is a store of leases in which a caller goes, and asks again, while its first request acquires.
type goneCaller struct {
	store.Store
	gone func()
}

func (s *goneCaller) Acquire(ctx context.Context, e lease.Expectation) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, e)
	if gone := s.gone; err == nil && gone != nil {
		s.gone = nil
		gone()
	}
	return l, err
}

// TestNextRunOfACallerWhoHasGone: whoever asks again gets the run, and keeps it when the first request ends.
func TestNextRunOfACallerWhoHasGone(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	g.clock.pass(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var run apitype.Run
	st := &goneCaller{Store: g.s.cfg.Store, gone: func() {
		cancel()
		run = g.next(php)
	}}
	g.s.cfg.Store, g.s.takeovers.store = st, st
	send(t, g.s, request(ctx, "POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, php)))
	g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, perl)).want(204, "")
	if again := g.next(php); run.Term == 0 || again.Term != run.Term || !again.Scheduled.Equal(run.Scheduled) {
		t.Errorf("asked again: %+v, and it was %+v", again, run)
	}
}

// TestNextRunAskedAgainUnknown: whoever has a run and asks again keeps it, also if the store does not answer.
func TestNextRunAskedAgainUnknown(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	g.clock.pass(time.Hour)
	run := g.next(php)
	g.decide(job.Trigger("alice")) // so that a run is due
	g.s.jobs = &silentJobs{Store: g.s.jobs, lose: true}
	g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, php)).want(504, "unknown_outcome")
	g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, perl)).want(204, "")
	if again := g.next(php); again.Term != run.Term || !again.Scheduled.Equal(run.Scheduled) {
		t.Errorf("asked again: %+v, and it was %+v", again, run)
	}
}

func TestDefineJobOverHTTP(t *testing.T) {
	g := newJobRig(t)
	j := ask[apitype.Job](g, "PUT", "/v1/jobs/mail", `{"schedule":"TZ=Europe/Berlin 30 2 * * *","retries":2}`)
	if j.Name != "mail" || j.Retries != 2 || len(j.Next) != 5 {
		t.Errorf("%+v", j)
	}
	for _, wrong := range []string{`{"schedule":"soon"}`, `{"schedule":"@daily","overlap":"replace"}`, `{}`} {
		g.do("PUT", "/v1/jobs/mail", wrong).want(400, "invalid")
	}
}

// TestNextRunWaits: a caller that waits gets the run when it comes due, and the next one when the holder of the first ends it.
func TestNextRunWaits(t *testing.T) {
	g := newJobRig(t)
	one, two := g.session("one"), g.session("two")
	ask := func(session string) chan answer {
		got := make(chan answer, 1)
		go func() {
			got <- g.do("POST", "/v1/jobs/backup/runs/next?wait=1m", fmt.Sprintf(`{"session":%q}`, session))
		}()
		return got
	}
	first := ask(one)
	g.decide(job.Trigger("alice"))
	a := <-first
	a.want(200, "")
	var run apitype.Run
	a.into(&run)
	g.decide(job.Trigger("ben"))
	second := ask(two)
	g.end(run, one, "succeeded", "").want(200, "")
	a = <-second
	a.want(200, "")
	a.into(&run)
	if run.Instance != "two" || run.Trigger != "ben" {
		t.Errorf("%+v", run)
	}
}

// failOnce is a store of leases that fails once, without an effect.
type failOnce struct {
	store.Store
	release, readState bool
}

func (s *failOnce) Release(ctx context.Context, r lease.ReleaseRequest) error {
	if s.release {
		s.release = false
		return lease.ErrUnavailable
	}
	return s.Store.Release(ctx, r)
}

func (s *failOnce) ReadState(ctx context.Context, id lease.ID) (lease.State, error) {
	if s.readState {
		s.readState = false
		return lease.State{}, lease.ErrUnavailable
	}
	return s.Store.ReadState(ctx, id)
}

func (g jobRig) failOnce() *failOnce {
	st := &failOnce{Store: g.s.cfg.Store}
	g.s.cfg.Store, g.s.takeovers.store = st, st
	return st
}

// TestNextRunUnderAClosedTerm: a lease that a session has kept because its release failed keeps nobody from the job.
func TestNextRunUnderAClosedTerm(t *testing.T) {
	g := newJobRig(t)
	php := g.session("php")
	g.clock.pass(time.Hour)
	ctx, vanish := context.WithCancel(t.Context())
	g.queues.acquired = vanish
	g.failOnce().release = true
	send(t, g.s, request(ctx, "POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, php)))
	g.queues.acquired = nil
	a := g.do("POST", "/v1/jobs/backup/runs/next?wait=1m", fmt.Sprintf(`{"session":%q}`, php))
	a.want(200, "")
	var run apitype.Run
	if a.into(&run); run.Instance != "php" || run.Attempt != 1 {
		t.Errorf("%+v", run)
	}
}

// TestRunEndsTwice: the end of a run is repeated, as its answer said that it is not known. That does not end the session's next run.
func TestRunEndsTwice(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	g.clock.pass(time.Hour)
	first := g.next(php)
	g.failOnce().release = true
	g.end(first, php, "succeeded", "").want(504, "unknown_outcome")
	g.decide(job.Trigger("alice"))
	a := g.do("POST", "/v1/jobs/backup/runs/next?wait=1m", fmt.Sprintf(`{"session":%q}`, php))
	a.want(200, "")
	var second apitype.Run
	if a.into(&second); second.Term <= first.Term {
		t.Errorf("a term for two runs: %d, %d", first.Term, second.Term)
	}
	g.end(first, php, "succeeded", "").want(200, "")
	g.do("POST", "/v1/jobs/backup/runs/next", fmt.Sprintf(`{"session":%q}`, perl)).want(204, "")
	g.end(second, php, "succeeded", "").want(200, "")
}

// TestResultIsKnownLater: a result that is sent again, because its answer was lost, is known, also if the run was tried again or others
// have ended since.
func TestResultIsKnownLater(t *testing.T) {
	g := newJobRig(t)
	php, perl := g.session("php"), g.session("perl")
	g.decide(job.Define("backup", job.Definition{Schedule: "every 1h", Retries: 1}))
	g.clock.pass(time.Hour)
	run := g.next(php)
	g.end(run, php, "failed", "").want(200, "")
	g.clock.pass(5 * time.Second)
	again := g.next(perl)
	g.end(run, php, "failed", "").want(200, "")
	g.end(again, perl, "succeeded", "").want(200, "")
	g.clock.pass(time.Hour)
	third := g.next(php)
	g.end(again, perl, "succeeded", "").want(200, "")
	g.end(run, php, "failed", "").want(200, "")
	g.end(third, php, "succeeded", "").want(200, "")
	g.end(again, perl, "succeeded", "").want(200, "")
	g.end(again, perl, "failed", "").want(409, "run_over")
	late := 0
	for _, e := range ask[apitype.Events](g, "GET", "/v1/history?part=job", "").Events {
		if strings.Contains(e.Reason, "ended late") {
			late++
		}
	}
	if late != 1 {
		t.Errorf("%d events about late results", late)
	}
}

// TestJobsAreBounded: a program that makes names up does not fill the store.
func TestJobsAreBounded(t *testing.T) {
	g := newJobRig(t)
	g.s.jobQuota.most = 2
	g.do("PUT", "/v1/jobs/mail", `{"schedule":"@daily"}`).want(200, "")
	g.do("PUT", "/v1/jobs/mail-2", `{"schedule":"@daily"}`).want(403, "quota_used_up")
	g.do("PUT", "/v1/jobs/mail", `{"schedule":"@hourly"}`).want(200, "")
}
