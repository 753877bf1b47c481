package sink

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Secret is text that is never shown. URLs of webhooks are secrets: whoever knows
// them can post.
type Secret = secret.Text

// Config of a sink: its name and exactly one of the others.
type Config struct {
	// Name of the sink: see [monitor.ValidateSink]. Required.
	Name string
	// Format of what a webhook, a Message Router, a mail or a log gets. Default: that of its kind, a control-loop event
	// for a Message Router. The others have one format.
	Format Format

	Webhook       *WebhookConfig
	Slack         *SlackConfig
	MessageRouter *MessageRouterConfig
	Alertmanager  *AlertmanagerConfig
	Email         *EmailConfig
	Log           *LogConfig
}

// HTTP is what sinks have in common that are reached by HTTP. The environment's
// proxies are used, but never for loopback.
type HTTP struct {
	// CAFile has the certificates (PEM) that are trusted instead of the system's.
	CAFile string
	// TokenFile has the token that is sent as "Authorization: Bearer TOKEN". It
	// is read again when it has changed. Default: no such header.
	TokenFile string
	// Concurrency is how many connections are kept open for the next request: that
	// of the queue's dispatcher fits. Default 64.
	Concurrency int
}

// WebhookConfig is for anything that takes HTTP requests.
type WebhookConfig struct {
	// URL that requests go to: http or https. Required, unless Service has one.
	URL Secret
	HTTP
	// Service in whose format requests are sent: [PagerDuty], [Opsgenie] or [Ntfy]. Default: a template, or JSON.
	Service string
	// Key of the service, if it has one: PagerDuty's routing key, or Opsgenie's API key.
	Key Secret
	// Method is POST, PUT or PATCH. Default POST.
	Method string
	// Header has more headers for each request.
	Header map[string]Secret
	// Secret signs each request, as package dispatch/target does. Default: no
	// signature.
	Secret Secret
	// Signature is how; see [target.Signature].
	Signature target.Signature
	// Deduplicates declares that the receiver deduplicates by the Idempotency-Key of what
	// it has, however late it comes again.
	Deduplicates bool

	// Body is a template, as Go's text/template has them, for the body, over [Data]. Default: the
	// monitor.AlarmMessage as JSON.
	Body string
	// Onset and Abated are templates instead of Body for one of both. A body that is
	// empty, or nothing but white space, is not sent: nobody is told.
	Onset, Abated *string
	// ContentType of what templates make. Default application/json; what they make
	// must be JSON then.
	ContentType string
}

// SlackConfig is for Slack's incoming webhooks, and for others that take the same form
// (Mattermost, Rocket.Chat, Discord with /slack).
type SlackConfig struct {
	// URL of the incoming webhook. Required.
	URL Secret
	HTTP
}

// MessageRouterConfig is for a topic of a DMaaP Message Router.
type MessageRouterConfig struct {
	// URL of the topic. Required.
	URL string
	// User and Password are sent as basic authentication. Default: none.
	User     string
	Password Secret
	CAFile   string // see [HTTP]
}

// AlertmanagerConfig is for Prometheus's Alertmanager, API v2.
//
// An alert is told once, and again when it ends. Alertmanager keeps alerts in
// memory only: after a restart it does not know those that stand.
type AlertmanagerConfig struct {
	// URLs of all members of a cluster, as Prometheus is given them: without a load
	// balancer. Alerts are sent to all; one that takes it is enough. Required.
	URLs []Secret
	HTTP
	// MaxAlertAge is how long an alert stands there if nobody ends it. Default: ten years.
	MaxAlertAge time.Duration
}

// EmailConfig is for mail by SMTP.
type EmailConfig struct {
	// Server is its host, or host and port. The default port is 587, with TLS 465,
	// without TLS 25. Required.
	Server string
	// TLS is "starttls" (default): required; "tls": from the beginning; or "none".
	TLS    string
	CAFile string // see [HTTP]
	// User and Password to log in with (PLAIN or LOGIN), never without TLS but on
	// loopback. Default: not to log in.
	User     string
	Password Secret
	// From, and at least one To, are addresses as in a mail: "Ops <ops@example.com>".
	From string
	To   []string
	// Hello is how this host calls itself. Default localhost.
	Hello string
	// Concurrency is how many mails are sent at once. Default 4.
	Concurrency int
}

// LogConfig is for a line of a log for each alarm.
type LogConfig struct {
	// Logger that gets a warning for each ONSET, and a line of level info for each
	// ABATED, whatever level it is set to. Required.
	Logger *slog.Logger
}

// kind is what all kinds of configuration can do.
type kind interface {
	name() string // of the kind
	validate() error
	open(sink string) (receiver, error)
}

func (c Config) kind() (kind, error) {
	var kinds []kind
	for _, k := range []struct {
		set bool
		kind
	}{
		{c.Webhook != nil, c.Webhook}, {c.Slack != nil, c.Slack}, {c.MessageRouter != nil, c.MessageRouter},
		{c.Alertmanager != nil, c.Alertmanager}, {c.Email != nil, c.Email}, {c.Log != nil, c.Log},
	} {
		if k.set {
			kinds = append(kinds, k.kind)
		}
	}
	switch len(kinds) {
	case 0:
		return nil, errors.New("say what it is: webhook, slack, message router, alertmanager, email or log")
	case 1:
		return kinds[0], nil
	}
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.name())
	}
	return nil, fmt.Errorf("it is %s at once; make a sink of each", strings.Join(names, " and "))
}

// Validate returns an error that wraps [lease.ErrInvalid], names the sink, and says
// what to do. It reads no files.
func (c Config) Validate() error {
	if err := monitor.ValidateSink(c.Name); err != nil {
		return err
	}
	k, err := c.kind()
	if err == nil {
		err = k.validate()
	}
	if err == nil {
		err = c.validateFormat(k.name())
	}
	return c.wrong(err)
}

// wrong makes an error of it that names the sink.
func (c Config) wrong(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrInvalid):
		return fmt.Errorf("sink %s: %w", c.Name, err)
	}
	return fmt.Errorf("%w: sink %s: %w", lease.ErrInvalid, c.Name, err)
}

// String shows the sink's name and kind.
func (c Config) String() string {
	what := "not valid"
	if k, err := c.kind(); err == nil {
		what = k.name()
	}
	return "sink " + c.Name + ": " + what
}
