package sink_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// service stands in for PagerDuty, Opsgenie or ntfy.
type service struct {
	url  string
	mu   sync.Mutex
	seen []string // method, path with query, and Authorization
	sent []map[string]any
}

func newService(t *testing.T, status int) *service {
	s := &service{}
	s.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var v map[string]any
		if err := json.Unmarshal(body, &v); err != nil || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen, s.sent = append(s.seen, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))), append(s.sent, v)
		w.WriteHeader(status)
	})
	return s
}

// deliver sends an outage of a source, and one of a group.
func (s *service) deliver(t *testing.T, c sink.WebhookConfig) {
	t.Helper()
	to := hook(t, c)
	odd := onset()
	odd.Source, odd.Severity = `a"b \ <c>`+strings.Repeat("ü", 90), ""
	for _, m := range []monitor.AlarmMessage{onset(), abated(), group(), odd} {
		wants(t, tell(t, to, m), dispatch.Done)
	}
	if len(s.sent) != 4 {
		t.Fatalf("%d requests", len(s.sent))
	}
}

func (s *service) wantSeen(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.seen[:len(want)]); diff != "" {
		t.Error(diff)
	}
}

func (s *service) want(t *testing.T, n int, fields map[string]any) {
	t.Helper()
	for path, want := range fields {
		var got any = s.sent[n]
		for name := range strings.SplitSeq(path, ".") {
			of, _ := got.(map[string]any)
			got = of[name]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("request %d, %s: %s", n, path, diff)
		}
	}
}

func TestPagerDuty(t *testing.T) {
	s := newService(t, http.StatusAccepted)
	s.deliver(t, sink.WebhookConfig{URL: sink.Secret(s.url + "/v2/enqueue"), Service: sink.PagerDuty, Key: "routing-key"})
	s.wantSeen(t, "POST /v2/enqueue", "POST /v2/enqueue")
	s.want(t, 0, map[string]any{
		"routing_key": "routing-key", "event_action": "trigger", "dedup_key": requestID, "payload.source": "edge-17", "payload.severity": "error",
		"payload.component": "Heartbeat_edge", "payload.class": "silent", "payload.timestamp": "2026-11-21T10:00:15.25Z", "payload.custom_details.site": "berlin",
	})
	s.want(t, 1, map[string]any{"routing_key": "routing-key", "event_action": "resolve", "dedup_key": requestID})
	s.want(t, 2, map[string]any{"payload.source": "3 sources with site=berlin"})
	if summary, _ := s.sent[0]["payload"].(map[string]any)["summary"].(string); !strings.Contains(summary, "edge-17 is silent") {
		t.Errorf("summary %q", summary)
	}
}

// TestWhat: an alarm of a job says in words what has happened.
func TestWhat(t *testing.T) {
	s := newService(t, http.StatusAccepted)
	m := onset()
	m.What = "was missed: no instance\nwas there"
	wants(t, tell(t, hook(t, sink.WebhookConfig{URL: sink.Secret(s.url), Service: sink.PagerDuty, Key: "k"}), m), dispatch.Done)
	s.want(t, 0, map[string]any{"payload.summary": "ONSET: edge-17 was missed: no instance was there (Heartbeat_edge)"})
}

func TestOpsgenieAlerts(t *testing.T) {
	s := newService(t, http.StatusAccepted)
	s.deliver(t, sink.WebhookConfig{URL: sink.Secret(s.url + "/jsm/ops"), Service: sink.Opsgenie, Key: "api-key"})
	s.wantSeen(t, "POST /jsm/ops/v2/alerts GenieKey api-key", "POST /jsm/ops/v2/alerts/"+requestID+"/close?identifierType=alias GenieKey api-key", "POST /jsm/ops/v2/alerts GenieKey api-key")
	s.want(t, 0, map[string]any{
		"alias": requestID, "entity": "edge-17", "priority": "P2", "tags": []any{"edge", "north", "Heartbeat_edge"}, "details.site": "berlin", "source": "understudy",
	})
	s.want(t, 1, map[string]any{"alias": nil, "source": "understudy"})
	s.want(t, 3, map[string]any{"priority": "P3"})
	if message, _ := s.sent[3]["message"].(string); len([]rune(message)) != 130 || !strings.HasPrefix(message, "ONSET") {
		t.Errorf("Opsgenie refuses more than 130 characters; %d: %q", len([]rune(message)), message)
	}
}

func TestNtfy(t *testing.T) {
	s := newService(t, http.StatusOK)
	s.deliver(t, sink.WebhookConfig{URL: sink.Secret(s.url + "/base/alerts"), Service: sink.Ntfy})
	s.wantSeen(t, "POST /base", "POST /base")
	s.want(t, 0, map[string]any{"topic": "alerts", "priority": 4.0, "tags": []any{"rotating_light"}})
	s.want(t, 1, map[string]any{"topic": "alerts", "priority": 3.0})
	if title, _ := s.sent[0]["title"].(string); !strings.Contains(title, "edge-17") {
		t.Errorf("%v", s.sent[0])
	}
	s = newService(t, http.StatusOK)
	s.deliver(t, sink.WebhookConfig{URL: sink.Secret(s.url + "/a%2Fb/alerts/"), Service: sink.Ntfy})
	s.wantSeen(t, "POST /a/b")
	s.want(t, 0, map[string]any{"topic": "alerts"})
}

// TestTelegram: a template serves where there is no format.
func TestTelegram(t *testing.T) {
	s := newService(t, http.StatusOK)
	s.deliver(t, sink.WebhookConfig{URL: sink.Secret(s.url + "/bot123:abc/sendMessage"), Body: `{"chat_id": -100123, "text": {{json .Text}}}`})
	s.wantSeen(t, "POST /bot123:abc/sendMessage")
	s.want(t, 0, map[string]any{"chat_id": -100123.0})
}

// TestServiceSecrets: the key appears in no message, even if the service repeats it.
func TestServiceSecrets(t *testing.T) {
	for _, kind := range []string{sink.PagerDuty, sink.Opsgenie} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			http.Error(w, "no such key: "+string(body)+r.Header.Get("Authorization"), http.StatusForbidden)
		})
		s := hook(t, sink.WebhookConfig{URL: sink.Secret(url), Service: kind, Key: "very-secret-key"})
		got := tell(t, s, onset())
		if got.Outcome != dispatch.Misconfigured || strings.Contains(got.Detail+s.Name(), "very-secret") {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

func TestServiceInvalid(t *testing.T) {
	empty := ""
	for name, c := range map[string]sink.WebhookConfig{
		"pagerduty, opsgenie or ntfy": {URL: "http://127.0.0.1/", Service: "pager"},
		"routing key":                 {Service: sink.PagerDuty},
		"token_file":                  {URL: "http://127.0.0.1/x", Service: sink.Ntfy, Key: "k"},
		"exclude":                     {Service: sink.PagerDuty, Key: "k", Body: "{}"},
		"names no topic":              {URL: "http://127.0.0.1/", Service: sink.Ntfy},
		"template":                    {Service: sink.PagerDuty, Key: "k", Abated: &empty},
		"a key is for":                {URL: "http://127.0.0.1/", Key: "k"},
	} {
		err := sink.Config{Name: "s", Webhook: &c}.Validate()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; want %q", err, name)
		}
	}
	for _, c := range []sink.WebhookConfig{{Service: sink.PagerDuty, Key: "k"}, {Service: sink.Opsgenie, Key: "k"}} {
		if err := (sink.Config{Name: "s", Webhook: &c}).Validate(); err != nil {
			t.Errorf("the service's own URL: %v", err)
		}
	}
}
