package settings

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// The windows of a sink's queue: who delivers alarms is missed sooner than others,
// and they are small.
const (
	sinkFirst  = 5 * time.Second
	sinkSecond = 20 * time.Second
	sinkSubmit = 10 * time.Second
)

// Sink is who is told of alarms.
type Sink struct {
	Sink string `yaml:"sink"`
	// One of these says how.
	Webhook       *HookSink  `yaml:"webhook"`
	Slack         *SlackSink `yaml:"slack"`
	MessageRouter *TopicSink `yaml:"message_router"`
	Alertmanager  *AlertSink `yaml:"alertmanager"`
	Email         *EmailSink `yaml:"email"`
	Log           *LogSink   `yaml:"log"`
	// SubmitTimeout is the deadline of one telling. Default 10s.
	SubmitTimeout strict.Duration `yaml:"submit_timeout"`
	// Concurrency, Rate, OnFailure and Keep: as of a queue.
	Concurrency int             `yaml:"concurrency"`
	Rate        float64         `yaml:"rate"`
	OnFailure   string          `yaml:"on_failure"`
	Keep        strict.Duration `yaml:"keep"`
	// The windows that keep a source's alarms from other instances. Default 5s and 20s.
	FirstWindow  strict.Duration `yaml:"first_window"`
	SecondWindow strict.Duration `yaml:"second_window"`
}

// SinkHTTP is what all sinks have that are reached by HTTP. URLFile is read
// instead of URL where that is a secret.
type SinkHTTP struct {
	URL       string `yaml:"url" secret:"path"`
	URLFile   string `yaml:"url_file"`
	CAFile    string `yaml:"ca_file"`
	TokenFile string `yaml:"token_file"`
}

// HookSink is a sink.WebhookConfig in the file.
type HookSink struct {
	SinkHTTP `yaml:",inline"`
	Method   string            `yaml:"method"`
	Headers  map[string]string `yaml:"headers" secret:"all"`
	// HeaderFiles have the values of headers that are secrets.
	HeaderFiles map[string]string `yaml:"header_files"`
	SecretFile  string            `yaml:"secret_file"`
	Recognises  bool              `yaml:"recognises"`
	Body        string            `yaml:"body"`
	Onset       *string           `yaml:"onset"`
	Abated      *string           `yaml:"abated"`
	ContentType string            `yaml:"content_type"`
}

// SlackSink is a sink.SlackConfig in the file.
type SlackSink struct {
	SinkHTTP `yaml:",inline"`
}

// TopicSink is a sink.MessageRouterConfig in the file.
type TopicSink struct {
	URL          string `yaml:"url" secret:"url"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
	// Compat is "onap" for events exactly as ONAP's own service makes them; Micros
	// gives times in microseconds, as ONAP's policies want them, which excludes it.
	Compat string `yaml:"compat"`
	Micros bool   `yaml:"micros"`
}

// AlertSink is a sink.AlertmanagerConfig in the file.
type AlertSink struct {
	URLs      []string        `yaml:"urls" secret:"url"`
	CAFile    string          `yaml:"ca_file"`
	TokenFile string          `yaml:"token_file"`
	Lasts     strict.Duration `yaml:"lasts"`
}

// EmailSink is a sink.EmailConfig in the file.
type EmailSink struct {
	Server       string   `yaml:"server"`
	TLS          string   `yaml:"tls"`
	CAFile       string   `yaml:"ca_file"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	From         string   `yaml:"from"`
	To           []string `yaml:"to"`
	Hello        string   `yaml:"hello"`
}

// LogSink is a line of this program's log for each alarm: log: {}.
type LogSink struct{}

// Queue is how the sink's queue is delivered.
func (c *Sink) Queue() *Queue {
	q := &Queue{
		Queue: monitor.QueueOf(c.Sink), FirstWindow: c.FirstWindow, SecondWindow: c.SecondWindow, SubmitTimeout: c.SubmitTimeout,
		Concurrency: c.Concurrency, Rate: c.Rate, OnFailure: c.OnFailure, Keep: c.Keep,
	}
	for d, to := range map[*strict.Duration]time.Duration{&q.FirstWindow: sinkFirst, &q.SecondWindow: sinkSecond, &q.SubmitTimeout: sinkSubmit} {
		if *d == 0 {
			*d = strict.Duration(to)
		}
	}
	return q
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
	out.Name = c.Sink
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
	}
	if m := c.Alertmanager; m != nil {
		out.Alertmanager = &sink.AlertmanagerConfig{HTTP: sink.HTTP{CAFile: m.CAFile, TokenFile: m.TokenFile, Concurrency: c.Concurrency}, Lasts: time.Duration(m.Lasts)}
		for _, u := range m.URLs {
			out.Alertmanager.URLs = append(out.Alertmanager.URLs, sink.Secret(u))
		}
	}
	if m := c.Email; m != nil {
		out.Email = &sink.EmailConfig{
			Server: m.Server, TLS: m.TLS, CAFile: m.CAFile, User: m.User, From: m.From, To: m.To, Hello: m.Hello, Concurrency: c.Concurrency,
		}
		if out.Email.Password, err = optionalSecret(m.PasswordFile); err != nil {
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
		return "", usage.Errorf("url and url_file exclude each other")
	}
	return optionalSecret(c.URLFile)
}

func (c *HookSink) sink(concurrency int) (*sink.WebhookConfig, error) {
	out := &sink.WebhookConfig{
		HTTP: c.http(concurrency), Method: c.Method, Header: map[string]sink.Secret{}, Recognises: c.Recognises,
		Body: c.Body, Onset: c.Onset, Abated: c.Abated, ContentType: c.ContentType,
	}
	var err error
	if out.URL, err = c.url(); err != nil {
		return nil, err
	}
	if out.Secret, err = optionalSecret(c.SecretFile); err != nil {
		return nil, err
	}
	headers, err := secretHeaders(c.Headers, c.HeaderFiles)
	for name, value := range headers {
		out.Header[name] = sink.Secret(value)
	}
	return out, err
}

func (c *TopicSink) sink() (*sink.MessageRouterConfig, error) {
	if c.Compat != "" && c.Compat != "onap" {
		return nil, usage.Errorf("compat %q: use onap, or leave it out", c.Compat)
	}
	out := &sink.MessageRouterConfig{URL: c.URL, User: c.User, CAFile: c.CAFile, Compat: c.Compat == "onap", Micros: c.Micros}
	var err error
	out.Password, err = optionalSecret(c.PasswordFile)
	return out, err
}
