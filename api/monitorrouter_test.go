package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestRouters: whether the routers can be read is shown, and is a metric.
func TestRouters(t *testing.T) {
	var up atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			http.Error(w, "<b>no</b>", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`["{\"event\":\"web\",\"source\":\"w1\"}"]`))
	}))
	defer srv.Close()
	router, err := intake.NewRouter(intake.RouterConfig{Name: "mr", URL: srv.URL + "/events/HB", Group: "g", Consumer: "c", Flow: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = router.Run(ctx) }()
	defer func() { stop(); <-done }()

	clock, st := newStepped(), memory.New(nil)
	inlet, err := monitor.NewIntake(monitor.IntakeConfig{Store: checks.NewMemory(checks.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Store: &monitorStore{st, checks.NewMemory(checks.Options{})}, Clock: clock,
		Monitor: &Monitor{Intake: inlet, Routers: func() []*intake.Router { return []*intake.Router{router, router} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, good func(apitype.MessageRouter) bool) {
		t.Helper()
		var out struct {
			Instance struct{ Routers []apitype.MessageRouter }
		}
		for began := time.Now(); time.Since(began) < enough; <-time.After(5 * time.Millisecond) {
			send(t, s, request(t.Context(), "GET", "/v1/monitor", "")).into(&out)
			if r := out.Instance.Routers; len(r) == 2 && r[0].Router == "mr" && good(r[0]) {
				return
			}
			out.Instance.Routers = nil
		}
		t.Fatalf("%s: never", what)
	}
	metric := func(want int) {
		t.Helper()
		text := send(t, s, request(t.Context(), "GET", "/metrics", "")).Body
		if line := fmt.Sprintf("understudy_monitor_router_up{router=\"mr\"} %d\n", want); !strings.Contains(text, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	until("a router that is down", func(r apitype.MessageRouter) bool { return r.Failures > 0 && r.Error != "" && !r.Since.IsZero() })
	metric(0)
	up.Store(true)
	until("a router that is up", func(r apitype.MessageRouter) bool { return r.Messages > 0 && r.Error == "" && r.Since.IsZero() })
	metric(1)
}
