package settings

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// Sink is a receiver of alarms: one of webhook, slack and so on says how.
type Sink struct {
	Sink          string        `yaml:"sink" help:"name of the sink; servers that share a store use the same name for the same receiver"`
	Webhook       *HookSink     `yaml:"webhook" help:"POST to a URL"`
	Slack         *SlackSink    `yaml:"slack" help:"post to a Slack incoming webhook"`
	MessageRouter *TopicSink    `yaml:"message_router" help:"publish to a topic of a Message Router"`
	Alertmanager  *AlertSink    `yaml:"alertmanager" help:"send to Prometheus Alertmanager"`
	Email         *EmailSink    `yaml:"email" help:"send e-mail"`
	Log           *LogSink      `yaml:"log" help:"write a log line for each alarm"`
	Format        string        `yaml:"format" help:"send ONAP's control-loop events: control_loop, control_loop_micros (times in microseconds), or control_loop_original (exactly as ONAP's heartbeat service); for webhook, message_router, email and log"`
	SubmitTimeout time.Duration `yaml:"submit_timeout" default:"10s" help:"deadline of one delivery"`
	Concurrency   int           `yaml:"concurrency" default:"64" help:"deliveries in flight at once"`
	Rate          float64       `yaml:"rate" help:"start at most this many deliveries per second (default: no limit)"`
	OnFailure     string        `yaml:"on_failure" help:"an alarm that the receiver refuses: retry it until it is accepted (default), block the source, or skip the alarm"`
	Keep          time.Duration `yaml:"keep" default:"168h" help:"keep delivered alarms this long; negative: for ever"`
	FirstWindow   time.Duration `yaml:"first_window" default:"5s" help:"other instances deliver the alarms of an instance that has been silent this long"`
	SecondWindow  time.Duration `yaml:"second_window" default:"20s" help:"… and an alarm in flight only this long after its delivery started"`
}

// SinkHTTP is what all sinks have that are reached by HTTP. URLFile is read
// instead of URL where that is a secret.
type SinkHTTP struct {
	URL       string `yaml:"url" secret:"path" help:"URL to send to"`
	URLFile   string `yaml:"url_file" help:"file with the URL, if that is a secret"`
	CAFile    string `yaml:"ca_file" help:"certificates to trust instead of the system's"`
	TokenFile string `yaml:"token_file" help:"file with a bearer token to send"`
}

// HookSink is a sink.WebhookConfig in the file.
type HookSink struct {
	SinkHTTP     `yaml:",inline"`
	Service      string            `yaml:"service" help:"send in the format of a service: pagerduty, opsgenie (or Jira Service Management) or ntfy (default: templates, or the alarm as JSON)"`
	KeyFile      string            `yaml:"key_file" help:"file with PagerDuty's routing key or Opsgenie's API key"`
	Method       string            `yaml:"method" default:"POST" help:"POST, PUT or PATCH"`
	Headers      map[string]string `yaml:"headers" secret:"all" help:"more headers"`
	HeaderFiles  map[string]string `yaml:"header_files" help:"secret headers: the file with the value of each"`
	SecretFile   string            `yaml:"secret_file" help:"file with the secret that signs each request"`
	Signature    string            `yaml:"signature" default:"standard" help:"how: standard (Standard Webhooks), or understudy, which covers its own headers too"`
	Deduplicates bool              `yaml:"deduplicates" was:"recognises" help:"the receiver deduplicates by Idempotency-Key"`
	Body         string            `yaml:"body" help:"template of the body (default: the alarm as JSON)"`
	Onset        *string           `yaml:"onset" help:"template for an ONSET, instead of body"`
	Abated       *string           `yaml:"abated" help:"template for an ABATED, instead of body; empty: send nothing"`
	ContentType  string            `yaml:"content_type" help:"content type of the templates (default: application/json)"`
}

// SlackSink is a sink.SlackConfig in the file.
type SlackSink struct {
	SinkHTTP `yaml:",inline"`
}

// TopicSink is a sink.MessageRouterConfig in the file.
type TopicSink struct {
	URL          string `yaml:"url" secret:"url" help:"URL of the topic"`
	User         string `yaml:"user" help:"user at the router"`
	PasswordFile string `yaml:"password_file" help:"file with the user's password"`
	CAFile       string `yaml:"ca_file" help:"certificates to trust instead of the system's"`
	Compat       string `yaml:"compat" help:"\"onap\": the same as format: control_loop_original"`
	Micros       bool   `yaml:"micros" help:"the same as format: control_loop_micros"`
}

// AlertSink is a sink.AlertmanagerConfig in the file.
type AlertSink struct {
	URLs        []string      `yaml:"urls" secret:"url" help:"URLs of all members of the cluster"`
	CAFile      string        `yaml:"ca_file" help:"certificates to trust instead of the system's"`
	TokenFile   string        `yaml:"token_file" help:"file with a bearer token to send"`
	MaxAlertAge time.Duration `yaml:"max_alert_age" was:"lasts" help:"how long an alert lasts that is never ended (default: 87600h)"`
}

// EmailSink is a sink.EmailConfig in the file.
type EmailSink struct {
	Server       string   `yaml:"server" flag:"email-server" more:"yes" help:"… through this server, 'HOST[:PORT]' (default: 127.0.0.1)"`
	TLS          string   `yaml:"tls" flag:"email-tls" more:"yes" help:"… with starttls (default), tls or none"`
	CAFile       string   `yaml:"ca_file" flag:"-" help:"certificates to trust instead of the system's"`
	User         string   `yaml:"user" flag:"email-user" more:"yes" help:"… logged in as this 'USER'"`
	PasswordFile string   `yaml:"password_file" flag:"email-password-file" more:"yes" help:"… with the password in this 'FILE'"`
	From         string   `yaml:"from" flag:"email-from" more:"yes" help:"… from this 'ADDRESS'"`
	To           []string `yaml:"to" flag:"email" help:"send mail to this 'ADDRESS'; repeat for more"`
	Hello        string   `yaml:"hello" flag:"-" help:"name of this host in the SMTP greeting"`
}

// LogSink is a line of this program's log for each alarm: log: {}.
type LogSink struct{}

// Queue is how the sink's queue is delivered.
func (c *Sink) Queue() *Queue {
	q := *c
	strictyaml.ApplyDefaults(&q)
	return &Queue{
		Queue: monitor.SinkQueue(q.Sink), FirstWindow: q.FirstWindow, SecondWindow: q.SecondWindow, SubmitTimeout: q.SubmitTimeout,
		Concurrency: q.Concurrency, Rate: q.Rate, OnFailure: cmp.Or(q.OnFailure, string(dispatch.OnFailureRetry)), Keep: q.Keep,
	}
}

// check refuses what can be refused without a store; files are read.
func (c *Sink) check() error {
	if err := monitor.ValidateSink(c.Sink); err != nil {
		return err
	}
	made, err := c.sink(slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	if err := made.Validate(); err != nil {
		return err
	}
	if err := c.Queue().checkDelivery(); err != nil {
		return fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	return nil
}

// Target makes what the sink's queue is delivered to.
func (c *Sink) Target(log *slog.Logger) (dispatch.Target, error) {
	made, err := c.sink(log)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	return sink.New(made)
}

func (c *Sink) sink(log *slog.Logger) (out sink.Config, err error) {
	out.Name, out.Format = c.Sink, sink.Format(c.Format)
	if c.Webhook != nil {
		if out.Webhook, err = c.Webhook.sink(c.Concurrency); err != nil {
			return out, err
		}
	}
	if c.Slack != nil {
		out.Slack = &sink.SlackConfig{HTTP: c.Slack.http(c.Concurrency)}
		if out.Slack.URL, err = c.Slack.url(); err != nil {
			return out, err
		}
	}
	if c.MessageRouter != nil {
		if out.MessageRouter, err = c.MessageRouter.sink(); err != nil {
			return out, err
		}
		if out.Format, err = c.MessageRouter.format(c.Format); err != nil {
			return out, err
		}
	}
	if m := c.Alertmanager; m != nil {
		out.Alertmanager = &sink.AlertmanagerConfig{HTTP: sink.HTTP{CAFile: m.CAFile, TokenFile: m.TokenFile, Concurrency: c.Concurrency}, MaxAlertAge: m.MaxAlertAge}
		for _, u := range m.URLs {
			out.Alertmanager.URLs = append(out.Alertmanager.URLs, sink.Secret(u))
		}
	}
	if m := c.Email; m != nil {
		out.Email = &sink.EmailConfig{
			Server: m.Server, TLS: m.TLS, CAFile: m.CAFile, User: m.User, From: m.From, To: m.To, Hello: m.Hello, Concurrency: c.Concurrency,
		}
		if out.Email.Password, err = optionalSecret("password_file", m.PasswordFile); err != nil {
			return out, err
		}
	}
	if c.Log != nil {
		out.Log = &sink.LogConfig{Logger: log}
	}
	return out, nil
}

func (c *SinkHTTP) http(concurrency int) sink.HTTP {
	return sink.HTTP{CAFile: c.CAFile, TokenFile: c.TokenFile, Concurrency: concurrency}
}

// url is where to reach the sink, from the file if it is a secret.
func (c *SinkHTTP) url() (sink.Secret, error) {
	if c.URLFile == "" {
		return sink.Secret(c.URL), nil
	}
	if c.URL != "" {
		return "", usererr.Errorf("url and url_file exclude each other")
	}
	return optionalSecret("url_file", c.URLFile)
}

func (c *HookSink) sink(concurrency int) (*sink.WebhookConfig, error) {
	out := &sink.WebhookConfig{
		HTTP: c.http(concurrency), Service: c.Service, Method: c.Method, Signature: target.Signature(c.Signature), Header: map[string]sink.Secret{}, Deduplicates: c.Deduplicates,
		Body: c.Body, Onset: c.Onset, Abated: c.Abated, ContentType: c.ContentType,
	}
	var err error
	if out.URL, err = c.url(); err != nil {
		return nil, err
	}
	if out.Secret, err = optionalSecret("secret_file", c.SecretFile); err != nil {
		return nil, err
	}
	if out.Key, err = optionalSecret("key_file", c.KeyFile); err != nil {
		return nil, err
	}
	headers, err := secretHeaders(c.Headers, c.HeaderFiles)
	for name, value := range headers {
		out.Header[name] = sink.Secret(value)
	}
	return out, err
}

func (c *TopicSink) sink() (*sink.MessageRouterConfig, error) {
	out := &sink.MessageRouterConfig{URL: c.URL, User: c.User, CAFile: c.CAFile}
	var err error
	out.Password, err = optionalSecret("password_file", c.PasswordFile)
	return out, err
}

// format is that of the sink, or what the keys say that were there before it.
func (c *TopicSink) format(of string) (sink.Format, error) {
	switch out := sink.Format(of); {
	case c.Compat != "" && c.Compat != "onap":
		return out, usererr.Errorf("compat %q: use onap, or leave it out", c.Compat)
	case c.Compat != "" && c.Micros, of != "" && (c.Compat != "" || c.Micros):
		return out, usererr.Errorf("compat, micros and format exclude each other")
	case c.Compat != "":
		return sink.ControlLoopOriginal, nil
	case c.Micros:
		return sink.ControlLoopMicros, nil
	default:
		return out, nil
	}
}
