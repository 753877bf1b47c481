package settings

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/front"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/store"
)

// Queue is a queue that an instance delivers, from the file or from flags. It has exactly one target.
type Queue struct {
	Queue          string        `yaml:"queue" flag:"-" help:"name of the queue"`
	Webhook        *Webhook      `yaml:"webhook" help:"POST each message to a URL"`
	Sawtooth       *Ledger       `yaml:"sawtooth" help:"submit to Hyperledger Sawtooth"`
	Scabbard       *Scabbard     `yaml:"scabbard" help:"submit to Splinter's Scabbard"`
	Exec           *Exec         `yaml:"exec" help:"run a program for each message"`
	FirstWindow    time.Duration `yaml:"first_window" more:"yes" default:"30s" help:"others take the keys of an instance that has been silent this long"`
	SecondWindow   time.Duration `yaml:"second_window" more:"yes" default:"3m" help:"… and its keys with a submission in flight only this long after it started; longer than submit_timeout"`
	SubmitTimeout  time.Duration `yaml:"submit_timeout" default:"15s" help:"deadline of one submission"`
	Concurrency    int           `yaml:"concurrency" default:"64" help:"submissions in flight at once"`
	Rate           float64       `yaml:"rate" help:"each instance starts at most this many submissions per second (default: no limit)"`
	OnFailure      string        `yaml:"on_failure" help:"after a permanent failure, block the key, skip the message, or retry it until the target takes it (default: skip what the target judged invalid, else block)"`
	Attempts       int           `yaml:"attempts" default:"500" help:"give up on a message after so many attempts (500: up to eight hours); negative: never"`
	RetryInitial   time.Duration `yaml:"retry_initial" more:"yes" default:"250ms" help:"pause after the first attempt that failed; doubles with each attempt"`
	RetryMax       time.Duration `yaml:"retry_max" more:"yes" default:"1m" help:"longest pause between two attempts"`
	MaxAge         time.Duration `yaml:"max_age" more:"yes" help:"give up on a message that fails this long after it was enqueued (default: whatever its age)"`
	UndecidedAfter time.Duration `yaml:"undecided_after" more:"yes" help:"show a key as blocked when the target has had its message undecided this long (default: a ledger 2m, otherwise 1h)"`
	Keep           time.Duration `yaml:"keep" more:"yes" default:"168h" help:"keep finished messages this long; negative: for ever"`
	Front          *Front        `yaml:"front" help:"answer the clients of a ledger: what they submit goes into the queue"`
}

// Webhook is a target.WebhookConfig in the file.
type Webhook struct {
	Ledger          `yaml:",inline"`
	SecretFile      string            `yaml:"secret_file" more:"yes" help:"sign each request with the secret in this 'FILE'"`
	Signature       string            `yaml:"signature" more:"yes" default:"standard" help:"how: standard (Standard Webhooks), or understudy, which covers its own headers too"`
	Headers         map[string]string `yaml:"headers" secret:"all" help:"more headers"`
	HeaderFiles     map[string]string `yaml:"header_files" help:"secret headers: the file with the value of each"`
	StatusURL       string            `yaml:"status_url" secret:"url" more:"yes" help:"ask this 'URL' about a message whose outcome is unknown; {id} in it is the message ID"`
	AtMostOnce      bool              `yaml:"at_most_once" was:"!resend_safe" flag:"at-most-once" flagwas:"never-twice" more:"yes" help:"never send a message again whose outcome is unknown: block its key until an operator decides"`
	Deduplicates    bool              `yaml:"deduplicates" was:"recognises" flagwas:"recognises" help:"the receiver deduplicates by message ID, however late a message is sent again"`
	NotFoundIsFinal bool              `yaml:"not_found_is_final" was:"remembers" flag:"-" help:"a 404 from the status URL proves that a message never arrived"`
	_               struct{}          `gone:"compares_terms"`
}

// Ledger has what all targets need that are reached over HTTP.
type Ledger struct {
	URL       string `yaml:"url" secret:"url" flag:"-" help:"URL to send to"`
	CAFile    string `yaml:"ca_file" more:"yes" help:"trust the certificates in this 'FILE', not the system's"`
	TokenFile string `yaml:"token_file" help:"send the bearer token in this 'FILE'"`
}

// Scabbard is a target.ScabbardConfig in the file.
type Scabbard struct {
	Ledger        `yaml:",inline"`
	OtherServices []string `yaml:"other_services" was:"also" flag:"-" help:"other services of the circuits, https://HOST/scabbard/CIRCUIT/SERVICE, asked for what their own service does not know or decide"`
}

// Exec is a program that is run for each message.
type Exec struct {
	Command      []string `yaml:"command" help:"the program; it reads the message on standard input"`
	AtMostOnce   bool     `yaml:"at_most_once" was:"!resend_safe" help:"never run it again for a message whose outcome is unknown: block its key until an operator decides"`
	Deduplicates bool     `yaml:"deduplicates" was:"recognises" help:"it deduplicates by message ID"`
	_            struct{} `gone:"compares_terms"`
}

// Front is where clients reach a queue as if it were a ledger.
type Front struct {
	Listen  string `yaml:"listen" flag:"-" help:"'ADDRESS' to listen on, HOST:PORT"`
	Dialect string `yaml:"dialect" more:"yes" default:"sawtooth" help:"the ledger to imitate: sawtooth, grid or grid-splinter"`
	Open    bool   `yaml:"open" flag:"front-open" more:"yes" help:"allow an address that other hosts reach: anyone who reaches it may submit"`
}

// Windows are those of the claims on the queue's keys.
func (q *Queue) Windows() claim.Windows {
	return claim.Windows{First: q.FirstWindow, Second: q.SecondWindow}.WithDefaults()
}

// Deadline is that of a submission.
func (q *Queue) Deadline() time.Duration {
	if q.SubmitTimeout == 0 {
		return 15 * time.Second
	}
	return q.SubmitTimeout
}

// RetryPolicy is how messages are sent again.
func (q *Queue) RetryPolicy() dispatch.RetryPolicy {
	return dispatch.RetryPolicy{Initial: q.RetryInitial, Max: q.RetryMax, Attempts: q.Attempts, MaxAge: q.MaxAge}.WithDefaults()
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
		return usererr.Errorf("%d targets; name one of webhook, sawtooth, scabbard and exec", targets)
	}
	if err := q.checkDelivery(); err != nil {
		return err
	}
	if q.Front != nil {
		return q.Front.check()
	}
	return nil
}

// checkDelivery refuses here what a dispatcher would refuse, before any is made.
func (q *Queue) checkDelivery() error {
	switch failure := dispatch.OnFailure(q.OnFailure); {
	case q.Deadline() < 0:
		return usererr.Errorf("a submit timeout of %v is negative", q.Deadline())
	case q.UndecidedAfter < 0:
		return usererr.Errorf("undecided_after of %v is negative", q.UndecidedAfter)
	case q.Concurrency < 0 || q.Concurrency > claim.MaxKeys:
		return usererr.Errorf("concurrency is %d; use 1 to %d", q.Concurrency, claim.MaxKeys)
	case !(q.Rate >= 0) || math.IsInf(q.Rate, 1): // or no number
		return usererr.Errorf("rate is %v; use so many submissions in a second, or leave it out for no limit", q.Rate)
	case failure != dispatch.OnFailureDefault && failure != dispatch.OnFailureBlock && failure != dispatch.OnFailureSkip && failure != dispatch.OnFailureRetry:
		return usererr.Errorf("on_failure: %q; use block, skip or retry", q.OnFailure)
	case failure == dispatch.OnFailureRetry && q.MaxAge > 0:
		return usererr.Errorf("max_age of %v: on_failure: retry gives no message up; leave one of them out", q.MaxAge)
	}
	if err := q.RetryPolicy().Validate(); err != nil {
		return err
	}
	return q.Windows().Validate(q.Deadline() + dispatch.StartSlack)
}

func (f *Front) check() error {
	if !slices.Contains(front.Dialects(), front.Dialect(f.Dialect)) {
		return usererr.Errorf("front: dialect %q; the dialects are %v", f.Dialect, front.Dialects())
	}
	if _, _, err := net.SplitHostPort(f.Listen); err != nil {
		return usererr.Errorf("front: listen address %q: use HOST:PORT", f.Listen)
	}
	if !f.Open && api.CheckListen(f.Listen, "", false) != nil {
		return usererr.Errorf("front: clients of a ledger show no token, so that anyone who reaches %q may enqueue; use a loopback address, or say that it is open (open: true, --front-open)", f.Listen)
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

// FrontHandler answers as the ledger would. What it does not answer itself it asks the Sawtooth REST API for that is the
// queue's target.
func (q *Queue) FrontHandler(queues store.Queues, log *slog.Logger) (http.Handler, error) {
	c := front.Config{Admin: queues.QueueAdmin(), Queue: q.Queue, Dialect: front.Dialect(q.Front.Dialect), Logger: log}
	if q.Sawtooth != nil && c.Dialect == front.Sawtooth {
		var err error
		if c.Reads, err = url.Parse(q.Sawtooth.URL); err != nil {
			return nil, usererr.Errorf("sawtooth: the URL cannot be read") // it may have a password
		}
		if q.Sawtooth.CAFile != "" {
			if c.ReadsTLS, err = target.Trust(q.Sawtooth.CAFile); err != nil {
				return nil, err
			}
		}
	}
	return front.New(c)
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
		return target.NewScabbard(target.ScabbardConfig{HTTPConfig: q.Scabbard.http(q.Concurrency), OtherServices: q.Scabbard.OtherServices})
	default:
		return q.Exec.target()
	}
}

func (c *Exec) target() (dispatch.Target, error) {
	return target.NewExec(target.ExecConfig{
		Argv: c.Command, AtMostOnce: c.AtMostOnce, Deduplicates: c.Deduplicates,
	})
}

func (c *Webhook) target(concurrency int) (dispatch.Target, error) {
	cfg := target.WebhookConfig{
		HTTPConfig: c.http(concurrency), StatusURL: c.StatusURL, Signature: target.Signature(c.Signature),
		AtMostOnce: c.AtMostOnce, Deduplicates: c.Deduplicates, NotFoundIsFinal: c.NotFoundIsFinal, Header: http.Header{},
	}
	headers, err := secretHeaders(c.Headers, c.HeaderFiles)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		cfg.Header[name] = []string{value}
	}
	if c.SecretFile != "" {
		secret, err := ReadSecret("secret_file", c.SecretFile)
		if err != nil {
			return nil, err
		}
		cfg.Secret = []byte(secret)
	}
	return target.NewWebhook(cfg)
}
