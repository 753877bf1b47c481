package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
)

type monitorRunFlags struct {
	settings.Server
	settings.Monitor

	events, declared           []string
	webhooks, slacks           []string
	alertmanagers, emailTo     []string
	webhookSecret              string
	recognises, log            bool
	email                      settings.EmailSink
	routersIn, routersOut      []string
	group, consumer, compat    string
	routerUser, routerPassword string
	pingKeys                   []string
	pingPost                   bool
	configFile                 string
	cbs                        bool
	poll                       time.Duration
}

func (a *app) monitorRunCommand() *cobra.Command {
	var f monitorRunFlags
	c := &cobra.Command{
		Use:   "run [--event NAME,interval=5s,missed=3…] [--webhook URL…] [flags]",
		Short: "Run a whole monitor without a file: take beats in, find who is silent, tell",
		Long: `Run an instance of the monitor: it takes beats in over HTTP and from Message Routers, looks for
sources that fall silent, and tells the sinks. The page and the API are on the same port. Any
number of instances share a store, its event names, sources and sinks. If one dies, the others look
after its sources when the first window has passed.

--event NAME,KEY=VALUE… says what is expected: interval=5s and missed=3, or schedule="30 2 * * *"; more
keys are grace, max_run, retire_after, severity, flaps, flap_window, steady, group_by, group_wait,
group_min, fixed, sender_clock, paused, tag, label.NAME, and control_loop.KEY. It adds or changes an event
name, and leaves the others of the store as they are. --config puts a whole configuration into
force, and looks for a new one every --poll: one instance does so, for all.

SIGINT, SIGTERM and SIGHUP stop it: what it has taken is stored, and its share is given back at once. A
second signal ends it without that.`,
		Example: `  understudy monitor run --event nightly-backup,interval=24h,missed=1,grace=1h --webhook https://ops.example/hook
  curl http://127.0.0.1:7600/v1/ping/nightly-backup/db-1

  understudy monitor run --event fleet,interval=5s,missed=3,label.team=ops --slack https://hooks.slack.example/T/B/x \
    --alertmanager http://10.0.0.1:9093 --alertmanager http://10.0.0.2:9093 --store postgres://db/app
  understudy monitor run --config hb.json --router-in http://mr:3904/events/HB_IN --group hb \
    --router-out http://mr:3904/events/CL_OUT --compat onap --store postgres://db/hb`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.complete(c.Flags().Changed)
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			done := make(chan error, 1)
			go func(ctx context.Context) { done <- a.serve(ctx, cfg, nil) }(ctx)
			return untilSecond(done, signals)
		},
	}
	f.register(c)
	return c
}

func (f *monitorRunFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&f.events, "event", nil, "expect beats under this name, `NAME,KEY=VALUE…`; repeat it for more")
	fs.StringArrayVar(&f.declared, "declare", nil, "know this source before its first beat, `EVENT/SOURCE`; repeat it for more")
	fs.StringVar(&f.configFile, "config", "", "put the event names of this `FILE` into force: YAML, or the JSON of ONAP's heartbeat service")
	fs.BoolVar(&f.cbs, "config-cbs", false, "fetch that JSON from ONAP's Config Binding Service, as $CONFIG_BINDING_SERVICE and $HOSTNAME say")
	fs.DurationVar(&f.poll, "poll", 0, "look for a new configuration so often (default: as the JSON says, else 5m)")

	fs.StringArrayVar(&f.webhooks, "webhook", nil, "POST alarms to this `URL`; repeat it for more sinks")
	fs.StringVar(&f.webhookSecret, "webhook-secret-file", "", "sign webhooks with the secret in this `FILE`")
	fs.BoolVar(&f.recognises, "recognises", false, "the webhook recognises the id of an alarm that it has, however late it comes again")
	fs.StringArrayVar(&f.slacks, "slack", nil, "tell this `URL` of a Slack incoming webhook; repeat it for more sinks")
	fs.StringArrayVar(&f.alertmanagers, "alertmanager", nil, "tell the Alertmanager at this `URL`; repeat it for each member of its cluster")
	fs.StringArrayVar(&f.emailTo, "email", nil, "send mail to this `ADDRESS`; repeat it for more …")
	fs.StringVar(&f.email.Server, "email-server", "127.0.0.1", "… through this server, `HOST[:PORT]`")
	fs.StringVar(&f.email.From, "email-from", "", "… from this `ADDRESS`")
	fs.StringVar(&f.email.TLS, "email-tls", "", "… with starttls (default), tls, or none")
	fs.StringVar(&f.email.User, "email-user", "", "… logged in as this `USER`")
	fs.StringVar(&f.email.PasswordFile, "email-password-file", "", "… with the password in this `FILE`")
	fs.StringArrayVar(&f.routersOut, "router-out", nil, "publish control-loop events to this topic `URL` of a Message Router; repeat it for more sinks")
	fs.StringVar(&f.compat, "compat", "", "\"onap\": control-loop events exactly as ONAP's heartbeat service makes them")
	fs.BoolVar(&f.log, "log", false, "write a line of the log for each alarm")

	fs.StringArrayVar(&f.routersIn, "router-in", nil, "read beats from this topic `URL` of a Message Router; repeat it for more")
	fs.StringVar(&f.group, "group", "understudy", "`GROUP` of consumers, the same for all instances")
	fs.StringVar(&f.consumer, "consumer", "", "`ID` of this consumer, which no other has (default: the name of this instance)")
	fs.StringVar(&f.routerUser, "router-user", "", "`USER` at the Message Routers")
	fs.StringVar(&f.routerPassword, "router-password-file", "", "its password is in this `FILE`")
	fs.StringArrayVar(&f.pingKeys, "ping-key-file", nil, "let in who shows the key in this `FILE`, for beats alone; repeat it for more")
	fs.BoolVar(&f.pingPost, "ping-post-only", false, "with a ping key only POST counts: previews of links send GET and HEAD")

	fs.DurationVar((*time.Duration)(&f.FirstWindow), "first-window", 5*time.Second, "sources of an instance that is silent for so long are looked after by others")
	fs.DurationVar((*time.Duration)(&f.KeepAlarms), "keep-alarms", 90*24*time.Hour, "keep alarms that ended for so long")
	fs.StringVar(&f.Name, "name", instance.Hostname(), "`NAME` of this instance, for people")
	fs.StringVar(&f.Listen, "listen", settings.DefaultListen, "take beats in, and serve the page and the API, on this `ADDRESS`, HOST:PORT")
	fs.StringVar(&f.TokenFile, "token-file", "", "requests must carry the token in this `FILE`; needed for any address that is not loopback …")
	fs.StringVar(&f.TLSCert, "tls-cert", "", "… together with TLS: certificate `FILE`, PEM")
	fs.StringVar(&f.TLSKey, "tls-key", "", "its key `FILE`, PEM")
	fs.BoolVar(&f.BehindTLS, "behind-tls", false, "a proxy in front provides TLS")
}

// complete turns the flags into what the file would say, and checks it.
func (f *monitorRunFlags) complete(changed func(string) bool) (*settings.Server, error) {
	m := &f.Monitor
	m.Keep = true
	for _, text := range f.events {
		e, err := settings.ParseEvent(text)
		if err != nil {
			return nil, err
		}
		m.Events = append(m.Events, e)
	}
	for _, text := range f.declared {
		event, source, ok := strings.Cut(text, "/")
		if !ok {
			return nil, usage.Errorf("--declare %q: use EVENT/SOURCE", text)
		}
		m.Declared = append(m.Declared, settings.Declared{Event: event, Source: source})
	}
	if f.configFile != "" || f.cbs {
		if len(m.Events) > 0 || len(m.Declared) > 0 {
			return nil, usage.Errorf("--event and --declare exclude --config and --config-cbs, which put a whole configuration into force")
		}
		m.Keep = false
		m.Config = &settings.Fetch{File: f.configFile, CBS: f.cbs, Poll: strict.Duration(f.poll)}
	} else if changed("poll") {
		return nil, usage.Errorf("--poll belongs to --config and --config-cbs")
	}
	if err := f.sinks(changed); err != nil {
		return nil, err
	}
	for i, url := range f.routersIn {
		m.Routers = append(m.Routers, settings.Router{
			Router: numbered("mr", i), URL: url, Group: f.group, Consumer: f.consumer, User: f.routerUser, PasswordFile: f.routerPassword,
		})
	}
	for _, file := range f.pingKeys {
		m.PingKeys = append(m.PingKeys, settings.PingKey{File: file, PostOnly: f.pingPost})
	}
	if f.pingPost && len(f.pingKeys) == 0 {
		return nil, usage.Errorf("--ping-post-only belongs to --ping-key-file")
	}
	if err := lease.NewInstance(f.Name, "").Validate(); err != nil {
		return nil, err
	}
	cfg := &f.Server
	cfg.Monitor = m
	return cfg, cfg.Complete()
}

// numbered are names that each instance with the same flags gives: the first has no
// number.
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(i+1)
}

// sinks makes sinks of the flags, under names that are the same on every instance.
func (f *monitorRunFlags) sinks(changed func(string) bool) error {
	add := func(s settings.Sink) { f.Sinks = append(f.Sinks, s) }
	for i, url := range f.webhooks {
		add(settings.Sink{Sink: numbered("webhook", i), Webhook: &settings.HookSink{
			SinkHTTP: settings.SinkHTTP{URL: url}, SecretFile: f.webhookSecret, Recognises: f.recognises,
		}})
	}
	for i, url := range f.slacks {
		add(settings.Sink{Sink: numbered("slack", i), Slack: &settings.SlackSink{SinkHTTP: settings.SinkHTTP{URL: url}}})
	}
	if len(f.alertmanagers) > 0 {
		add(settings.Sink{Sink: "alertmanager", Alertmanager: &settings.AlertSink{URLs: f.alertmanagers}})
	}
	if len(f.emailTo) > 0 {
		f.email.To = f.emailTo
		add(settings.Sink{Sink: "email", Email: &f.email})
	}
	for i, url := range f.routersOut {
		add(settings.Sink{Sink: numbered("router", i), MessageRouter: &settings.TopicSink{
			URL: url, User: f.routerUser, PasswordFile: f.routerPassword, Compat: f.compat,
		}})
	}
	if f.log {
		add(settings.Sink{Sink: "log", Log: &settings.LogSink{}})
	}
	switch {
	case len(f.webhooks) == 0 && (f.webhookSecret != "" || f.recognises):
		return usage.Errorf("--webhook-secret-file and --recognises belong to --webhook")
	case len(f.routersOut) == 0 && f.compat != "":
		return usage.Errorf("--compat belongs to --router-out")
	case len(f.emailTo) == 0 && (changed("email-server") || changed("email-from") || changed("email-tls") || changed("email-user") || changed("email-password-file")):
		return usage.Errorf("--email-server, --email-from, --email-tls, --email-user and --email-password-file belong to --email")
	case len(f.routersIn) == 0 && (changed("group") || changed("consumer")):
		return usage.Errorf("--group and --consumer belong to --router-in")
	case len(f.routersIn)+len(f.routersOut) == 0 && (f.routerUser != "" || f.routerPassword != ""):
		return usage.Errorf("--router-user and --router-password-file belong to --router-in and --router-out")
	}
	return nil
}
