// Package jobalarm sends the alarms of jobs: to the sinks of the monitor that shares their store, through the queues of those, and to
// the webhook of each job.
package jobalarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
	"github.com/understudy-ha/understudy/store"
)

// Sender is the Send of a [job.AlarmConfig] for the jobs of a store.
func Sender(st store.Store) func(context.Context, job.Job, job.Alarm) error {
	return func(ctx context.Context, j job.Job, a job.Alarm) error {
		m := messageOf(j, a)
		queued, err := enqueue(ctx, st, m)
		if err != nil {
			return err
		}
		if j.Definition.AlarmURL == "" {
			if queued == 0 {
				return job.ErrNoSink
			}
			return nil
		}
		err = post(ctx, j.Definition.AlarmURL, m, a.Tries)
		if err != nil && queued > 0 {
			err = fmt.Errorf("%w: %w", job.ErrWebhook, err)
		}
		return err
	}
}

// enqueue adds the message to the queues of the monitor's sinks, and returns how many those are. A message that is there already, from a
// try before, is not added again.
func enqueue(ctx context.Context, st store.Store, m monitor.AlarmMessage) (int, error) {
	monitors, ok := st.(store.Monitors)
	queues, ok2 := st.(store.Queues)
	if !ok || !ok2 {
		return 0, nil // Redis has no monitor
	}
	settings, err := monitors.Monitor().Settings(ctx)
	if err != nil || len(settings.Sinks) == 0 {
		return 0, err
	}
	var out []dispatch.Message
	for _, n := range m.Notifications(settings.Sinks) {
		out = append(out, message(n))
	}
	_, err = queues.QueueAdmin().Add(ctx, out)
	return len(out), err
}

func message(n monitor.Notification) dispatch.Message {
	return dispatch.Message{Queue: monitor.SinkQueue(n.Sink), Key: n.Key, ID: n.ID, ContentType: dispatch.DefaultContentType, Payload: n.Payload}
}

// post sends the message to a job's own webhook.
func post(ctx context.Context, url string, m monitor.AlarmMessage, attempt int) error {
	to, err := sink.New(sink.Config{Name: job.Space, Webhook: &sink.WebhookConfig{URL: sink.Secret(url)}})
	if err != nil {
		return err
	}
	n := m.Notifications([]string{job.Space})[0]
	answer := to.Submit(ctx, dispatch.Assignment{Message: message(n), Work: dispatch.Send, Attempt: attempt})
	if answer.Outcome != dispatch.Done {
		return fmt.Errorf("%s: %w", to.Name(), errors.New(cmp.Or(answer.Detail, string(answer.Outcome))))
	}
	return nil
}

// messageOf is what a receiver gets: the alarm of a source that has the job's name, of the check "job".
func messageOf(j job.Job, a job.Alarm) monitor.AlarmMessage {
	m := monitor.AlarmMessage{
		Status: monitor.Onset, RequestID: a.ID, Reason: monitor.Reason(a.Reason), Event: job.Space, Source: j.Name, Severity: "error",
		Labels: Labels(j, a), What: what(a), Started: a.Scheduled, Raised: a.Raised,
	}
	if a.Sent { // of its start they know
		m.Status, m.Ended, m.What = monitor.Abated, &a.Cleared, "runs again"
		if j.ForgottenBy != "" {
			m.End, m.What = monitor.Forget, "was forgotten by "+j.ForgottenBy
		}
	}
	return m
}

// Labels say of which run the alarm is.
func Labels(j job.Job, a job.Alarm) map[string]string {
	out := map[string]string{"schedule": j.Definition.Schedule, "scheduled": a.Scheduled.UTC().Format(time.RFC3339)}
	if a.Instance != "" {
		out["instance"] = a.Instance
	}
	if a.ExitCode != 0 {
		out["exit_code"] = strconv.Itoa(a.ExitCode)
	}
	return out
}

func what(a job.Alarm) string {
	words := map[job.State]string{
		job.Failed: "has failed", job.TimedOut: "took longer than its deadline", job.Lost: "was lost", job.MissedRun: "was missed", job.Overdue: "is overdue",
	}
	out := cmp.Or(words[a.Reason], string(a.Reason))
	if a.Why != "" && a.Reason != job.TimedOut {
		out += ": " + a.Why
	}
	return out
}
