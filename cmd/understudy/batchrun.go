package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// errAtOnce: a second signal came while the instance was stopping.
var errAtOnce = errors.New("stopped at once; what was under way is looked after by the next instance when the windows have passed")

type batchRunFlags struct {
	queueConfig
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
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			done := make(chan error, 1)
			go func() { done <- a.batchRun(ctx, &f.queueConfig, f.name) }()
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
	fs.StringVar(&f.name, "name", hostname(), "`NAME` of this instance, for people")
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
		return usagef("%s: QUEUE is missing; see --help", c.CommandPath())
	case f.exec && (dash != 1 || len(args) < 2):
		return usagef("%s: write the program after --, as in: %s %s --exec -- ./program", c.CommandPath(), c.CommandPath(), args[0])
	case !f.exec && len(args) > 1:
		return usagef("%s: %q is one argument too many; a program needs --exec and stands after --", c.CommandPath(), args[1])
	}
	return nil
}

// complete turns the flags into what the file would say, and checks it.
func (f *batchRunFlags) complete(args []string) error {
	f.Queue = args[0]
	at := func(url string) ledgerConfig { return ledgerConfig{URL: url, CAFile: f.caFile, TokenFile: f.tokenFile} }
	if f.webhook != "" {
		f.Webhook = &webhookConfig{ledgerConfig: at(f.webhook), StatusURL: f.statusURL, SecretFile: f.secretFile, ResendSafe: f.resendSafe, Recognises: f.recognises}
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
		f.Exec = &execConfig{Command: args[1:], ResendSafe: f.resendSafe, Recognises: f.recognises}
	}
	if f.front != "" {
		f.Front = &frontConfig{Listen: f.front, Dialect: f.dialect, Open: f.frontOpen}
	}
	if f.webhook == "" && (f.secretFile != "" || f.statusURL != "") {
		return usagef("--secret-file and --status-url belong to --webhook")
	}
	if (f.resendSafe || f.recognises) && (f.Sawtooth != nil || f.Scabbard != nil) {
		return usagef("--resend-safe and --recognises belong to --webhook and --exec: what a ledger does with a batch that it is sent twice is known")
	}
	if err := lease.NewInstance(f.name, "").Validate(); err != nil {
		return err
	}
	return f.check()
}

func (a *app) batchRun(ctx context.Context, q *queueConfig, name string) error {
	to, err := q.target()
	if err != nil {
		return err
	}
	var front net.Listener
	if q.Front != nil {
		if front, err = q.Front.listen(); err != nil {
			return err
		}
		defer front.Close()
	}
	st, err := a.openPatiently(ctx, true)
	if err != nil {
		return stoppedWith(err)
	}
	defer st.Close()
	queues, err := a.queuesOf(st)
	if err != nil {
		return err
	}
	instance := instanceFlags{name: name, timing: q.windows().Timing()}
	err = a.withKeeper(ctx, st, instance, func(ctx context.Context, k *lease.Keeper) error {
		d, err := a.dispatcher(ctx, queues, k, q, to)
		if err != nil {
			return err
		}
		return a.deliver(ctx, queues, d, q, front)
	})
	if ctx.Err() != nil {
		return stoppedWith(err)
	}
	return err
}

// deliver runs until ctx ends or the front fails.
func (a *app) deliver(ctx context.Context, queues store.Queues, d *dispatch.Dispatcher, q *queueConfig, front net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if front != nil {
			cancel(a.serveFront(ctx, front, queues, q))
		}
	}()
	defer func() { cancel(nil); <-ended }()
	sdnotify.Ready()
	defer context.AfterFunc(ctx, sdnotify.Stopping)()
	if err := d.Run(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// dispatcher makes the queue and what delivers it.
func (a *app) dispatcher(ctx context.Context, queues store.Queues, k *lease.Keeper, q *queueConfig, to dispatch.Target) (*dispatch.Dispatcher, error) {
	d, err := dispatch.New(dispatch.Config{
		Name: q.Queue, Keeper: k, Claims: queues.Claims(), Queue: queues.Queue(), Target: to,
		Windows: q.windows(), SubmitTimeout: q.submitTimeout(), Concurrency: q.Concurrency, Rate: q.Rate,
		OnFailure: dispatch.OnFailure(q.OnFailure), KeepFor: time.Duration(q.Keep), Logger: a.log,
		Observers: []dispatch.Observer{&refusals{log: a.log, queue: q.Queue}},
	})
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := queues.Desk().Make(call, q.Queue); err != nil {
		return nil, err
	}
	idle, submitting := d.WorstTakeover()
	a.log.Info("delivering", "queue", q.Queue, "target", to.Name(), "store", redact(a.storeURL),
		"takeover_of_idle_keys_within", idle, "takeover_in_mid_submission_within", submitting)
	return d, nil
}

// A front reads up to 10 MiB, and its clients may wait for their batches for nearly
// five minutes; not when it stops.
const (
	frontReads  = time.Minute
	frontWrites = 6 * time.Minute
	frontStops  = time.Second
)

// serveFront answers on a listener of its own until ctx ends.
func (a *app) serveFront(ctx context.Context, l net.Listener, queues store.Queues, q *queueConfig) error {
	handler, err := q.Front.handler(queues, q.Queue, a.log)
	if err != nil {
		return err
	}
	// A page of another site must not submit from a browser on this host.
	server := api.NewHTTPServer(http.NewCrossOriginProtection().Handler(handler), a.log)
	server.ReadTimeout, server.WriteTimeout = frontReads, frontWrites
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), frontStops)
		defer cancel()
		if server.Shutdown(call) != nil { // some wait for their batches, and will ask again
			_ = server.Close()
		}
	})()
	a.log.Info("front", "queue", q.Queue, "url", "http://"+l.Addr().String(), "dialect", q.Front.Dialect)
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}
