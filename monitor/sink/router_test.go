package sink_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
	"github.com/understudy-ha/understudy/monitor/sink"
)

func toTopic(t *testing.T, c sink.MessageRouterConfig) dispatch.Target {
	t.Helper()
	return open(t, sink.Config{MessageRouter: &c})
}

// TestRouterBytes: the event is in the topic to the byte, with its fields in their order.
func TestRouterBytes(t *testing.T) {
	at := fakerouter.New(t)
	at.Guard("user", "s3cret")
	s := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT"), User: "user", Password: "s3cret"})
	var want []string
	for _, m := range []monitor.AlarmMessage{onset(), abated(), group(), named(onset(), `"hostile" <&> {{.}} \`)} {
		wants(t, tell(t, s, m), dispatch.Done)
		event, err := onap.ControlLoopEvent(m, onap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(event))
	}
	if diff := cmp.Diff(want, at.Messages("CL_OUT")); diff != "" {
		t.Error(diff)
	}
	if name := s.Name(); !strings.HasPrefix(name, "message router http://") || strings.Contains(name, "s3cret") {
		t.Errorf("name %q", name)
	}
	wrong := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT"), User: "user", Password: "s3cretly-wrong"})
	got := tell(t, wrong, onset())
	wants(t, got, dispatch.Misconfigured)
	if strings.Contains(got.Detail, "s3cret") {
		t.Errorf("detail %q", got.Detail)
	}
}

func TestRouterHostileNames(t *testing.T) {
	at := fakerouter.New(t)
	s := open(t, sink.Config{Format: sink.ControlLoopOriginal, MessageRouter: &sink.MessageRouterConfig{URL: at.URL("CL_OUT")}})
	for _, name := range hostile() {
		wants(t, tell(t, s, named(onset(), name)), dispatch.Done)
	}
	messages := at.Messages("CL_OUT")
	if len(messages) != len(hostile()) {
		t.Fatalf("%d messages of %d alarms", len(messages), len(hostile()))
	}
	for i, name := range hostile() {
		var got struct{ AAI map[string]string }
		if err := json.Unmarshal([]byte(messages[i]), &got); err != nil {
			t.Fatal(err)
		}
		if got.AAI["generic-vnf.vnf-name"] != strings.ToValidUTF8(name, "\uFFFD") && !strings.HasPrefix(name, "bad") {
			t.Errorf("%q became %q", name, got.AAI)
		}
	}
}

// TestD05OnlyTakenIsTold: an alarm counts as told when the router says that it took one.
func TestD05OnlyTakenIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		fault fakerouter.Fault
		want  dispatch.Outcome
	}{
		"taken":                  {fakerouter.Fault{}, dispatch.Done},
		"none taken":             {fakerouter.Fault{Count: -1}, dispatch.Busy},
		"one taken for two":      {fakerouter.Fault{Count: 2}, dispatch.Done},
		"no JSON":                {fakerouter.Fault{Body: "<html>all is well</html>"}, dispatch.Uncertain},
		"no count":               {fakerouter.Fault{Body: `{"serverTimeMs":1}`}, dispatch.Uncertain},
		"a refusal with 200":     {fakerouter.Fault{Body: `{"mrstatus":5009,"status":500,"message":"publish error"}`}, dispatch.Uncertain},
		"redirected":             {fakerouter.Fault{Status: 302, Header: http.Header{"Location": {"http://127.0.0.1:1/"}}}, dispatch.Misconfigured},
		"bad request":            {fakerouter.Fault{Status: 400, Code: 5005}, dispatch.InvalidMessage},
		"no rights":              {fakerouter.Fault{Status: 403, Code: 4003}, dispatch.Misconfigured},
		"no topic":               {fakerouter.Fault{Status: 404, Code: 3001}, dispatch.Misconfigured},
		"conflict":               {fakerouter.Fault{Status: 409, Code: 5012}, dispatch.Busy},
		"too many":               {fakerouter.Fault{Status: 429, Header: http.Header{"Retry-After": {"3"}}}, dispatch.Busy},
		"unavailable":            {fakerouter.Fault{Status: 503, Code: 3002}, dispatch.Uncertain},
		"unavailable for a time": {fakerouter.Fault{Status: 503, Code: 3002, Header: http.Header{"Retry-After": {"3"}}}, dispatch.Busy},
		"broken":                 {fakerouter.Fault{Status: 500, Code: 1004}, dispatch.Uncertain},
		"cut":                    {fakerouter.Fault{Cut: true}, dispatch.Uncertain},
		"cut after it was taken": {fakerouter.Fault{Cut: true, After: true}, dispatch.Uncertain},
		"half an answer":         {fakerouter.Fault{Half: true}, dispatch.Uncertain},
		"slow":                   {fakerouter.Fault{Delay: time.Millisecond}, dispatch.Done},
	} {
		t.Run(name, func(t *testing.T) {
			at := fakerouter.New(t)
			at.Fail(c.fault)
			got := tell(t, toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT")}), onset())
			wants(t, got, c.want)
			if c.fault.Header.Get("Retry-After") != "" && got.RetryAfter != 3*time.Second {
				t.Errorf("retry after %v", got.RetryAfter)
			}
			if n := len(at.Requests()); n != 1 {
				t.Errorf("%d requests for one telling", n)
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		at := fakerouter.New(t)
		s := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT")})
		at.Down()
		wants(t, tell(t, s, onset()), dispatch.Busy)
		at.Up()
		wants(t, tell(t, s, onset()), dispatch.Done)
	})
}

// TestD06RouterHangs: the deadline of a telling holds.
func TestD06RouterHangs(t *testing.T) {
	at := fakerouter.New(t)
	at.Fail(fakerouter.Fault{Hang: true})
	s := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT")})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := s.Submit(ctx, batch(t, onset()))
	if got.Outcome != dispatch.Uncertain && got.Outcome != dispatch.Busy { // busy: it did not even get a connection in time
		t.Errorf("got %+v", got)
	}
}

// TestD14OneRequestID: ONSET and ABATED of an outage carry one request id and its true times.
func TestD14OneRequestID(t *testing.T) {
	at := fakerouter.New(t)
	s := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT")})
	wants(t, tell(t, s, onset()), dispatch.Done)
	wants(t, tell(t, s, abated()), dispatch.Done)
	for i, message := range at.Messages("CL_OUT") {
		var got struct {
			RequestID            string
			ClosedLoopAlarmStart int64
			ClosedLoopAlarmEnd   int64
		}
		if err := json.Unmarshal([]byte(message), &got); err != nil {
			t.Fatal(err)
		}
		end := []int64{0, endedAt.UnixMilli()}[i]
		if got.RequestID != requestID || got.ClosedLoopAlarmStart != beganAt.UnixMilli() || got.ClosedLoopAlarmEnd != end {
			t.Errorf("got %+v", got)
		}
	}
}

// TestD21UnknownTargetType: what cannot be told is not said to be told.
func TestD21UnknownTargetType(t *testing.T) {
	at := fakerouter.New(t)
	s := toTopic(t, sink.MessageRouterConfig{URL: at.URL("CL_OUT")})
	m := onset()
	m.ControlLoop.TargetType = "PNF"
	got := tell(t, s, m)
	wants(t, got, dispatch.InvalidMessage)
	if !strings.Contains(got.Detail, "PNF") {
		t.Errorf("detail %q", got.Detail)
	}
	m.ControlLoop.TargetType = ""
	wants(t, tell(t, s, m), dispatch.Done)
}
