package sink_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const requestID = "6f9b1f6e-3c55-4f0e-9d5c-5f1f6d0d7c11"

var (
	beganAt = time.Date(2026, time.November, 21, 10, 0, 15, 250e6, time.UTC)
	endedAt = beganAt.Add(90 * time.Second)
)

func onset() monitor.AlarmMessage {
	beat := beganAt.Add(-15 * time.Second)
	return monitor.AlarmMessage{
		Status: monitor.Onset, RequestID: requestID, Reason: monitor.Silent, Event: "Heartbeat_edge", Source: "edge-17",
		Severity: "major", Tags: []string{"edge", "north"}, Labels: map[string]string{"site": "berlin", "rack.no": "7"},
		Started: beganAt, Raised: beganAt.Add(time.Millisecond), LastBeat: &beat, Limit: "15s",
		ControlLoop: monitor.ControlLoop{Name: "CL-edge", PolicyName: "restartEdge", TargetType: "VNF"},
	}
}

func abated() monitor.AlarmMessage {
	m := onset()
	m.Status, m.Ended = monitor.Abated, &endedAt
	return m
}

func ended(by monitor.Transition) monitor.AlarmMessage {
	m := abated()
	m.End = by
	return m
}

func group() monitor.AlarmMessage {
	m := onset()
	m.Source, m.GroupBy, m.Group = "", "site", "berlin"
	m.Members, m.Count = []string{"edge-1", "edge-2", "edge-3"}, 3
	return m
}

// batch is what a dispatcher makes of a message.
func batch(t *testing.T, m monitor.AlarmMessage) dispatch.Assignment {
	t.Helper()
	notices := m.Notifications([]string{"pager"})
	n := notices[0]
	return dispatch.Assignment{
		Message: dispatch.Message{Queue: monitor.SinkQueue(n.Sink), Key: n.Key, ID: n.ID, ContentType: dispatch.DefaultContentType, Payload: n.Payload},
		Work:    dispatch.Send, Seq: 7, Term: 1234, Attempt: 1,
	}
}

func open(t *testing.T, c sink.Config) dispatch.Target {
	t.Helper()
	if c.Name == "" {
		c.Name = "pager"
	}
	s, err := sink.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// deliver tells a sink, with a deadline that only a sink which hangs will meet.
func tell(t *testing.T, s dispatch.Target, m monitor.AlarmMessage) dispatch.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Submit(ctx, batch(t, m))
}

func wants(t *testing.T, got dispatch.Answer, want dispatch.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// received is a server that keeps the bodies of what it is sent.
func received(t *testing.T) (url string, bodies func() []string) {
	t.Helper()
	got := make(chan string, 100)
	url = serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	})
	return url, func() []string {
		var all []string
		for {
			select {
			case b := <-got:
				all = append(all, b)
			default:
				return all
			}
		}
	}
}

// caFile writes the certificate of a test server to a file.
func caFile(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hostile are names that try to be more than text. The store refuses some of them; no
// sink depends on that.
func hostile() []string {
	return []string{
		"edge\r\nBcc: victim@example.com\r\n\r\nbody",
		`"quoted" \ 'single' \u0041 `,
		"<!channel> <@U024BE7LH> <http://evil|click> & <script>alert(1)</script>",
		"{{.RequestID}} {{json .}} {{range .Members}}",
		"@channel @HERE user@host",
		"=?utf-8?q?=0D=0AX-Evil:_1?=",
		"*bold* _it_ ~no~ `code` [link](http://evil)",
		"\x00\x1b[31mred\x7f",
		".\r\n.\r\nQUIT\r\n",
		"../../etc/passwd",
		strings.Repeat("日", 66),
		"a=b,c=d ${jndi:ldap://x} %s%n",
		"bad utf-8 \xff\xfe",
	}
}

// named gives everything in a message that hostile name.
func named(m monitor.AlarmMessage, name string) monitor.AlarmMessage {
	m.Event, m.Source, m.Severity, m.Tags = name, name, name, []string{name}
	m.Labels = map[string]string{name: name}
	m.RequestID = name
	return m
}

func TestPayloads(t *testing.T) {
	url, bodies := received(t)
	s := open(t, sink.Config{Webhook: &sink.WebhookConfig{URL: sink.Secret(url)}})
	for name, payload := range map[string]string{
		"no JSON": "\x00", "empty": "", "an array": "[]", "no status": `{"event":"e","source":"s"}`,
		"another status": `{"status":"resume","event":"e","source":"s"}`, "no source": `{"status":"ONSET","event":"e"}`,
		"no event": `{"status":"ONSET","source":"s"}`, "a wrong type": `{"status":"ONSET","event":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := batch(t, onset())
			a.Payload = []byte(payload)
			wants(t, s.Submit(t.Context(), a), dispatch.InvalidMessage)
		})
	}
	if got := bodies(); len(got) != 0 {
		t.Errorf("sent %q", got)
	}
	if got := s.Semantics(); got != (dispatch.Semantics{Resend: true}) {
		t.Errorf("semantics %+v", got)
	}
	if got := s.Status(t.Context(), make([]dispatch.Assignment, 2)); len(got) != 2 || got[1].Outcome != dispatch.Uncertain {
		t.Errorf("asked: %+v", got)
	}
}

func TestConfigRefused(t *testing.T) {
	text := func(s string) *string { return &s }
	hook := func(change func(*sink.WebhookConfig)) sink.Config {
		c := sink.WebhookConfig{URL: "http://127.0.0.1:1/s3cret"}
		change(&c)
		return sink.Config{Name: "pager", Webhook: &c}
	}
	mail := func(change func(*sink.EmailConfig)) sink.Config {
		c := sink.EmailConfig{Server: "mail.example.com", From: "a@example.com", To: []string{"b@example.com"}}
		change(&c)
		return sink.Config{Name: "pager", Email: &c}
	}
	for want, c := range map[string]sink.Config{
		"sink":                         {Log: &sink.LogConfig{}},
		"say what it is":               {Name: "pager"},
		"webhook and slack at once":    {Name: "pager", Webhook: &sink.WebhookConfig{}, Slack: &sink.SlackConfig{}},
		"needs a logger":               {Name: "pager", Log: &sink.LogConfig{}},
		"is not http":                  {Name: "pager", Slack: &sink.SlackConfig{URL: "hooks.example.com/s3cret"}},
		"URL cannot be read":           {Name: "pager", Slack: &sink.SlackConfig{URL: "http://a b/s3cret"}},
		"user or password":             {Name: "pager", Slack: &sink.SlackConfig{URL: "http://u:s3cret@h/"}},
		"method":                       hook(func(c *sink.WebhookConfig) { c.Method = "GET" }),
		"belongs to the protocol":      hook(func(c *sink.WebhookConfig) { c.Header = map[string]sink.Secret{"Idempotency-Key": "x"} }),
		"valid header name":            hook(func(c *sink.WebhookConfig) { c.Header = map[string]sink.Secret{"X Y": "x"} }),
		"control character":            hook(func(c *sink.WebhookConfig) { c.Header = map[string]sink.Secret{"X": "s3cret\nY: z"} }),
		"can't evaluate field Nothing": hook(func(c *sink.WebhookConfig) { c.Body = "{{.Nothing}}" }),
		"unclosed action":              hook(func(c *sink.WebhookConfig) { c.Body = "{{.Source" }),
		`function "nothing"`:           hook(func(c *sink.WebhookConfig) { c.Body = "{{nothing}}" }),
		"use time or unix":             hook(func(c *sink.WebhookConfig) { c.Onset = text("{{.Started.Year}}") }), // a method
		"is not valid JSON":            hook(func(c *sink.WebhookConfig) { c.Body = `{"who": "{{.Source}}"}` }),
		"is not a time":                hook(func(c *sink.WebhookConfig) { c.Body = `{{time .Source}}` }),
		"more than 1048576 bytes": hook(func(c *sink.WebhookConfig) {
			c.Body, c.ContentType = `{{range 100000}}{{$.Text}}{{end}}`, "text/plain"
		}),
		"exceeded maximum template depth": hook(func(c *sink.WebhookConfig) { c.Body = `{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}` }),
		"content type without a template": hook(func(c *sink.WebhookConfig) { c.ContentType = "text/plain" }),
		"content type":                    hook(func(c *sink.WebhookConfig) { c.Body, c.ContentType = "x", "a\r\nb" }),
		"needs the URL":                   {Name: "pager", Alertmanager: &sink.AlertmanagerConfig{}},
		"appears twice":                   {Name: "pager", Alertmanager: &sink.AlertmanagerConfig{URLs: []sink.Secret{"http://a", "http://a"}}},
		"hundred years":                   {Name: "pager", Alertmanager: &sink.AlertmanagerConfig{URLs: []sink.Secret{"http://a"}, MaxAlertAge: -1}},
		"names no topic":                  {Name: "pager", MessageRouter: &sink.MessageRouterConfig{URL: "http://router"}},
		"use HOST or HOST:PORT":           mail(func(c *sink.EmailConfig) { c.Server = "" }),
		"use starttls, tls or none":       mail(func(c *sink.EmailConfig) { c.TLS = "yes" }),
		"password without a user":         mail(func(c *sink.EmailConfig) { c.Password = "s3cret" }),
		"without TLS on loopback":         mail(func(c *sink.EmailConfig) { c.TLS, c.User, c.Password = "none", "u", "s3cret" }),
		"at least one address":            mail(func(c *sink.EmailConfig) { c.To = nil }),
		"use name@example.com":            mail(func(c *sink.EmailConfig) { c.From = "nobody" }),
		"no angle-addr":                   mail(func(c *sink.EmailConfig) { c.To = []string{"x@example.com\r\nBcc: y@example.com"} }),
		"use ASCII":                       mail(func(c *sink.EmailConfig) { c.To = []string{"bärbel@example.com"} }),
		"hello":                           mail(func(c *sink.EmailConfig) { c.Hello = "a\r\nb" }),
		"cannot be negative":              mail(func(c *sink.EmailConfig) { c.Concurrency = -1 }),
	} {
		t.Run(want, func(t *testing.T) {
			err := c.Validate()
			switch {
			case err == nil:
				t.Fatal("accepted")
			case !errors.Is(err, lease.ErrInvalid), !strings.Contains(err.Error(), want) && want != "no angle-addr":
				t.Errorf("got %v", err)
			case strings.Contains(err.Error(), "s3cret"):
				t.Errorf("shows a secret: %v", err)
			case c.Name != "" && !strings.Contains(err.Error(), "pager"):
				t.Errorf("does not name the sink: %v", err)
			}
			if _, err := sink.New(c); err == nil {
				t.Error("opened")
			}
		})
	}
	for name, c := range map[string]sink.Config{
		"token": {Name: "pager", Slack: &sink.SlackConfig{URL: "http://h/", HTTP: sink.HTTP{TokenFile: "/nowhere"}}},
		"ca":    {Name: "pager", MessageRouter: &sink.MessageRouterConfig{URL: "https://h/events/T", CAFile: "/nowhere"}},
		"mail":  mail(func(c *sink.EmailConfig) { c.CAFile = "/nowhere" }),
	} {
		if _, err := sink.New(c); !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "/nowhere") || !strings.Contains(err.Error(), "pager") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	c := sink.Config{Name: "pager",
		Webhook: &sink.WebhookConfig{URL: "http://h/s3cret-path?s3cret-query", Secret: "s3cret-hmac", Header: map[string]sink.Secret{"Authorization": "s3cret-header"}},
		Email:   &sink.EmailConfig{Password: "s3cret-mail"}, MessageRouter: &sink.MessageRouterConfig{Password: "s3cret-router"},
		Slack: &sink.SlackConfig{URL: "http://h/s3cret-slack"}, Alertmanager: &sink.AlertmanagerConfig{URLs: []sink.Secret{"http://h/s3cret-am"}},
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, c), fmt.Sprintf(verb, *c.Webhook), fmt.Sprintf(verb, c.Webhook), fmt.Sprintf(verb, *c.Email),
			fmt.Sprintf(verb, *c.MessageRouter), fmt.Sprintf(verb, *c.Slack), fmt.Sprintf(verb, *c.Alertmanager))
	}
	for _, s := range shown {
		if strings.Contains(s, "s3cret") || strings.Contains(s, fmt.Sprintf("%x", "s3cret")) {
			t.Errorf("shown: %s", s)
		}
	}
}

// TestDeadlineOfDelivery: the time-out that a sink is configured with counts, also when it is long.
func TestDeadlineOfDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ given, want time.Duration }{"configured": {2 * time.Minute, 2 * time.Minute}, "none": {0, time.Minute}} {
			ctx := t.Context()
			if c.given > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.given)
				defer cancel()
			}
			start := time.Now()
			if sink.SubmitTo(ctx, func(ctx context.Context) { <-ctx.Done() }, batch(t, onset())); time.Since(start) != c.want {
				t.Errorf("%s: the delivery had %v, want %v", name, time.Since(start), c.want)
			}
		}
	})
}
