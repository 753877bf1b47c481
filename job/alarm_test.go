package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// alarmRules are those under test, or a broken twin of them.
type alarmRules struct {
	claim func(*job.Alarm) job.Decision
	sent  func(job.Alarm) job.Decision
}

// alarmWorld is one job, instances that send its alarms and die at any step of it, and a receiver that sees what was sent.
type alarmWorld struct {
	rules alarmRules
	r     *rand.Rand
	j     job.Job
	now   time.Time
	term  int64

	claimed []job.Alarm // by instances that have not marked them
	got     []string    // ONSET or ABATED, and the ID
	trace   []string
}

func (w *alarmWorld) decide(d job.Decision) error {
	c, err := d(w.j, w.now)
	if err != nil || c.Unchanged {
		return err
	}
	w.j = c.After(w.j)
	return nil
}

// run has the job run its next time, which ends in a state.
func (w *alarmWorld) run(s job.State) error {
	if due := w.j.DueAt(); due.After(w.now) {
		w.now = due
	}
	w.term++
	h := job.Holder{Term: w.term, Instance: lease.NewInstance("web-1", "")}
	if err := w.decide(job.Claim(h)); err != nil {
		return err
	}
	r, on := w.j.Running()
	if !on {
		return errors.New("nothing runs")
	}
	w.now = w.now.Add(time.Second)
	if s == job.Lost {
		w.term++ // the next holder finds it
		h.Term = w.term
		if err := w.decide(job.Claim(h)); err != nil {
			return err
		}
		if r, on = w.j.Running(); !on {
			return nil
		}
		s = job.Cancelled
	}
	return w.decide(job.Finish(r.Scheduled, h.Term, job.Result{State: s}))
}

func (w *alarmWorld) deliver(a job.Alarm) {
	what := "ONSET "
	if a.Sent {
		what = "ABATED "
	}
	w.got = append(w.got, what+a.ID)
}

// send is an instance's try, which may die before it, after it, and before it is marked.
func (w *alarmWorld) send(dies bool) error {
	var a job.Alarm
	if err := w.decide(w.rules.claim(&a)); err != nil || a.ID == "" {
		return err
	}
	if dies && w.r.IntN(2) == 0 {
		return nil // before it was sent
	}
	w.deliver(a)
	if dies {
		if w.r.IntN(2) == 0 {
			w.claimed = append(w.claimed, a) // it was only slow
		}
		return nil
	}
	return w.decide(w.rules.sent(a))
}

// forget has an operator forget the job, which may be while an instance sends its alarm: that has been told of its end then, unless no
// one was told of its start. A job that instances offer is there again at once, or once that is known.
func (w *alarmWorld) forget() error {
	var sends job.Alarm
	if w.r.IntN(2) == 0 {
		if err := w.decide(w.rules.claim(&sends)); err != nil {
			return err
		}
	}
	if err := w.decide(job.Forget("ops")); err != nil {
		return err
	}
	if sends.ID != "" {
		w.deliver(sends)
	}
	return nil
}

func (w *alarmWorld) offer() error {
	if w.j.Version > 0 && w.j.ForgottenBy == "" {
		return nil
	}
	return w.decide(job.Define("backup", job.Definition{Schedule: "@hourly"}))
}

func (w *alarmWorld) step() (err error) {
	if w.j.Version == 0 || w.j.ForgottenBy != "" && w.r.IntN(3) == 0 {
		w.trace = append(w.trace, "offered")
		return w.offer()
	}
	switch n := w.r.IntN(13); {
	case n == 12 || w.j.ForgottenBy != "" && n < 5:
		w.trace = append(w.trace, "forgotten")
		if w.j.ForgottenBy == "" { // at the second time it goes at once
			err = w.forget()
		}
	case n < 2:
		err = w.run(job.Succeeded)
		w.trace = append(w.trace, "good")
	case n < 4:
		s := []job.State{job.Failed, job.TimedOut, job.Lost, job.Cancelled}[w.r.IntN(4)]
		err = w.run(s)
		w.trace = append(w.trace, string(s))
	case n == 4:
		w.now = w.now.Add(3 * time.Hour) // nobody is there
		w.trace = append(w.trace, "away")
	case n == 5 && len(w.claimed) > 0:
		err = w.decide(w.rules.sent(w.claimed[0]))
		w.claimed = w.claimed[1:]
		w.trace = append(w.trace, "late mark")
	default:
		err = w.send(w.r.IntN(3) == 0)
		w.now = w.now.Add(time.Duration(w.r.IntN(60)) * time.Second)
		w.trace = append(w.trace, "send")
	}
	return err
}

// play runs a seed, and says what is wrong with what the receiver got.
func (w *alarmWorld) play() error {
	w.j, w.now = job.Job{Name: "backup"}, time.Date(2026, time.November, 26, 0, 0, 0, 0, time.UTC)
	if err := w.decide(job.Define("backup", job.Definition{Schedule: "@hourly"})); err != nil {
		return err
	}
	for range 40 {
		bad := w.j.Alarm.ID
		if err := w.step(); err != nil {
			return err
		}
		if a := w.j.Alarm; a.ID != bad && bad != "" && !w.knows("ABATED "+bad) && (w.j.Version > 0 || w.knows("ONSET "+bad)) {
			return fmt.Errorf("alarm %s ended, and no one was told", bad)
		}
	}
	// In the end all instances live, and the receiver answers; the job runs well or not at all.
	if err := w.offer(); err != nil {
		return err
	}
	stands := w.r.IntN(2) == 0
	if !stands {
		if err := w.run(job.Succeeded); err != nil {
			return err
		}
	} else if err := w.run(job.Failed); err != nil {
		return err
	}
	for range 10 {
		w.now = w.now.Add(15 * time.Minute) // longer than any pause; a job that is due later is not overdue
		if due := w.j.DueAt(); w.now.After(due) {
			w.now = due
		}
		if w.j.Alarm.NextTry.After(w.now) {
			w.j.Alarm.NextTry = w.now
		}
		if err := w.send(false); err != nil {
			return err
		}
	}
	return w.judge(stands)
}

func (w *alarmWorld) knows(what string) bool {
	return strings.Contains(strings.Join(w.got, "\n"), what)
}

// judge checks what the receiver got: of each alarm the start before its end, one after the other, and at last how the job is.
func (w *alarmWorld) judge(stands bool) error {
	open, closed := "", map[string]bool{}
	for _, m := range w.got {
		what, id, _ := strings.Cut(m, " ")
		switch {
		case what == "ONSET" && closed[id] || what == "ABATED" && closed[id]:
			// A slow instance, or one that died before it had marked it. The receiver knows the ID.
		case what == "ONSET" && open != "" && open != id:
			return fmt.Errorf("alarm %s stands, and %s is raised", open, id)
		case what == "ONSET":
			open = id
		case open != id:
			return fmt.Errorf("%s ended, whose start was not sent", id)
		default:
			open, closed[id] = "", true
		}
	}
	if (open != "") != stands {
		return fmt.Errorf("the receiver has %q as open, and the job's last run is %s", open, w.j.Last.State)
	}
	return nil
}

func playAlarms(rules alarmRules, seeds uint64) error {
	for seed := range seeds {
		w := &alarmWorld{rules: rules, r: rand.New(rand.NewPCG(seed, 1))}
		if err := w.play(); err != nil {
			return fmt.Errorf("seed %d: %w\n%s\n%s\n%+v", seed, err, strings.Join(w.trace, ", "), strings.Join(w.got, "\n"), w.j.Alarm)
		}
	}
	return nil
}

// TestAlarmSeeds: whatever runs, and whichever instances die, the receiver learns at least once of each alarm's start, and then of its
// end, and has one per job.
// TestAlarmAgain: an alarm that nobody was told of, and that a good run has ended, says what is wrong when another run is bad.
func TestAlarmAgain(t *testing.T) {
	s := memory.New(nil)
	change := func(d job.Decision) job.Job {
		t.Helper()
		j, err := s.Jobs().Change(t.Context(), "j", d)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	run := func(term int64, result job.Result) job.Alarm {
		t.Helper()
		change(job.Trigger("x"))
		r, _ := change(job.Claim(job.Holder{Term: term})).Running()
		return change(job.Finish(r.Scheduled, term, result)).Alarm
	}
	change(job.Define("j", job.Definition{Schedule: "@daily"}))
	first := run(1, job.Result{State: job.TimedOut, Why: "it took longer"})
	if a := run(2, job.Result{State: job.Succeeded}); a.Stands() || a.ID != first.ID {
		t.Errorf("after a good run: %+v", a)
	}
	again := run(3, job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"})
	if !again.Stands() || again.ID != first.ID || again.Reason != job.Failed || again.ExitCode != 3 || again.Why != "exit code 3" || !again.Raised.After(first.Raised) {
		t.Errorf("after another bad run: %+v", again)
	}
	if a := run(4, job.Result{State: job.TimedOut}); a != again {
		t.Errorf("after one more: %+v, want the first of them, %+v", a, again)
	}
}

func TestAlarmSeeds(t *testing.T) {
	if err := playAlarms(alarmRules{job.ClaimAlarm, job.MarkSent}, 1000); err != nil {
		t.Error(err)
	}
}

// TestAlarmTwins: the judge finds what the rules must not do.
func TestAlarmTwins(t *testing.T) {
	change := func(d job.Decision, how func(was job.Job, c *job.Change)) job.Decision {
		return func(j job.Job, now time.Time) (job.Change, error) {
			c, err := d(j, now)
			if err == nil && !c.Unchanged {
				how(j, &c)
			}
			return c, err
		}
	}
	for name, twin := range map[string]alarmRules{
		"marked before it is sent": {
			claim: func(a *job.Alarm) job.Decision {
				return change(job.ClaimAlarm(a), func(_ job.Job, c *job.Change) {
					marked, err := job.MarkSent(*a)(c.Job, c.Job.Alarm.NextTry)
					if err == nil && !marked.Unchanged {
						c.Job = marked.Job
					}
				})
			},
			sent: func(job.Alarm) job.Decision {
				return func(j job.Job, _ time.Time) (job.Change, error) { return job.Change{Job: j, Unchanged: true}, nil }
			},
		},
		"what fails while the end is sent is forgotten": {job.ClaimAlarm, func(a job.Alarm) job.Decision {
			return change(job.MarkSent(a), func(was job.Job, c *job.Change) {
				if was.Alarm.Sent {
					c.Job.Alarm = job.Alarm{}
				}
			})
		}},
		"a late mark counts for the next alarm": {job.ClaimAlarm, func(a job.Alarm) job.Decision {
			return func(j job.Job, now time.Time) (job.Change, error) {
				a.ID, a.Sent = j.Alarm.ID, j.Alarm.Sent
				return job.MarkSent(a)(j, now)
			}
		}},
		"an alarm that was cleared is dropped unsent": {func(a *job.Alarm) job.Decision {
			return func(j job.Job, now time.Time) (job.Change, error) {
				if !j.Alarm.Cleared.IsZero() && j.Alarm.Again.State == "" {
					j.Alarm = job.Alarm{}
				}
				return job.ClaimAlarm(a)(j, now)
			}
		}, job.MarkSent},
	} {
		if err := playAlarms(twin, 1000); err == nil {
			t.Errorf("%s: nobody noticed", name)
		} else {
			t.Logf("%s: %s", name, strings.SplitN(err.Error(), "\n", 2)[0])
		}
	}
}
