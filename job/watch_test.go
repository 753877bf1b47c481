package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// receiver is told of alarms.
type receiver struct {
	mu  sync.Mutex
	got []string
}

func (r *receiver) take(a job.Alarm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := "raised"
	if a.Sent {
		what = "ended"
	}
	r.got = append(r.got, fmt.Sprint(what, " ", a.Reason, " ", a.ID[:4]))
}

func (r *receiver) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

// watch sends the alarms of a store until stop is called.
func watch(t *testing.T, st *memory.Store, send func(ctx context.Context, j job.Job, a job.Alarm) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		err := job.WatchAlarms(ctx, job.AlarmConfig{Store: st.Jobs(), Leases: st, Send: send, Clock: &leasetest.BubbleClock{}, CallTimeout: time.Second})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return stop
}

// finished runs the job once, now, with a result.
func finished(t *testing.T, st *memory.Store, name string, s job.State) {
	t.Helper()
	k := st.Jobs()
	j, now, err := k.Get(t.Context(), name)
	if err == nil {
		_, err = k.Change(t.Context(), name, job.Trigger("ops"))
	}
	h := job.Holder{Term: max(j.Term+1, now.UnixMilli())}
	if err == nil {
		j, err = k.Change(t.Context(), name, job.Claim(h))
	}
	if err != nil {
		t.Fatal(err)
	}
	r, _ := j.Running()
	if _, err := k.Change(t.Context(), name, job.Finish(r.Scheduled, h.Term, job.Result{State: s, Why: "exit status 3", ExitCode: 3})); err != nil {
		t.Fatal(err)
	}
}

func defined(t *testing.T, st *memory.Store, name, schedule string) {
	t.Helper()
	if _, err := st.Jobs().Change(t.Context(), name, job.Define(name, job.Definition{Schedule: schedule})); err != nil {
		t.Fatal(err)
	}
}

// TestAlarmTakeover: an instance that dies after it has claimed an alarm, before or after it has sent it, is replaced by
// another; the receiver gets the same alarm, and one for all runs that fail.
func TestAlarmTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "@daily")
		var to receiver
		tried := make(chan struct{}, 1)
		stop := watch(t, st, func(ctx context.Context, _ job.Job, a job.Alarm) error {
			to.take(a)
			tried <- struct{}{}
			<-ctx.Done() // the receiver has it, and this instance will never know
			return ctx.Err()
		})
		finished(t, st, "backup", job.Failed)
		<-tried
		stop()
		finished(t, st, "backup", job.TimedOut)
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error { to.take(a); return nil })
		time.Sleep(time.Minute)
		finished(t, st, "backup", job.Failed)
		time.Sleep(time.Minute)
		got := to.seen()
		if len(got) != 2 || got[0] != got[1] || got[0][:14] != "raised failed " {
			t.Fatalf("%q", got)
		}
		finished(t, st, "backup", job.Succeeded)
		finished(t, st, "backup", job.Failed) // while the end is not sent yet: another alarm
		time.Sleep(time.Minute)
		got = to.seen()[2:]
		if len(got) != 2 || got[0] != "ended failed "+to.seen()[0][14:] || got[1][:14] != "raised failed " || got[1] == to.seen()[0] {
			t.Errorf("%q", to.seen())
		}
	})
}

// TestHangingSinksHoldUpNoOthers: alarms of jobs whose sinks hang wait for themselves alone.
func TestHangingSinksHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		for n := range 40 {
			defined(t, st, fmt.Sprintf("hangs-%02d", n), "@daily")
			finished(t, st, fmt.Sprintf("hangs-%02d", n), job.Failed)
		}
		defined(t, st, "well", "@daily")
		var sent time.Time
		watch(t, st, func(ctx context.Context, j job.Job, _ job.Alarm) error {
			if j.Name == "well" {
				sent = time.Now()
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(2 * time.Minute) // each was tried
		failed := time.Now()
		finished(t, st, "well", job.Failed)
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := sent.Sub(failed); took < 0 || took > 11*time.Second {
			t.Errorf("sent after %v", took)
		}
	})
}

// TestAlarmOverdue: a job that no instance offers any more has an alarm, which ends when it is forgotten.
func TestAlarmOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "every 10m")
		defined(t, st, "paused", "every 10m")
		defined(t, st, "later", "every 24h")
		if _, err := st.Jobs().Change(t.Context(), "paused", job.Pause("ops")); err != nil {
			t.Fatal(err)
		}
		var to receiver
		watch(t, st, func(_ context.Context, j job.Job, a job.Alarm) error {
			if j.Name != "backup" || a.Instance != "" {
				t.Errorf("alarm of %s: %+v", j.Name, a)
			}
			to.take(a)
			return nil
		})
		time.Sleep(10*time.Minute + job.OverdueAfter + 25*time.Second)
		if got := to.seen(); len(got) != 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(20 * time.Second)
		if got := to.seen(); len(got) != 1 || got[0][:15] != "raised overdue " {
			t.Fatalf("%q", got)
		}
		time.Sleep(time.Hour)
		if _, err := st.Jobs().Change(t.Context(), "backup", job.Forget("ops")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := to.seen(); len(got) != 2 || got[1][:14] != "ended overdue " {
			t.Errorf("%q", got)
		}
		if _, _, err := st.Jobs().Get(t.Context(), "backup"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("it was forgotten: %v", err)
		}
	})
}

// TestAlarmOverdueTooSoon: a job that runs a little later than it is overdue has no alarm, each time.
func TestAlarmOverdueTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "every 10m")
		var to receiver
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error { to.take(a); return nil })
		time.Sleep(job.OverdueAfter + 25*time.Second)
		for term := range int64(4) {
			time.Sleep(10 * time.Minute)
			j, err := st.Jobs().Change(t.Context(), "backup", job.Claim(job.Holder{Term: term + 1}))
			r, on := j.Running()
			if err == nil && on {
				_, err = st.Jobs().Change(t.Context(), "backup", job.Finish(r.Scheduled, r.Term, job.Result{State: job.Succeeded}))
			}
			if err != nil || !on {
				t.Fatalf("%+v, %v", j, err)
			}
		}
		if got := to.seen(); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}

// TestAlarmOverdueAfterALoss: a run is queued again whose instance died long after the job's next time. It is overdue when no instance
// takes it then.
func TestAlarmOverdueAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		if _, err := st.Jobs().Change(t.Context(), "backup", job.Define("backup", job.Definition{Schedule: "every 10m", Retries: 1})); err != nil {
			t.Fatal(err)
		}
		var to receiver
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error { to.take(a); return nil })
		time.Sleep(10 * time.Minute)
		session := claimed(t, st, "backup")
		for range 23 {
			time.Sleep(30 * time.Second)
			if _, err := st.RenewSession(t.Context(), session); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute + 35*time.Second) // it has lapsed, and two looks have found that
		if j, _, err := st.Jobs().Get(t.Context(), "backup"); err != nil || len(j.Open) != 1 || j.Open[0].State != job.Queued {
			t.Fatalf("%+v, %v", j, err)
		}
		if got := to.seen(); len(got) != 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(25 * time.Second)
		if got := to.seen(); len(got) != 1 || got[0][:15] != "raised overdue " {
			t.Errorf("%q", got)
		}
	})
}

// acquired has an instance acquire the job's lease. The session lives for a minute.
func acquired(t *testing.T, st *memory.Store, name string) (session string, h job.Holder) {
	t.Helper()
	who, id := lease.NewInstance("web-1", ""), lease.NewID()
	_, err := st.StartSession(t.Context(), lease.Session{ID: id, Instance: who, Timing: lease.Timing{Interval: 10 * time.Second, Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := st.Get(t.Context(), job.LeaseID(name))
	if err == nil {
		l, err = st.Acquire(t.Context(), lease.Expectation{Lease: job.LeaseID(name), Session: id, Seen: l.Seen()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id, job.Holder{Term: l.Term, Instance: who}
}

// claimed has an instance claim a run of the job that is due, under the job's lease.
func claimed(t *testing.T, st *memory.Store, name string) (session string) {
	t.Helper()
	session, h := acquired(t, st, name)
	if _, err := st.Jobs().Change(t.Context(), name, job.Claim(h)); err != nil {
		t.Fatal(err)
	}
	return session
}

// TestAlarmLostWithNobodyLeft: a run is lost whose instance was the only one that offered the job, or whose next holder died before it
// claimed; what runs for long is not.
func TestAlarmLostWithNobodyLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		for _, name := range []string{"once", "twice", "long", "safe"} {
			def := job.Definition{Schedule: "2000-01-01T00:01:00"}
			if name == "safe" {
				def.Retries = 1
			}
			if _, err := st.Jobs().Change(t.Context(), name, job.Define(name, def)); err != nil {
				t.Fatal(err)
			}
		}
		var to receiver
		watch(t, st, func(_ context.Context, j job.Job, a job.Alarm) error {
			to.take(a)
			if (j.Name == "once" || j.Name == "twice") && (a.Reason != job.Lost || a.Instance == "") || j.Name == "safe" && a.Reason != job.Overdue || j.Name == "long" {
				t.Errorf("alarm of %s: %+v", j.Name, a)
			}
			return nil
		})
		time.Sleep(time.Minute)
		claimed(t, st, "once")
		claimed(t, st, "safe")
		if err := st.EndSession(t.Context(), claimed(t, st, "twice"), "killed"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, next := acquired(t, st, "twice")
		long := claimed(t, st, "long")
		for range 30 {
			time.Sleep(10 * time.Second)
			if _, err := st.RenewSession(t.Context(), long); err != nil {
				t.Fatal(err)
			}
		}
		if got := to.seen(); len(got) != 3 {
			t.Errorf("%q", got)
		}
		if j, _, err := st.Jobs().Get(t.Context(), "twice"); err != nil || j.Last.Term == 0 || j.Last.Term >= next.Term {
			t.Errorf("%+v, %v; the last term is %d", j.Last, err, next.Term)
		}
		for name, want := range map[string]job.State{"once": job.Lost, "twice": job.Lost, "safe": job.Queued, "long": job.Running} {
			if runs, err := st.Jobs().Runs(t.Context(), job.RunQuery{Job: name, Limit: 1}); err != nil || len(runs) != 1 || runs[0].State != want {
				t.Errorf("%s: %+v, %v; want %s", name, runs, err, want)
			}
		}
	})
}

// TestAlarmRetried: an alarm whose sink refuses it is tried again, with pauses that grow, and is not lost.
func TestAlarmRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "@daily")
		var to receiver
		var tries atomic.Int64
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error {
			if tries.Add(1) < 8 {
				return errors.New("503")
			}
			to.take(a)
			return nil
		})
		finished(t, st, "backup", job.Failed)
		time.Sleep(10 * time.Minute)
		if n := tries.Load(); n < 4 || n > 6 {
			t.Errorf("%d tries in ten minutes", n)
		}
		finished(t, st, "backup", job.Succeeded)
		time.Sleep(time.Hour)
		if got := to.seen(); len(got) != 2 || got[0][:7] != "raised " || got[1][:6] != "ended " {
			t.Errorf("%q after %d tries", got, tries.Load())
		}
	})
}

// TestAlarmBesideADeadWebhook: sinks that take alarms get each start and each end, though the job's own webhook takes none.
func TestAlarmBesideADeadWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "@daily")
		var sinks receiver
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error {
			sinks.take(a) // as of the same queue, once or often
			return fmt.Errorf("%w: 404", job.ErrWebhook)
		})
		for _, s := range []job.State{job.Failed, job.Succeeded, job.Failed} {
			finished(t, st, "backup", s)
			time.Sleep(10 * time.Minute)
		}
		got := slices.Compact(sinks.seen())
		if len(got) != 3 || got[0][:7] != "raised " || got[1][:6] != "ended " || got[2][:7] != "raised " || got[0] == got[2] {
			t.Errorf("the sinks got %q", got)
		}
	})
}

// TestWebhookAfterOthers: tries at which the sinks did not have the alarm yet do not count as those of the webhook.
func TestWebhookAfterOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		defined(t, st, "backup", "@daily")
		var webhook receiver
		answers := make(chan error, 4)
		for _, err := range []error{errors.New("no store"), errors.New("no store"), job.ErrWebhook, job.ErrWebhook} {
			answers <- err
		}
		watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error {
			select {
			case err := <-answers:
				return err
			default:
				webhook.take(a)
				return nil
			}
		})
		finished(t, st, "backup", job.Failed)
		time.Sleep(20 * time.Minute)
		if got := webhook.seen(); len(got) != 1 || got[0][:14] != "raised failed " {
			t.Errorf("%q", got)
		}
		if j, _, err := st.Jobs().Get(t.Context(), "backup"); err != nil || !j.Alarm.Sent || j.Alarm.Tries != 0 || j.Alarm.WebhookTries != 0 {
			t.Errorf("%+v, %v", j.Alarm, err)
		}
	})
}

// TestForgetWhatIsNotMarked: sinks that may have an alarm get its end before the job goes, though no answer, or a webhook that is dead, left
// the alarm as not sent. Without sinks it goes soon.
func TestForgetWhatIsNotMarked(t *testing.T) {
	for name, answer := range map[string]error{"webhook": job.ErrWebhook, "no answer": errors.New("no answer"), "no sink": job.ErrNoSink} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(nil)
				defined(t, st, "backup", "@daily")
				var sinks receiver
				var answers atomic.Bool
				hasSinks := !errors.Is(answer, job.ErrNoSink)
				watch(t, st, func(_ context.Context, _ job.Job, a job.Alarm) error {
					if hasSinks {
						sinks.take(a)
					}
					if answers.Load() {
						return nil
					}
					return answer
				})
				finished(t, st, "backup", job.Failed)
				if time.Sleep(20 * time.Second); !hasSinks {
					time.Sleep(time.Hour) // until tries are far apart
				}
				if _, err := st.Jobs().Change(t.Context(), "backup", job.Forget("ops")); err != nil {
					t.Fatal(err)
				}
				answers.Store(name == "no answer")
				time.Sleep(5 * time.Minute)
				if got := slices.Compact(sinks.seen()); hasSinks && (len(got) != 2 || got[0][:7] != "raised " || got[1][:6] != "ended ") {
					t.Errorf("the sinks got %q", got)
				}
				if _, _, err := st.Jobs().Get(t.Context(), "backup"); !errors.Is(err, job.ErrNotFound) {
					t.Errorf("it was forgotten: %v", err)
				}
			})
		})
	}
}

// TestForgetAgain: who forgets a job twice does not wait for its sinks.
func TestForgetAgain(t *testing.T) {
	st := memory.New(nil)
	defined(t, st, "backup", "@daily")
	k := st.Jobs()
	forget := func() error { _, err := k.Change(t.Context(), "backup", job.Forget("ops")); return err }
	finished(t, st, "backup", job.Failed)
	var a job.Alarm
	for _, d := range []job.Decision{job.ClaimAlarm(&a), func(j job.Job, now time.Time) (job.Change, error) { return job.MarkSent(a)(j, now) }, job.Forget("ops")} {
		if _, err := k.Change(t.Context(), "backup", d); err != nil {
			t.Fatal(err)
		}
	}
	j, _, err := k.Get(t.Context(), "backup")
	if err != nil || j.ForgottenBy != "ops" || !j.DueAt().IsZero() || j.Alarm.Cleared.IsZero() {
		t.Fatalf("%+v, %v", j, err)
	}
	if _, err := k.Change(t.Context(), "backup", job.Trigger("ops")); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("triggered: %v", err)
	}
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Get(t.Context(), "backup"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("forgotten twice: %v", err)
	}
	// One that is offered again is a new job, and its sinks are told of the end all the same.
	defined(t, st, "backup", "@daily")
	finished(t, st, "backup", job.Failed)
	for _, d := range []job.Decision{job.ClaimAlarm(&a), func(j job.Job, now time.Time) (job.Change, error) { return job.MarkSent(a)(j, now) }, job.Forget("ops")} {
		if _, err := k.Change(t.Context(), "backup", d); err != nil {
			t.Fatal(err)
		}
	}
	defined(t, st, "backup", "@daily")
	if j, _, err = k.Get(t.Context(), "backup"); err != nil || j.ForgottenBy != "" || j.Next.IsZero() || !j.Alarm.Pending() || len(j.Ended) != 0 {
		t.Errorf("%+v, %v", j, err)
	}
}
