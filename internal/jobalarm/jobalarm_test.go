package jobalarm_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/jobalarm"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/memory"
)

var (
	at     = time.Date(2026, time.November, 26, 2, 30, 0, 0, time.UTC)
	raised = job.Alarm{
		ID: "0123", Reason: job.Failed, Why: "exit code 3", Scheduled: at, Instance: "web-1", ExitCode: 3, Raised: at.Add(time.Minute), Tries: 1,
	}
)

func ended() job.Alarm {
	a := raised
	a.Sent, a.Cleared = true, at.Add(time.Hour)
	return a
}

// TestToSinks: the monitor's sinks get an alarm in their queues, once, however often it is sent.
func TestToSinks(t *testing.T) {
	st := memory.New(nil)
	session := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("one", ""), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	_, err := st.StartSession(t.Context(), session)
	if err == nil {
		err = st.Monitor().RegisterMember(t.Context(), monitor.Member{Session: session.ID, Sinks: []string{"mail", "pager"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	send := jobalarm.Sender(st)
	for _, a := range []job.Alarm{raised, raised, ended(), ended()} {
		if err := send(t.Context(), job.Job{Name: "backup", Definition: job.Definition{Schedule: "@daily"}}, a); err != nil {
			t.Fatal(err)
		}
	}
	// A webhook that does not take it beside: that is not the sinks' failure.
	hook := httptest.NewServer(http.NotFoundHandler())
	defer hook.Close()
	if err := send(t.Context(), job.Job{Name: "backup", Definition: job.Definition{AlarmURL: hook.URL}}, raised); !errors.Is(err, job.ErrWebhook) {
		t.Errorf("a dead webhook beside sinks: %v", err)
	}
	for _, q := range []string{"alarms.mail", "alarms.pager"} {
		messages, err := st.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: q})
		if err != nil || len(messages) != 2 {
			t.Fatalf("%s: %d messages, %v", q, len(messages), err)
		}
		for _, m := range messages {
			if (m.ID != "0123/ONSET" && m.ID != "0123/ABATED") || m.Key != "job/backup" {
				t.Errorf("%s: message %q of key %q", q, m.ID, m.Key)
			}
		}
	}
}

// TestToWebhook: a job's own webhook gets what has happened, in words and in fields.
func TestToWebhook(t *testing.T) {
	var got []monitor.AlarmMessage
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m monitor.AlarmMessage
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			t.Error(err)
		}
		got = append(got, m)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "no such hook: "+r.URL.Path)
	}))
	defer srv.Close()
	j := job.Job{Name: "backup", Definition: job.Definition{Schedule: "@daily", AlarmURL: srv.URL + "/hook/very-secret"}}
	// A store without a monitor, as Redis.
	send := jobalarm.Sender(struct{ store.Store }{memory.New(nil)})
	forgotten := j
	forgotten.ForgottenBy = "ops"
	overdue := job.Alarm{ID: "4567", Reason: job.Overdue, Why: "no instance that offers it runs", Scheduled: at, Raised: at}
	for _, c := range []struct {
		j job.Job
		a job.Alarm
	}{{j, raised}, {j, ended()}, {forgotten, ended()}, {j, overdue}} {
		if err := send(t.Context(), c.j, c.a); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"schedule": "@daily", "scheduled": "2026-11-26T02:30:00Z", "instance": "web-1", "exit_code": "3"}
	first := monitor.AlarmMessage{
		Status: monitor.Onset, RequestID: "0123", Reason: "failed", Event: "job", Source: "backup", What: "has failed: exit code 3", Severity: "error",
		Labels: labels, Started: at, Raised: at.Add(time.Minute),
	}
	second, third, end := first, first, at.Add(time.Hour)
	second.Status, second.What, second.Ended = monitor.Abated, "runs again", &end
	third.Status, third.What, third.Ended, third.End = monitor.Abated, "was forgotten by ops", &end, monitor.Forget
	fourth := monitor.AlarmMessage{
		Status: monitor.Onset, RequestID: "4567", Reason: "overdue", Event: "job", Source: "backup", What: "is overdue: no instance that offers it runs", Severity: "error",
		Labels: map[string]string{"schedule": "@daily", "scheduled": "2026-11-26T02:30:00Z"}, Started: at, Raised: at,
	}
	if diff := cmp.Diff([]monitor.AlarmMessage{first, second, third, fourth}, got); diff != "" {
		t.Error(diff)
	}
	for _, code := range []int{http.StatusNotFound, http.StatusServiceUnavailable} {
		status = code
		if err := send(t.Context(), j, raised); err == nil || strings.Contains(err.Error(), "very-secret") {
			t.Errorf("an answer of %d: %v", code, err)
		}
	}
	j.Definition.AlarmURL = ""
	if err := send(t.Context(), j, raised); !errors.Is(err, job.ErrNoSink) {
		t.Errorf("no sink at all: %v", err)
	}
}
