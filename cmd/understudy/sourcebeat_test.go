package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestBeatOfAFullCheck: the error says what to do about a check that has learned all the sources that it may.
func TestBeatOfAFullCheck(t *testing.T) {
	ctx := t.Context()
	full := func(where string, code int, out string) {
		t.Helper()
		if code != exitAbsent || !strings.Contains(out, monitor.WhyFull) || strings.Contains(out, "fixed") {
			t.Errorf("%s: exit code %d: %s", where, code, out)
		}
	}
	sessions := memory.New(nil)
	st := checks.NewMemory(checks.Options{Sessions: sessions, History: sessions})
	if _, err := st.Configure(ctx, monitor.Configuration{Checks: []monitor.Check{{Name: "few", Interval: time.Minute, MaxLearned: 1}, {Name: "fixed", Interval: time.Minute, Fixed: true}}}); err != nil {
		t.Fatal(err)
	}
	if err := storeBeat(ctx, st, monitor.Heartbeat{Check: "few", Source: "a"}); err != nil {
		t.Fatal(err)
	}
	err := storeBeat(ctx, st, monitor.Heartbeat{Check: "few", Source: "b"})
	full("store", exitCode(err), fmt.Sprint(err))
	err = storeBeat(ctx, st, monitor.Heartbeat{Check: "fixed", Source: "b"})
	if exitCode(err) != exitAbsent || !strings.Contains(fmt.Sprint(err), "is fixed to declared sources") {
		t.Errorf("a check that is fixed: %v", err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(apitype.BeatsTaken{Unknown: 1, Errors: []apitype.BeatError{{Cause: apitype.CauseCheckFull, Detail: "in words of another version"}}})
	}))
	defer srv.Close()
	code, out := ask(t, "source", "beat", "few", "b", "--server", srv.URL)
	full("server", code, out)
}
