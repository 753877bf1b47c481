package api

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestActsLeaveATrace: what no store records by itself is in the history, with the caller.
func TestActsLeaveATrace(t *testing.T) {
	st := memory.New(nil)
	peer := newStandIn()
	peer.hold("k", "v", 0, time.Hour)
	s, err := New(Config{Store: st, Cache: peer, Token: configToken1})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path, body string) {
		t.Helper()
		r := request(t.Context(), method, path, body)
		r.Header.Set("Authorization", "Bearer "+configToken1)
		if a := send(t, s, r); a.Status >= 300 {
			t.Errorf("%s %s: %d %s", method, path, a.Status, a.Body)
		}
	}
	do("POST", "/v1/queues", `{"queue":"orders"}`)
	do("PUT", "/v1/checks/backup", `{"interval_ms":60000}`)
	do("PUT", "/v1/monitor/configuration", `{"checks":[{"check":"backup","interval_ms":60000},{"check":"disk","interval_ms":60000}]}`)
	do("POST", "/v1/sources", `{"sources":[{"check":"disk","source":"db-1"}]}`)
	do("DELETE", "/v1/cache/k", "")
	// The command line serves the API to its own user: the history names that user, not a token.
	if s, err = New(Config{Store: st, Token: configToken1, Operator: "ann@db-1"}); err != nil {
		t.Fatal(err)
	}
	do("POST", "/v1/queues", `{"queue":"letters"}`)
	events, err := st.Read(t.Context(), history.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range events {
		got.WriteString(e.Part + " " + e.Subject + ": " + e.Reason + "\n")
	}
	for _, want := range []string{
		"batch orders: queue created by token config (", "monitor backup: configured (1 added, 0 changed, 0 removed) by token config (",
		"monitor checks: configured (1 added, 0 changed, 0 removed) by token config (", "monitor disk/db-1: 1 declared, 1 of them new, by token config (",
		"batch letters: queue created by ann@db-1 (",
		`cache key "k": removed by token config (`,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("there is no %q in\n%s", want, got.String())
		}
	}
}

// forgetful is a store whose history cannot be written: Append fails after 10 s, as that of a store whose server hangs does.
type forgetful struct{ *memory.Store }

func (forgetful) Append(ctx context.Context, _ history.Event) error {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return fmt.Errorf("%w: nobody answers", lease.ErrUnavailable)
}

// TestActsWithoutAHistory: what was done is answered as done, soon, and is in the log.
func TestActsWithoutAHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newStandIn()
		peer.hold("k", "v", 0, time.Hour)
		var text strings.Builder
		log := slog.New(outagelog.New(slog.NewTextHandler(&text, nil)))
		s, err := New(Config{Store: forgetful{memory.New(nil)}, Cache: peer, Logger: log, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.stop()
		for _, c := range []struct {
			method, path, body string
			status             int
			act                string
		}{
			{"DELETE", "/v1/cache/k", "", 200, `part=cache subject="key \"k\"" act=removed`},
			{"POST", "/v1/queues", `{"queue":"orders"}`, 201, `part=batch subject=orders act="queue created"`},
			{"PUT", "/v1/checks/backup", `{"interval_ms":60000}`, 200, `part=monitor subject=backup act="configured`},
			{"POST", "/v1/sources", `{"sources":[{"check":"backup","source":"db-1"}]}`, 201, `part=monitor subject=backup/db-1 act="1 declared`},
		} {
			began := time.Now()
			if a := send(t, s, request(t.Context(), c.method, c.path, c.body)); a.Status != c.status {
				t.Errorf("%s %s: %d %s", c.method, c.path, a.Status, a.Body)
			}
			if took := time.Since(began); took > recordTimeout {
				t.Errorf("%s %s took %v", c.method, c.path, took)
			}
			if strings.Count(text.String(), "an act could not be recorded in the history") != 1 || !strings.Contains(text.String(), c.act) {
				t.Errorf("%s %s: the log has %s", c.method, c.path, text.String())
			}
			text.Reset()
		}
	})
}

// remembering is a store whose history is not written for a caller who has gone.
type remembering struct{ *memory.Store }

func (s remembering) Append(ctx context.Context, e history.Event) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return s.Store.Append(ctx, e)
}

// unheard and unheardChecks carry out what they are asked for, and answer nobody in time.
type (
	unheard       struct{ dispatch.Admin }
	unheardChecks struct{ monitor.Store }
)

func outOfTime(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", lease.ErrUnknown, ctx.Err())
}

func (unheard) CreateQueue(ctx context.Context, _ string) error { return outOfTime(ctx) }

func (unheardChecks) Configure(ctx context.Context, _ monitor.Configuration) (out monitor.ConfigurationChanges, err error) {
	return out, outOfTime(ctx)
}

func (unheardChecks) Declare(ctx context.Context, _ []monitor.Declaration) ([]bool, error) {
	return nil, outOfTime(ctx)
}

// TestNobodyHidesAnAct: a caller who hangs up, or does not wait, is in the history for what may have been done.
func TestNobodyHidesAnAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, peer := remembering{memory.New(nil)}, newStandIn()
		peer.confirmed = 2
		s, err := New(Config{Store: st, Cache: peer, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.stop()
		s.queueAdmin, s.monitor.table = unheard{s.queueAdmin}, unheardChecks{s.monitor.table}
		last := func() string {
			t.Helper()
			events, err := st.Read(t.Context(), history.Query{})
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 {
				return ""
			}
			e := events[len(events)-1]
			return e.Part + " " + e.Subject + ": " + e.Reason
		}
		peer.storing = 200 * time.Millisecond
		if a := send(t, s, request(t.Context(), "DELETE", "/v1/cache?all=true&wait=0", "")); a.Status != 202 {
			t.Errorf("a removal that does not wait: %d %s", a.Status, a.Body)
		}
		if got := last(); !strings.HasPrefix(got, "cache every key: removed by somebody (") {
			t.Errorf("a removal that does not wait: %s", got)
		}
		for _, c := range []struct{ method, path, body, want string }{
			{"DELETE", "/v1/cache/k", "", `cache key "k": removal requested (outcome unknown) by somebody (`},
			{"POST", "/v1/queues", `{"queue":"orders"}`, "batch orders: queue creation requested (outcome unknown) by somebody ("},
			{"PUT", "/v1/checks/backup", `{"interval_ms":60000}`, "monitor backup: configuration requested (outcome unknown) by somebody ("},
			{"POST", "/v1/sources", `{"sources":[{"check":"disk","source":"db-1"}]}`, "monitor disk/db-1: declaration (sources: 1) requested (outcome unknown) by somebody ("},
		} {
			ctx, hangUp := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, hangUp)
			send(t, s, request(ctx, c.method, c.path, c.body))
			if got := last(); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s %s: the history has %q, want %q", c.method, c.path, got, c.want)
			}
		}
		send(t, s, request(t.Context(), "DELETE", "/v1/cache?all=true&prefix=a", "")).want(400, "invalid")
		peer.refuse = cache.ErrTooLarge
		before := last()
		send(t, s, request(t.Context(), "DELETE", "/v1/cache/long", ""))
		if got := last(); got != before {
			t.Errorf("what was refused is recorded: %s", got)
		}
	})
}
