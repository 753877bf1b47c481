package main

import (
	"context"
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
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

// errAtOnce: a second signal came while the instance was stopping.
var errAtOnce = errors.New("stopped at once; what was under way is looked after by the next instance when the windows have passed")

type queueRunFlags struct {
	settings.Queue
	hook                        settings.Webhook
	frontFlags                  settings.Front
	name                        string
	webhook, sawtooth, scabbard string
	otherServices               []string
	exec                        bool
}

func (a *app) queueRunCommand() *cobra.Command {
	var f queueRunFlags
	c := &cobra.Command{
		Use:   "run QUEUE {--webhook URL | --sawtooth URL | --scabbard URL | --exec} [flags] [-- PROGRAM [ARG…]]",
		Short: "Deliver a queue: an instance of many, without a configuration file",
		Long: `Deliver the messages of a queue, which is created if it does not exist. Any number of instances on any
number of hosts may do so at once: they share its keys.

If an instance dies, the others take over its keys after the first window. A key with a message in flight waits for the
second window, unless the target is a webhook with --deduplicates, or Sawtooth. The second window must be longer than a
submission may take.

A message is delivered at least once: one whose outcome is unknown is sent again with the same ID, unless --at-most-once.
By default a message that the target judged invalid is dead-lettered, and one that failed otherwise blocks its key until
an operator decides: see "queue retry" and "queue skip".

SIGINT, SIGTERM and SIGHUP stop it: submissions in flight may finish, and the keys are released at once. A second signal, a
second or more after the first, ends it without waiting.`,
		Example: `  understudy queue run orders --webhook https://shop.example/orders --secret-file hook.key --deduplicates
  understudy queue run mails --exec --concurrency 4 -- ./send-mail
  understudy queue run ledger --sawtooth http://127.0.0.1:8008 --front 127.0.0.1:9008 --dialect sawtooth`,
		Args: func(c *cobra.Command, args []string) error { return f.args(c, args) },
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.complete(args); err != nil {
				return err
			}
			if err := a.needStore(); err != nil {
				return err
			}
			a.warnOfExposed(&f.Queue)
			return untilSecondSignal(c.Context(), func(ctx context.Context) error { return server.RunQueue(ctx, &a.Host, &f.Queue, f.name) })
		},
	}
	f.register(c)
	return c
}

// untilSecondSignal runs something that SIGINT, SIGTERM and SIGHUP stop. It returns its result, or errAtOnce when a
// second signal came before.
func untilSecondSignal(ctx context.Context, run func(context.Context) error) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return awaitEnd(done, signals)
}

// sameSignal is how long signals count as one: `timeout` and some supervisors signal a process, and then its group.
const sameSignal = time.Second

// awaitEnd returns what is done, or errAtOnce at a second signal.
func awaitEnd(done <-chan error, signals <-chan os.Signal) error {
	var first time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-signals:
			switch now := time.Now(); {
			case first.IsZero():
				first = now
			case now.Sub(first) >= sameSignal:
				return errAtOnce
			}
		}
	}
}

func (f *queueRunFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "name", instance.Hostname(), "`NAME` of this instance, for operators")
	fs.StringVar(&f.webhook, "webhook", "", "POST each message to this `URL`")
	fs.BoolVar(&f.exec, "exec", false, "run the program after -- for each message, with its payload on standard input")
	fs.StringVar(&f.sawtooth, "sawtooth", "", "submit to the REST API of a Sawtooth validator at this `URL`")
	fs.StringVar(&f.scabbard, "scabbard", "", "submit to the scabbard services of a Splinter node at this `URL`; keys are CIRCUIT::SERVICE")
	fs.StringSliceVar(&f.otherServices, "other-services", nil, "with --scabbard: other services of the circuits (`URL` is https://HOST/scabbard/CIRCUIT/SERVICE), asked for what their own service does not know or decide")
	fs.StringVar(&f.frontFlags.Listen, "front", "", "answer on this `ADDRESS` as a ledger would: what is submitted there goes into the queue")
	strictyaml.MarkKey(fs, "name", new(settings.Server), "name")
	strictyaml.Renamed(fs, "also", "other-services")
	strictyaml.More(fs, "sawtooth", "scabbard", "other-services", "front")
	strictyaml.Bind(fs, &f.Queue)
	strictyaml.Bind(fs, &f.hook)
	strictyaml.Bind(fs, &f.frontFlags)
	fs.Bool("resend-safe", true, "")
	_ = fs.MarkDeprecated("resend-safe", "it is the default now; --at-most-once is the opposite") // the flag is there: no error
}

// args wants QUEUE, and a program after -- with --exec.
func (f *queueRunFlags) args(c *cobra.Command, args []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usererr.Errorf("%s: QUEUE is missing; see --help", c.CommandPath())
	case f.exec && (dash != 1 || len(args) < 2):
		return usererr.Errorf("%s: write the program after --, as in: %s %s --exec -- ./program", c.CommandPath(), c.CommandPath(), args[0])
	case !f.exec && len(args) > 1:
		return usererr.Errorf("%s: %q is one argument too many; a program needs --exec and stands after --", c.CommandPath(), args[1])
	}
	return nil
}

// complete turns the flags into what the file would say, and checks it.
func (f *queueRunFlags) complete(args []string) error {
	f.Queue.Queue = args[0]
	h := &f.hook
	at := func(url string) *settings.Ledger {
		if url == "" {
			return nil
		}
		return &settings.Ledger{URL: url, CAFile: h.CAFile, TokenFile: h.TokenFile}
	}
	f.Sawtooth = at(f.sawtooth)
	if node := at(f.scabbard); node != nil {
		f.Scabbard = &settings.Scabbard{Ledger: *node, OtherServices: f.otherServices}
	}
	if f.webhook != "" {
		h.URL, f.Webhook = f.webhook, h
	}
	if f.exec {
		f.Exec = &settings.Exec{Command: args[1:], AtMostOnce: h.AtMostOnce, Deduplicates: h.Deduplicates}
	}
	if f.frontFlags.Listen != "" {
		f.Front = &f.frontFlags
	}
	if f.webhook == "" && (h.SecretFile != "" || h.StatusURL != "") {
		return usererr.Errorf("--secret-file and --status-url belong to --webhook")
	}
	if (h.AtMostOnce || h.Deduplicates) && (f.Sawtooth != nil || f.Scabbard != nil) {
		return usererr.Errorf("--at-most-once and --deduplicates belong to --webhook and --exec: what a ledger does with a message that it is sent twice is known")
	}
	if f.Concurrency == 0 {
		return usererr.Errorf("--concurrency 0 delivers nothing; use 1 to %d", claim.MaxKeys)
	}
	if f.Keep == 0 {
		return usererr.Errorf("--keep 0s would lose the history of every message; use a longer time, or a negative one to keep messages for ever")
	}
	if err := lease.NewInstance(f.name, "").Validate(); err != nil {
		return err
	}
	return f.Check()
}
