package api

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
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
