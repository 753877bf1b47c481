package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
)

// errAtOnce: a second signal came while the instance was stopping.
var errAtOnce = errors.New("stopped at once; what was under way is looked after by the next instance when the windows have passed")

type batchRunFlags struct {
	settings.Queue
	name                        string
	webhook, sawtooth, scabbard string
	exec                        bool
	secretFile, statusURL       string
	tokenFile, caFile           string
	resendSafe, recognises      bool
	front, dialect              string
	frontOpen                   bool
}

func (a *app) batchRunCommand() *cobra.Command {
	var f batchRunFlags
	c := &cobra.Command{
		Use:   "run QUEUE {--webhook URL | --sawtooth URL | --scabbard URL | --exec} [flags] [-- PROGRAM [ARG…]]",
		Short: "Deliver a queue: an instance of many, without a configuration file",
		Long: `Deliver the batches of a queue, which is made if it is not there. Any number of
instances may do so at once, on any number of hosts: they share its keys.

If an instance dies, the others take its keys over after the first window; a key whose batch
was on its way then is left alone until the second window, unless the target recognises what
it has done and can be asked. The second window must be longer than a submission may take.

By default a batch that the target judged invalid steps aside, and one that failed otherwise
blocks its key until a person decides: see "batch retry" and "batch skip".

SIGINT, SIGTERM and SIGHUP stop it: submissions under way may finish, and the keys are given back
at once. A second signal ends it without that.`,
		Example: `  understudy batch run orders --webhook https://shop.example/orders --secret-file hook.key --recognises
  understudy batch run mails --exec --concurrency 4 -- ./send-mail
  understudy batch run ledger --sawtooth http://127.0.0.1:8008 --front 127.0.0.1:9008 --dialect sawtooth`,
		Args: func(c *cobra.Command, args []string) error { return f.args(c, args) },
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.complete(args); err != nil {
				return err
			}
			if err := a.needStore(); err != nil {
				return err
			}
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			done := make(chan error, 1)
			go func() { done <- server.RunQueue(ctx, &a.Host, &f.Queue, f.name) }()
			return untilSecond(done, signals)
		},
	}
	f.register(c)
	return c
}

// untilSecond returns the result, or errAtOnce when a second signal came before.
func untilSecond(done <-chan error, signals <-chan os.Signal) error {
	for range 2 {
		select {
		case err := <-done:
			return err
		case <-signals:
		}
	}
	return errAtOnce
}

func (f *batchRunFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "name", instance.Hostname(), "`NAME` of this instance, for people")
	fs.StringVar(&f.webhook, "webhook", "", "POST each batch to this `URL`")
	fs.StringVar(&f.sawtooth, "sawtooth", "", "submit to the REST API of a Sawtooth validator at this `URL`")
	fs.StringVar(&f.scabbard, "scabbard", "", "submit to scabbard services of a Splinter node at this `URL`; keys are CIRCUIT::SERVICE")
	fs.BoolVar(&f.exec, "exec", false, "run the program after -- for each batch, with its payload on standard input")
	fs.DurationVar((*time.Duration)(&f.FirstWindow), "first-window", claim.DefaultFirst, "keys of an instance that is silent for so long may be taken")
	fs.DurationVar((*time.Duration)(&f.SecondWindow), "second-window", claim.DefaultSecond, "those with a submission under way only so long after its begin")
	fs.DurationVar((*time.Duration)(&f.SubmitTimeout), "submit-timeout", 15*time.Second, "deadline of one submission")
	fs.IntVar(&f.Concurrency, "concurrency", 64, "so many submissions at once")
	fs.Float64Var(&f.Rate, "rate", 0, "at most so many submissions in a second; 0 is no limit")
	fs.StringVar(&f.OnFailure, "on-failure", "", "block the key or skip the batch that failed (default: skip what was judged invalid, else block)")
	fs.DurationVar((*time.Duration)(&f.Keep), "keep", 168*time.Hour, "keep batches that are over for so long; negative: for ever")
	fs.StringVar(&f.secretFile, "secret-file", "", "sign webhooks with the secret in this `FILE`")
	fs.StringVar(&f.statusURL, "status-url", "", "`URL` at which to ask about a webhook whose fate is unknown; {id} in it is the batch's id")
	fs.StringVar(&f.tokenFile, "token-file", "", "send the token in this `FILE` as Authorization: Bearer")
	fs.StringVar(&f.caFile, "ca-file", "", "trust the certificates in this `FILE` instead of the system's")
	fs.BoolVar(&f.resendSafe, "resend-safe", false, "doing the same batch twice does no harm")
	fs.BoolVar(&f.recognises, "recognises", false, "the receiver or program recognises the id of a batch that it has done, however late it comes again")
	fs.StringVar(&f.front, "front", "", "answer on this `ADDRESS` as a ledger would, and enqueue what is submitted there")
	fs.StringVar(&f.dialect, "dialect", "sawtooth", "how the front speaks: sawtooth, grid or grid-splinter")
	fs.BoolVar(&f.frontOpen, "front-open", false, "the front may listen where other hosts reach it: whoever does may enqueue")
}

// args wants QUEUE, and a program after -- with --exec.
func (f *batchRunFlags) args(c *cobra.Command, args []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usage.Errorf("%s: QUEUE is missing; see --help", c.CommandPath())
	case f.exec && (dash != 1 || len(args) < 2):
		return usage.Errorf("%s: write the program after --, as in: %s %s --exec -- ./program", c.CommandPath(), c.CommandPath(), args[0])
	case !f.exec && len(args) > 1:
		return usage.Errorf("%s: %q is one argument too many; a program needs --exec and stands after --", c.CommandPath(), args[1])
	}
	return nil
}

// complete turns the flags into what the file would say, and checks it.
func (f *batchRunFlags) complete(args []string) error {
	f.Queue.Queue = args[0]
	at := func(url string) settings.Ledger {
		return settings.Ledger{URL: url, CAFile: f.caFile, TokenFile: f.tokenFile}
	}
	if f.webhook != "" {
		f.Webhook = &settings.Webhook{Ledger: at(f.webhook), StatusURL: f.statusURL, SecretFile: f.secretFile, ResendSafe: f.resendSafe, Recognises: f.recognises}
	}
	if f.sawtooth != "" {
		l := at(f.sawtooth)
		f.Sawtooth = &l
	}
	if f.scabbard != "" {
		l := at(f.scabbard)
		f.Scabbard = &l
	}
	if f.exec {
		f.Exec = &settings.Exec{Command: args[1:], ResendSafe: f.resendSafe, Recognises: f.recognises}
	}
	if f.front != "" {
		f.Front = &settings.Front{Listen: f.front, Dialect: f.dialect, Open: f.frontOpen}
	}
	if f.webhook == "" && (f.secretFile != "" || f.statusURL != "") {
		return usage.Errorf("--secret-file and --status-url belong to --webhook")
	}
	if (f.resendSafe || f.recognises) && (f.Sawtooth != nil || f.Scabbard != nil) {
		return usage.Errorf("--resend-safe and --recognises belong to --webhook and --exec: what a ledger does with a batch that it is sent twice is known")
	}
	if err := lease.NewInstance(f.name, "").Validate(); err != nil {
		return err
	}
	return f.Check()
}
