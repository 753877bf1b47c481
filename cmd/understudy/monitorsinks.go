package main

import (
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
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

// sinkConfig is who is told of alarms.
type sinkConfig struct {
	Sink string `yaml:"sink"`
	// One of these says how.
	Webhook       *hookSinkConfig  `yaml:"webhook"`
	Slack         *slackSinkConfig `yaml:"slack"`
	MessageRouter *topicSinkConfig `yaml:"message_router"`
	Alertmanager  *alertSinkConfig `yaml:"alertmanager"`
	Email         *emailSinkConfig `yaml:"email"`
	Log           *logSinkConfig   `yaml:"log"`
	// SubmitTimeout is the deadline of one telling. Default 10s.
	SubmitTimeout duration `yaml:"submit_timeout"`
	// Concurrency, Rate, OnFailure and Keep: as of a queue.
	Concurrency int      `yaml:"concurrency"`
	Rate        float64  `yaml:"rate"`
	OnFailure   string   `yaml:"on_failure"`
	Keep        duration `yaml:"keep"`
	// The windows that keep a source's alarms from other instances. Default 5s and 20s.
	FirstWindow  duration `yaml:"first_window"`
	SecondWindow duration `yaml:"second_window"`
}

// sinkHTTPConfig is what all sinks have that are reached by HTTP. URLFile is read
// instead of URL where that is a secret.
type sinkHTTPConfig struct {
	URL       string `yaml:"url" secret:"path"`
	URLFile   string `yaml:"url_file"`
	CAFile    string `yaml:"ca_file"`
	TokenFile string `yaml:"token_file"`
}

// hookSinkConfig is a sink.WebhookConfig in the file.
type hookSinkConfig struct {
	sinkHTTPConfig `yaml:",inline"`
	Method         string            `yaml:"method"`
	Headers        map[string]string `yaml:"headers" secret:"all"`
	// HeaderFiles have the values of headers that are secrets.
	HeaderFiles map[string]string `yaml:"header_files"`
	SecretFile  string            `yaml:"secret_file"`
	Recognises  bool              `yaml:"recognises"`
	Body        string            `yaml:"body"`
	Onset       *string           `yaml:"onset"`
	Abated      *string           `yaml:"abated"`
	ContentType string            `yaml:"content_type"`
}

// slackSinkConfig is a sink.SlackConfig in the file.
type slackSinkConfig struct {
	sinkHTTPConfig `yaml:",inline"`
}

// topicSinkConfig is a sink.MessageRouterConfig in the file.
type topicSinkConfig struct {
	URL          string `yaml:"url" secret:"url"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	CAFile       string `yaml:"ca_file"`
	// Compat is "onap" for events exactly as ONAP's own service makes them; Micros
	// gives times in microseconds, as ONAP's policies want them, which excludes it.
	Compat string `yaml:"compat"`
	Micros bool   `yaml:"micros"`
}

// alertSinkConfig is a sink.AlertmanagerConfig in the file.
type alertSinkConfig struct {
	URLs      []string `yaml:"urls" secret:"url"`
	CAFile    string   `yaml:"ca_file"`
	TokenFile string   `yaml:"token_file"`
	Lasts     duration `yaml:"lasts"`
}

// emailSinkConfig is a sink.EmailConfig in the file.
type emailSinkConfig struct {
	Server       string   `yaml:"server"`
	TLS          string   `yaml:"tls"`
	CAFile       string   `yaml:"ca_file"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	From         string   `yaml:"from"`
	To           []string `yaml:"to"`
	Hello        string   `yaml:"hello"`
}

// logSinkConfig is a line of this program's log for each alarm: log: {}.
type logSinkConfig struct{}

// queue is how the sink's queue is delivered.
func (c *sinkConfig) queue() *queueConfig {
	q := &queueConfig{
		Queue: monitor.QueueOf(c.Sink), FirstWindow: c.FirstWindow, SecondWindow: c.SecondWindow, SubmitTimeout: c.SubmitTimeout,
		Concurrency: c.Concurrency, Rate: c.Rate, OnFailure: c.OnFailure, Keep: c.Keep,
	}
	for d, to := range map[*duration]time.Duration{&q.FirstWindow: sinkFirst, &q.SecondWindow: sinkSecond, &q.SubmitTimeout: sinkSubmit} {
		if *d == 0 {
			*d = duration(to)
		}
	}
	return q
}

// check refuses what can be refused without a store; files are read.
func (c *sinkConfig) check() error {
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
	if err := c.queue().checkDelivery(); err != nil {
		return fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	return nil
}

// target makes what the sink's queue is delivered to.
func (c *sinkConfig) target(log *slog.Logger) (dispatch.Target, error) {
	made, err := c.sink(log)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", c.Sink, err)
	}
	return sink.New(made)
}

func (c *sinkConfig) sink(log *slog.Logger) (out sink.Config, err error) {
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

func (c *sinkHTTPConfig) http(concurrency int) sink.HTTP {
	return sink.HTTP{CAFile: c.CAFile, TokenFile: c.TokenFile, Concurrency: concurrency}
}

// url is where to reach the sink, from the file if it is a secret.
func (c *sinkHTTPConfig) url() (sink.Secret, error) {
	if c.URLFile == "" {
		return sink.Secret(c.URL), nil
	}
	if c.URL != "" {
		return "", usagef("url and url_file exclude each other")
	}
	return optionalSecret(c.URLFile)
}

// optionalSecret reads a secret from its file, if there is one.
func optionalSecret(path string) (sink.Secret, error) {
	if path == "" {
		return "", nil
	}
	text, err := secretFile(path)
	return sink.Secret(text), err
}

func (c *hookSinkConfig) sink(concurrency int) (*sink.WebhookConfig, error) {
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

// secretHeaders are the headers that stand in the file, and those that have files of their own.
func secretHeaders(plain, files map[string]string) (map[string]string, error) {
	out := maps.Clone(plain)
	for name, path := range files {
		if _, twice := plain[name]; twice {
			return nil, usagef("header %q stands both in headers and in header_files", name)
		}
		value, err := secretFile(path)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = string(value)
	}
	return out, nil
}

func (c *topicSinkConfig) sink() (*sink.MessageRouterConfig, error) {
	if c.Compat != "" && c.Compat != "onap" {
		return nil, usagef("compat %q: use onap, or leave it out", c.Compat)
	}
	out := &sink.MessageRouterConfig{URL: c.URL, User: c.User, CAFile: c.CAFile, Compat: c.Compat == "onap", Micros: c.Micros}
	var err error
	out.Password, err = optionalSecret(c.PasswordFile)
	return out, err
}
