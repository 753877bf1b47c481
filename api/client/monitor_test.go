package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store/memory"
)

// monitorStore is a store of leases and sources in memory.
type monitorStore struct {
	*memory.Store
	table monitor.Store
}

func (s monitorStore) Monitor() monitor.Store { return monitor.Validated(s.table) }

func serveMonitor(t *testing.T) (*checks.Memory, *client.Client) {
	t.Helper()
	table := checks.NewMemory(checks.Options{})
	events := []monitor.Check{{Name: "a b/ü?%2F", Interval: time.Minute}, {Name: "web", Interval: time.Minute}, {Name: "few", Interval: time.Minute, MaxLearned: 1}}
	if _, err := table.Configure(t.Context(), monitor.Configuration{Checks: events}); err != nil {
		t.Fatal(err)
	}
	inlet, err := monitor.NewIntake(monitor.IntakeConfig{Store: table, ProbeInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	flow := inlet.OpenPath(monitor.PathConfig{Name: "http", TrustFor: time.Second, MaxGap: time.Minute, Synchronous: true})
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: flow})
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.New(api.Config{Store: monitorStore{memory.New(nil), table}, Token: token, Monitor: &api.Monitor{HTTP: in, Intake: inlet}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = inlet.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return table, connect(t, srv.URL, token)
}

// TestBeatOfAFullCheck: a program can tell it from other heartbeats that were not accepted.
func TestBeatOfAFullCheck(t *testing.T) {
	_, c := serveMonitor(t)
	if taken, err := c.Beats(t.Context(), apitype.Beat{Check: "few", Source: "x"}); err != nil || taken.Accepted != 1 {
		t.Errorf("the first source: %+v, %v", taken, err)
	}
	taken, err := c.Beats(t.Context(), apitype.Beat{Check: "few", Source: "y"})
	if err != nil || taken.Unknown != 1 || len(taken.Errors) != 1 || taken.Errors[0].Cause != apitype.CauseCheckFull {
		t.Errorf("one source more than the check may learn: %+v, %v", taken, err)
	}
}

func TestBeatsAndSources(t *testing.T) {
	_, c := serveMonitor(t)
	ctx := t.Context()
	const event, source = "a b/ü?%2F", "x/1 ü?%2F"
	sent := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	taken, err := c.Beats(ctx,
		apitype.Beat{Check: event, Source: source, Sent: sent, Seq: 7}, apitype.Beat{Check: "nothing", Source: "y"}, apitype.Beat{Check: "web", Source: "w1", Signal: "fail", Code: 3})
	if err != nil || taken.Accepted != 2 || taken.Unknown != 1 || len(taken.Errors) != 1 || taken.Errors[0].Index != 1 || taken.Errors[0].Cause != "unknown_event" {
		t.Fatalf("taken %+v, %v", taken, err)
	}
	if taken, err = c.Beats(ctx, apitype.Beat{Check: "nothing", Source: "y"}); err != nil || taken.Unknown != 1 {
		t.Errorf("one that is unknown: %+v, %v", taken, err)
	}
	for _, what := range []string{"", "start", "fail", "0", "7"} {
		if err := c.Ping(ctx, event, source, what); err != nil {
			t.Errorf("ping %q: %v", what, err)
		}
	}
	if err := c.Ping(ctx, "nothing", "x", ""); err == nil {
		t.Error("a ping for an event that is not there was accepted")
	}
	added, err := c.Declare(ctx, apitype.Declaration{Check: "web", Source: "w1"}, apitype.Declaration{Check: "web", Source: "w2", Labels: map[string]string{"rack": "r1"}})
	if err != nil || added != 1 {
		t.Errorf("declared %d, %v", added, err)
	}
	_, err = c.Declare(ctx, apitype.Declaration{Check: "nothing", Source: "x"})
	wantCode(t, err, "no_event")
	_, err = c.Declare(ctx)
	wantCode(t, err, "invalid")

	names := func(q client.SourceQuery) (out []string) {
		t.Helper()
		for range 10 {
			page, err := c.Sources(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Sources {
				out = append(out, s.Name)
			}
			if q.After = page.Next; q.After == "" {
				return out
			}
		}
		t.Fatal("the pages never end")
		return nil
	}
	for _, c := range []struct {
		q    client.SourceQuery
		want []string
	}{
		{client.SourceQuery{}, []string{source, "w1", "w2"}},
		{client.SourceQuery{Limit: 1}, []string{source, "w1", "w2"}},
		{client.SourceQuery{Check: event, Source: source}, []string{source}},
		{client.SourceQuery{Contains: "W"}, []string{"w1", "w2"}},
		{client.SourceQuery{Label: "rack", Value: "r1"}, []string{"w2"}},
		{client.SourceQuery{State: "retired"}, nil},
	} {
		if got := names(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
	page, err := c.Sources(ctx, client.SourceQuery{Check: event})
	if s := page.Sources[0]; err != nil || s.State != "up" || s.Last.IsZero() || s.LeftMS == nil || s.QuietMS == nil || s.Path != "http" || s.Code != 7 {
		t.Errorf("source %+v, %v", s, err)
	}
	_, err = c.Sources(ctx, client.SourceQuery{State: "dead"})
	wantCode(t, err, "invalid")
}

func TestActsAndAlarms(t *testing.T) {
	table, c := serveMonitor(t)
	ctx := t.Context()
	if err := c.Ping(ctx, "web", "w1", ""); err != nil {
		t.Fatal(err)
	}
	state := func() apitype.Source {
		page, err := c.Sources(ctx, client.SourceQuery{Check: "web", Source: "w1"})
		if err != nil || len(page.Sources) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		return page.Sources[0]
	}
	if err := c.Pause(ctx, "web", "w1", time.Hour, "alice", "new disks"); err != nil || state().State != "paused" || state().Until.IsZero() || state().Note != "new disks" {
		t.Errorf("paused: %+v, %v", state(), err)
	}
	if err := c.Resume(ctx, "web", "w1", "alice", ""); err != nil || state().State != "up" {
		t.Errorf("resumed: %+v, %v", state(), err)
	}
	wantCode(t, c.Pause(ctx, "web", "w1", -time.Hour, "", ""), "invalid")
	wantCode(t, c.Pause(ctx, "web", "nobody", 0, "", ""), "no_source")
	wantCode(t, c.Retire(ctx, "nothing", "w1", "", ""), "no_event")

	// Nobody looks after the sources here but the test.
	settings, _ := table.Settings(ctx)
	for n := range 3 {
		source := fmt.Sprint("bad", n)
		if err := c.Ping(ctx, "web", source, "fail"); err != nil {
			t.Fatal(err)
		}
	}
	var all []int
	for n := range monitor.Partitions {
		all = append(all, n)
	}
	look, err := table.DueSources(ctx, all, 100)
	if err != nil {
		t.Fatal(err)
	}
	for n, found := range look.Candidates {
		for _, e := range settings.Checks {
			if v := e.Evaluate(found.Facts); e.ID == found.CheckID && v.Transition == monitor.Onset {
				change := monitor.SourceChange{
					ID: found.ID, Rev: found.Rev, BeatRev: found.BeatRev, CheckRev: found.CheckRev, Transition: v.Transition, Due: v.Due, Reason: v.Reason, At: look.Wall, Alarm: fmt.Sprint("alarm ", n),
				}
				if _, err := table.ApplyChanges(ctx, []monitor.SourceChange{change}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	first, err := c.Alarms(ctx, client.AlarmQuery{Check: "web", Open: true, Limit: 3})
	alarms := first.Alarms
	if err != nil || len(alarms) != 3 || alarms[0].Reason != "failed" || !alarms[0].Ended.IsZero() {
		t.Fatalf("alarms %+v, %v", alarms, err)
	}
	one, err := c.Alarms(ctx, client.AlarmQuery{Limit: 1})
	if err != nil || len(one.Alarms) != 1 || one.Alarms[0].ID != alarms[0].ID || one.Next == "" {
		t.Errorf("a page of one: %+v, %v", one, err)
	}
	rest, err := c.Alarms(ctx, client.AlarmQuery{After: one.Next, Limit: 9})
	if err != nil || len(rest.Alarms) != 2 || rest.Alarms[0].ID != alarms[1].ID || rest.Next != "" {
		t.Errorf("the next page: %+v, %v", rest, err)
	}
	if err := c.Acknowledge(ctx, alarms[0].ID, "alice", "on it"); err != nil {
		t.Error(err)
	}
	if again, err := c.Alarms(ctx, client.AlarmQuery{Source: alarms[0].Source}); err != nil || again.Alarms[0].Acknowledged != "alice (127.0.0.1)" {
		t.Errorf("acknowledged: %+v, %v", again, err)
	}
	wantCode(t, c.Acknowledge(ctx, "nothing", "", ""), "no_alarm")
	if err := c.Retire(ctx, "web", "bad0", "bob", "sold"); err != nil {
		t.Error(err)
	}
}
