package sink

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/monitor"
)

// Services in whose formats a webhook can send.
const (
	PagerDuty = "pagerduty" // Events API v2
	Opsgenie  = "opsgenie"  // its Alert API, which Jira Service Management has too
	Ntfy      = "ntfy"      // JSON of an ntfy server; the URL is that of the topic
)

// service is how requests to one of them are made.
type service struct {
	url string // where it is, unless the configuration says otherwise; "" if that has to
	key bool   // it needs WebhookConfig.Key
	// keyHint says what to do when key and WebhookConfig.Key differ.
	keyHint string
	// target changes what the request is sent with.
	target func(c *WebhookConfig, t *target.WebhookConfig)
	body   func(c *WebhookConfig, m monitor.AlarmMessage) any
}

var services = map[string]service{
	PagerDuty: {url: "https://events.pagerduty.com/v2/enqueue", key: true, keyHint: "put the routing key of the integration into key_file", body: pagerDutyEvent},
	Opsgenie:  {url: "https://api.opsgenie.com", key: true, keyHint: "put the API key into key_file", target: opsgenieTarget, body: opsgenieRequest},
	Ntfy:      {keyHint: "it has no key; put the token of a protected topic into token_file", target: ntfyTarget, body: ntfyMessage},
}

// withService has the URL of the service, if it has one of its own.
func (c WebhookConfig) withService() *WebhookConfig {
	c.URL = cmp.Or(c.URL, Secret(services[c.Service].url))
	return &c
}

func (c *WebhookConfig) validateService() error {
	f, known := services[c.Service]
	switch {
	case c.Service == "" && c.Key != "":
		return errors.New("a key is for a service that has one, pagerduty or opsgenie")
	case c.Service == "":
		return nil
	case !known:
		return fmt.Errorf("service %q; use %s, %s or %s, or a template in body", c.Service, PagerDuty, Opsgenie, Ntfy)
	case c.Body != "" || c.Onset != nil || c.Abated != nil || c.ContentType != "":
		return fmt.Errorf("service %s makes the body; a template and a content type exclude it", c.Service)
	case f.key != (c.Key != ""):
		return fmt.Errorf("service %s: %s", c.Service, f.keyHint)
	case c.Service == Ntfy && ntfyTopic(c.URL) == "":
		return errors.New("service ntfy: url names no topic; write it as https://ntfy.sh/my-alarms")
	}
	return nil
}

// Limits of the services' texts, in characters.
const (
	maxSummary     = 1024   // of PagerDuty
	maxMessage     = 130    // of Opsgenie
	maxDescription = 15_000 // of Opsgenie
	maxNtfy        = 1000   // ntfy makes an attachment of more than 4096 bytes
)

// cut is the beginning of a text.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// details are the facts by their names.
func details(m monitor.AlarmMessage) map[string]string {
	out := map[string]string{}
	for _, f := range facts(m) {
		out[f.name] = f.text
	}
	return out
}

func pagerDutyEvent(c *WebhookConfig, m monitor.AlarmMessage) any {
	out := map[string]any{"routing_key": string(c.Key), "dedup_key": m.RequestID, "event_action": "trigger", "client": "understudy"}
	if m.Status == monitor.Abated {
		out["event_action"] = "resolve"
	}
	severity := m.Severity
	switch severity {
	case "critical", "error", "warning", "info":
	case "minor":
		severity = "warning"
	default:
		severity = "error" // PagerDuty takes these four alone
	}
	if m.Acknowledge != "" {
		out["links"] = []any{map[string]string{"href": m.Acknowledge, "text": "Acknowledge"}}
	}
	out["payload"] = map[string]any{
		"summary": cut(title(m), maxSummary), "source": who(m), "severity": severity, "timestamp": began(m, time.Now()).UTC().Format(time.RFC3339Nano),
		"component": m.Event, "class": string(m.Reason), "custom_details": details(m),
	}
	return out
}

// opsgenieTarget sends an alert to one address, and its end to another.
func opsgenieTarget(c *WebhookConfig, t *target.WebhookConfig) {
	t.Header.Set("Authorization", "GenieKey "+string(c.Key))
	t.At = func(base *url.URL, a dispatch.Assignment) *url.URL {
		alias, ended := strings.CutSuffix(a.ID, "/"+string(monitor.Abated))
		if !ended {
			return base.JoinPath("v2/alerts")
		}
		to := base.JoinPath("v2/alerts", url.PathEscape(alias), "close")
		to.RawQuery = "identifierType=alias"
		return to
	}
}

func opsgenieRequest(_ *WebhookConfig, m monitor.AlarmMessage) any {
	if m.Status == monitor.Abated {
		return map[string]any{"source": "understudy", "note": title(m)}
	}
	priority := map[string]string{"critical": "P1", "major": "P2", "error": "P2", "warning": "P4", "minor": "P4", "info": "P5"}[m.Severity]
	return map[string]any{
		"message": cut(title(m), maxMessage), "alias": m.RequestID, "description": cut(text(m), maxDescription), "entity": who(m), "source": "understudy",
		"tags": append(slices.Clone(m.Tags), m.Event), "details": details(m), "priority": cmp.Or(priority, "P3"),
	}
}

// ntfyTarget posts to the server, because JSON names the topic itself.
func ntfyTarget(c *WebhookConfig, t *target.WebhookConfig) {
	if u, err := url.Parse(t.URL); err == nil {
		u.Path, u.RawPath = path.Dir(strings.TrimRight(u.Path, "/")), ""
		t.URL = u.String()
	}
}

// ntfyTopic is the last part of the URL's path, "" if it has none.
func ntfyTopic(of Secret) string {
	u, err := url.Parse(string(of))
	if err != nil || strings.Trim(u.Path, "/") == "" {
		return ""
	}
	return path.Base(u.Path)
}

func ntfyMessage(c *WebhookConfig, m monitor.AlarmMessage) any {
	out := map[string]any{"topic": ntfyTopic(c.URL), "title": title(m), "message": cut(text(m), maxNtfy), "priority": 4, "tags": []string{"rotating_light"}}
	if m.Status == monitor.Abated {
		out["priority"], out["tags"] = 3, []string{"white_check_mark"}
	}
	if m.Acknowledge != "" {
		out["actions"] = []any{map[string]any{"action": "http", "label": "Acknowledge", "url": m.Acknowledge, "method": "POST", "clear": true}}
	}
	return out
}

// openService returns the receiver of a webhook to a service.
func (c *WebhookConfig) openService(t target.WebhookConfig, hidden []string) (receiver, error) {
	f := services[c.Service]
	if t.Header == nil {
		t.Header = http.Header{}
	}
	if f.target != nil {
		f.target(c, &t)
	}
	return openWebhook(t, c.URL, append(hidden, string(c.Key)), jsonType, func(a alarm) ([]byte, error) { return json.Marshal(f.body(c, a.m)) })
}
