package api

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
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
