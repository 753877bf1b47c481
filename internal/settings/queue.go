package settings

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/front"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/store"
)

// Queue is a queue that an instance delivers, from the file or from flags.
type Queue struct {
	Queue string `yaml:"queue"`
	// One of these is where its batches go.
	Webhook  *Webhook `yaml:"webhook"`
	Sawtooth *Ledger  `yaml:"sawtooth"`
	Scabbard *Ledger  `yaml:"scabbard"`
	Exec     *Exec    `yaml:"exec"`
	// The windows that keep keys from other instances. Default 30s and 3m.
	FirstWindow  strict.Duration `yaml:"first_window"`
	SecondWindow strict.Duration `yaml:"second_window"`
	// SubmitTimeout is the deadline of a submission. Default 15s.
	SubmitTimeout strict.Duration `yaml:"submit_timeout"`
	// Concurrency is how many submissions are under way at once. Default 64.
	Concurrency int `yaml:"concurrency"`
	// Rate is how many submissions begin in a second at most. Default: no limit.
	Rate float64 `yaml:"rate"`
	// OnFailure is block or skip. Default: skip what the target judged invalid.
	OnFailure string `yaml:"on_failure"`
	// Keep is how long batches that are over are kept. Default 168h; negative: for ever.
	Keep strict.Duration `yaml:"keep"`
	// Front answers to clients of a ledger.
	Front *Front `yaml:"front"`
}

// Webhook is a target.WebhookConfig in the file.
type Webhook struct {
	Ledger     `yaml:",inline"`
	StatusURL  string            `yaml:"status_url" secret:"url"`
	SecretFile string            `yaml:"secret_file"`
	Headers    map[string]string `yaml:"headers" secret:"all"`
	// HeaderFiles have the values of headers that are secrets.
	HeaderFiles map[string]string `yaml:"header_files"`
	// What the receiver promises; see the target's own words.
	ResendSafe    bool `yaml:"resend_safe"`
	Recognises    bool `yaml:"recognises"`
	ComparesTerms bool `yaml:"compares_terms"`
	Remembers     bool `yaml:"remembers"`
}

// Ledger is what all targets have that are reached by HTTP.
type Ledger struct {
	URL       string `yaml:"url" secret:"url"`
	CAFile    string `yaml:"ca_file"`
	TokenFile string `yaml:"token_file"`
}

// Exec is a program that is run for each batch.
type Exec struct {
	Command       []string `yaml:"command"`
	ResendSafe    bool     `yaml:"resend_safe"`
	Recognises    bool     `yaml:"recognises"`
	ComparesTerms bool     `yaml:"compares_terms"`
}

// Front is where a queue is reached as if it were a ledger.
type Front struct {
	Listen string `yaml:"listen"`
	// Dialect is sawtooth, grid or grid-splinter. Default sawtooth.
	Dialect string `yaml:"dialect"`
	// Open lets other hosts in: whoever reaches the address may enqueue.
	Open bool `yaml:"open"`
}

// Windows are those of the claims on the queue's keys.
func (q *Queue) Windows() claim.Windows {
	return claim.Windows{First: time.Duration(q.FirstWindow), Second: time.Duration(q.SecondWindow)}.WithDefaults()
}

// Deadline is that of a submission.
func (q *Queue) Deadline() time.Duration {
	if q.SubmitTimeout == 0 {
		return 15 * time.Second
	}
	return time.Duration(q.SubmitTimeout)
}

// Check refuses what can be refused without a store.
func (q *Queue) Check() error {
	if err := dispatch.ValidateQueue(q.Queue); err != nil {
		return err
	}
	targets := 0
	for _, there := range []bool{q.Webhook != nil, q.Sawtooth != nil, q.Scabbard != nil, q.Exec != nil} {
		if there {
			targets++
		}
	}
	if targets != 1 {
		return usage.Errorf("%d targets; name one of webhook, sawtooth, scabbard and exec", targets)
	}
	if err := q.checkDelivery(); err != nil {
		return err
	}
	if q.Front != nil {
		return q.Front.check()
	}
	return nil
}

// dispatchSlack is what a dispatcher adds to the deadline of a submission; see dispatch.Config.
const dispatchSlack = 2 * time.Second

// checkDelivery refuses here what a dispatcher would refuse, before any is made.
func (q *Queue) checkDelivery() error {
	switch failure := dispatch.OnFailure(q.OnFailure); {
	case q.Deadline() < 0:
		return usage.Errorf("a submit timeout of %v is negative", q.Deadline())
	case q.Concurrency < 0 || q.Concurrency > claim.MaxKeys:
		return usage.Errorf("concurrency is %d; use 1 to %d", q.Concurrency, claim.MaxKeys)
	case !(q.Rate >= 0) || math.IsInf(q.Rate, 1): // or no number
		return usage.Errorf("rate is %v; use so many submissions in a second, or leave it out for no limit", q.Rate)
	case failure != dispatch.OnFailureDefault && failure != dispatch.OnFailureBlock && failure != dispatch.OnFailureSkip:
		return usage.Errorf("on_failure: %q; use block or skip", q.OnFailure)
	}
	return q.Windows().Validate(q.Deadline() + dispatchSlack)
}

func (f *Front) check() error {
	if f.Dialect == "" {
		f.Dialect = string(front.Sawtooth)
	}
	if !slices.Contains(front.Dialects(), front.Dialect(f.Dialect)) {
		return usage.Errorf("front: dialect %q; the dialects are %v", f.Dialect, front.Dialects())
	}
	if _, _, err := net.SplitHostPort(f.Listen); err != nil {
		return usage.Errorf("front: listen address %q: use HOST:PORT", f.Listen)
	}
	if !f.Open && api.CheckListen(f.Listen, "", false) != nil {
		return usage.Errorf("front: clients of a ledger show no token, so that whoever reaches %q may enqueue; use a loopback address, or say that it is open (open: true, --front-open)", f.Listen)
	}
	return nil
}

// NewListener listens on the front's address.
func (f *Front) NewListener() (net.Listener, error) {
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return nil, fmt.Errorf("front: %w", err)
	}
	return l, nil
}

// Handler answers as the ledger would.
func (f *Front) Handler(queues store.Queues, queue string, log *slog.Logger) (http.Handler, error) {
	return front.New(front.Config{Desk: queues.Desk(), Queue: queue, Dialect: front.Dialect(f.Dialect), Logger: log})
}

func (c *Ledger) http(concurrency int) target.HTTPConfig {
	return target.HTTPConfig{URL: c.URL, CAFile: c.CAFile, TokenFile: c.TokenFile, Concurrency: concurrency}
}

// Target makes the target; files that it names are read.
func (q *Queue) Target() (dispatch.Target, error) {
	switch {
	case q.Webhook != nil:
		return q.Webhook.target(q.Concurrency)
	case q.Sawtooth != nil:
		return target.NewSawtooth(target.SawtoothConfig{HTTPConfig: q.Sawtooth.http(q.Concurrency)})
	case q.Scabbard != nil:
		return target.NewScabbard(target.ScabbardConfig{HTTPConfig: q.Scabbard.http(q.Concurrency)})
	default:
		return q.Exec.target()
	}
}

func (c *Exec) target() (dispatch.Target, error) {
	return target.NewExec(target.ExecConfig{
		Argv: c.Command, Resend: c.ResendSafe, Recognises: c.Recognises, Compares: c.ComparesTerms,
	})
}

func (c *Webhook) target(concurrency int) (dispatch.Target, error) {
	cfg := target.WebhookConfig{
		HTTPConfig: c.http(concurrency), StatusURL: c.StatusURL,
		Resend: c.ResendSafe, Recognises: c.Recognises, Compares: c.ComparesTerms, Remembers: c.Remembers, Header: http.Header{},
	}
	headers, err := secretHeaders(c.Headers, c.HeaderFiles)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		cfg.Header[name] = []string{value}
	}
	if c.SecretFile != "" {
		text, err := os.ReadFile(c.SecretFile)
		if err != nil {
			return nil, usage.Errorf("secret file: %v", err)
		}
		if cfg.Secret = bytes.TrimSpace(text); len(cfg.Secret) == 0 {
			return nil, usage.Errorf("secret file %s is empty", c.SecretFile)
		}
	}
	return target.NewWebhook(cfg)
}
