package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

var (
	// ErrNoSink: nothing gets the alarms of the job.
	ErrNoSink = errors.New("job: no sink for its alarms")
	// ErrWebhook: the sinks have the alarm, but the webhook of the job alone does not take it.
	ErrWebhook = errors.New("job: its webhook does not take the alarm")
)

// AlarmConfig describes how alarms are sent.
type AlarmConfig struct {
	// Store of the jobs: alarms of all of them are sent, also of those that no instance offers any more. Required.
	Store Store
	// Leases are those under which jobs run: a run is lost whose instance is gone, also if no other is left to claim the job. Required.
	Leases lease.Store
	// Send brings an alarm to the sinks of its job, and returns nil once they have it, or a queue. a.Cleared is zero while it
	// stands; if it is not, and a.Sent is, this is about its end. Called for several jobs at a time; a repeated call has the
	// same a.ID. [ErrNoSink] if there are none, [ErrWebhook] if only the job's own webhook does not have it: at the third such answer it counts as
	// sent, as the sinks would wait with that webhook for what comes next. Required.
	Send func(ctx context.Context, j Job, a Alarm) error
	// Clock of this process. Required.
	Clock lease.Clock
	// CallTimeout bounds each call of the store. Required.
	CallTimeout time.Duration
	// Takeover is how long a job may go without a holder when one has died: [lease.Timing.WorstTakeover]. Jobs are overdue after twice
	// that, and after half a minute at the earliest.
	Takeover time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// How alarms are sent.
const (
	watchEvery  = 5 * time.Second
	sendTimeout = 20 * time.Second // less than firstPause
	sendAtOnce  = 8
	// leastLate is how long a job is seen to be overdue before it has an alarm: as long as instances need for a takeover, and for a poll
	// that an outage of the store delayed.
	leastLate = 30 * time.Second
	// webhookTries is how often an alarm that the sinks have is sent to the job's own webhook.
	webhookTries = 3
)

// WatchAlarms raises the alarms of overdue jobs, and of runs whose instance was the last one, and sends what sinks do not know yet, until ctx ends. Any number of instances do
// so for one store: each alarm is claimed by one of them, and by another if that dies.
func WatchAlarms(ctx context.Context, cfg AlarmConfig) error {
	w := &alarmWatcher{AlarmConfig: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), late: map[string]lateness{}, gone: map[string]lease.Seen{}, busy: map[string]bool{}, first: make(chan struct{}, sendAtOnce), again: make(chan struct{}, sendAtOnce)}
	defer w.sends.Wait()
	failing := false
	for wait := spread(watchEvery, lease.NewID()); lease.Sleep(ctx, cfg.Clock, wait); wait = watchEvery {
		err := w.look(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			w.log.Warn("alarms of jobs cannot be read; trying again", "err", err) // once per outage
		}
		failing = err != nil
	}
	return context.Cause(ctx)
}

type alarmWatcher struct {
	AlarmConfig
	log *slog.Logger
	// late are the jobs that were overdue at the last look, which was begun at looked: a store that has just been started, or whose
	// clock was stepped, shows them so before the instances have looked.
	late   map[string]lateness
	looked time.Duration
	// gone are the leases of jobs that run, and whose holder was gone at the last look, for the same reason.
	gone map[string]lease.Seen

	sends sync.WaitGroup
	// first and again bound the alarms that are sent at once, those for the first time and those that were not taken then: sinks that
	// hang do not hold up the others.
	first, again chan struct{}
	mu           sync.Mutex
	busy         map[string]bool // jobs whose sinks are being told
}

// lateness says since when a job is overdue by the store's clock, and since when this process has seen that, by its own.
type lateness struct {
	since time.Time
	seen  time.Duration
}

// lateFor is for how long a job that is overdue has been seen to be so, and that since the same time: one that ran meanwhile, or could not
// because the store did not answer, has all of it before it again.
func (w *alarmWatcher) lateFor(name string, since time.Time, now time.Duration) (time.Duration, lateness) {
	l, known := w.late[name]
	if !known || !l.since.Equal(since) || now-w.looked > 3*watchEvery {
		l = lateness{since, now}
	}
	return now - l.seen, l
}

// look reads what is due, and attends to the alarms among it.
func (w *alarmWatcher) look(ctx context.Context) error {
	late, gone, at := map[string]lateness{}, map[string]lease.Seen{}, w.Clock.Now()
	// Sinks that hang hold up a look no longer than that: the rest is for the next one.
	waits, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	err := readPages(ctx, w.Store, w.CallTimeout, Query{DueWithin: time.Millisecond}, func(page []Job, now time.Time) {
		for _, j := range page {
			overdue := false
			if since, isLate := j.OverdueSince(now); isLate {
				lateFor, l := w.lateFor(j.Name, since, at)
				late[j.Name], overdue = l, lateFor >= max(leastLate, 2*w.Takeover)
			}
			if r, on := j.Running(); on && now.Sub(r.Started) > OverdueAfter {
				w.abandon(ctx, j.Name, r, gone)
			}
			if !(overdue && j.Alarm.ID == "") && (!j.Alarm.Pending() || j.Alarm.NextTry.After(now)) {
				continue
			}
			w.start(ctx, waits, j, overdue)
		}
	})
	if err != nil {
		return err
	}
	w.late, w.looked, w.gone = late, at, gone
	return nil
}

// start attends to the alarm of a job, unless it does already, once there is a place for it, or not if there is none before waits ends.
func (w *alarmWatcher) start(ctx, waits context.Context, j Job, overdue bool) {
	if !w.setBusy(j.Name, true) {
		return
	}
	places := w.first
	if j.Alarm.Tries > 0 {
		places = w.again
	}
	if !takePlace(waits, places) {
		w.setBusy(j.Name, false)
		return
	}
	w.sends.Go(func() {
		defer func() { <-places }()
		defer w.setBusy(j.Name, false)
		w.attend(ctx, j.Name, overdue)
	})
}

// takePlace takes a free place at once, and otherwise the first that becomes free before ctx ends.
func takePlace(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// setBusy reports whether that changed anything.
func (w *alarmWatcher) setBusy(name string, busy bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[name] == busy {
		return false
	}
	if w.busy[name] = busy; !busy {
		delete(w.busy, name)
	}
	return true
}

// abandon records that a run is lost whose holder was gone at the last look, and still is. Instances that offer the job would have
// done so by then.
func (w *alarmWatcher) abandon(ctx context.Context, name string, r Run, gone map[string]lease.Seen) {
	call, cancel := context.WithTimeout(ctx, w.CallTimeout)
	defer cancel()
	l, err := w.Leases.Get(call, LeaseID(name))
	// A later term shows that the run's has ended: its holder died, too, before it claimed. One that lives will.
	if err != nil || l.HasLiveHolder() || l.Term < r.Term {
		return
	}
	gone[name] = l.Seen()
	if before, known := w.gone[name]; known && before == l.Seen() {
		_, _ = w.change(ctx, name, Abandon(r.Term)) // at the next look, if this fails
	}
}

// attend sends what the sinks of a job do not know yet, if no other instance does: also that it is overdue, if it was so for long.
func (w *alarmWatcher) attend(ctx context.Context, name string, overdue bool) {
	for ctx.Err() == nil {
		var a Alarm
		j, err := w.change(ctx, name, claimAlarm(&a, overdue))
		if err != nil || a.ID == "" {
			return // at the next look
		}
		err = w.send(ctx, j, a)
		switch {
		case errors.Is(err, ErrNoSink) && j.ForgottenBy != "": // no one shows the alarm: nothing keeps the job
		case errors.Is(err, ErrWebhook) && a.WebhookTries+1 >= webhookTries:
			w.log.Warn("an alarm of a job is given up for its webhook; the sinks have it", "job", name, "reason", a.Reason, "ended", a.Sent, "err", err)
		case err != nil:
			if a.Tries == 1 && !errors.Is(err, ErrNoSink) {
				w.log.Warn("an alarm of a job could not be sent; trying again", "job", name, "reason", a.Reason, "err", err)
			}
			if errors.Is(err, ErrWebhook) {
				_, _ = w.change(ctx, name, noteWebhook(a)) // if this fails, it is tried once more
			}
			return
		default:
			w.log.Info("alarm of a job sent", "job", name, "reason", a.Reason, "why", a.Why, "ended", a.Sent)
		}
		// If this is not stored, the alarm is sent again: twice is better than never.
		if _, err := w.change(ctx, name, MarkSent(a)); err != nil {
			return
		}
	}
}

func (w *alarmWatcher) send(ctx context.Context, j Job, a Alarm) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := w.Send(ctx, j, a); err != nil {
		return fmt.Errorf("sending the alarm of job %q: %w", j.Name, err)
	}
	return nil
}

func (w *alarmWatcher) change(ctx context.Context, name string, decide Decision) (Job, error) {
	ctx, cancel := context.WithTimeout(ctx, w.CallTimeout)
	defer cancel()
	return w.Store.Change(ctx, name, decide)
}
