package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

type monitorRunFlags struct {
	settings.Server
	settings.Monitor

	checks, events, declared   []string // events is the old name of checks
	webhooks, slacks           []string
	alertmanagers              []string
	webhookSecret              string
	deduplicates, log          bool
	email                      settings.EmailSink
	routersIn, routersOut      []string
	group, consumer, compat    string
	routerUser, routerPassword string
	pingKeys                   []string
	pingPost                   bool
	fetch                      settings.Fetch
	asFile                     bool
}

func (a *app) monitorRunCommand() *cobra.Command {
	var f monitorRunFlags
	c := &cobra.Command{
		Use:   "run [--check NAME,interval=5s,missed=3…] [--webhook URL…] [flags]",
		Short: "Run a whole monitor without a file: receive heartbeats, detect silence, send alarms",
		Long: `Run an instance of the monitor: it receives heartbeats over HTTP and from Message Routers, detects sources
that fall silent, and sends alarms to the sinks. The page and the API are on the same port. Any number of instances share
a store, its checks, sources and sinks. If one dies, the others take over its sources after the first window.

--check NAME,KEY=VALUE… says what is expected: interval=5s and missed=3, or schedule="30 2 * * *"; more
keys are grace, max_run, retire_after, max_learned, severity, flaps, flap_window, steady, group_by, group_wait,
group_min, depends_on, depends_label, maintenance, maintenance_for, repeat_interval, fixed, sender_clock, any_domain, paused, tag, label.NAME,
and control_loop.KEY. It adds or changes a check, and
leaves the others in the store as they are. The flags are a short way in: whatever they cannot say goes into a file for
"understudy serve -c FILE", which --as-file makes of them. --config applies a whole configuration, and reads it again every --poll: one instance
does so, for all.

SIGINT, SIGTERM and SIGHUP stop it: accepted heartbeats are stored, and its share of the sources is released at once. A
second signal ends it without waiting.`,
		Example: `  understudy monitor run --check nightly-backup,interval=24h,missed=1,grace=1h --webhook https://ops.example/hook
  curl http://127.0.0.1:7600/v1/ping/nightly-backup/db-1

  understudy monitor run --check fleet,interval=5s,missed=3,label.team=ops --slack https://hooks.slack.example/T/B/x \
    --alertmanager http://10.0.0.1:9093 --alertmanager http://10.0.0.2:9093 --store postgres://db/app
  understudy monitor run --config hb.json --store postgres://db/hb

  understudy monitor run --check fleet,interval=5s --slack https://hooks.slack.example/T/B/x --as-file >understudy.yaml
  understudy serve -c understudy.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range slices.Sorted(maps.Keys(fileOnly)) {
				if c.Flags().Changed(name) {
					fmt.Fprintf(a.stderr, "warning: --%s works for one more version: write %s in a file (--as-file makes one)\n", name, fileOnly[name])
				}
			}
			cfg, err := f.complete(c.Flags().Changed)
			if err != nil {
				return err
			}
			if f.asFile {
				return a.printAsFile(cfg)
			}
			return untilSecondSignal(c.Context(), func(ctx context.Context) error { return a.serve(ctx, cfg, nil) })
		},
	}
	f.register(c)
	return c
}

func (f *monitorRunFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&f.checks, "check", nil, "expect heartbeats under this name, `NAME,KEY=VALUE…`; repeat for more")
	fs.StringArrayVar(&f.events, "event", nil, "the old name of --check")
	fs.Lookup("event").Hidden = true
	fs.StringArrayVar(&f.declared, "declare", nil, "know this source before its first heartbeat, `CHECK/SOURCE`; repeat for more")
	strictyaml.Bind(fs, &f.fetch)

	fs.StringArrayVar(&f.webhooks, "webhook", nil, "POST alarms to this `URL`; repeat for more sinks")
	fs.StringVar(&f.webhookSecret, "webhook-secret-file", "", "sign webhooks with the secret in this `FILE`")
	fs.BoolVar(&f.deduplicates, "recognises", false, "the webhook deduplicates by alarm ID, however late an alarm is sent again")
	fs.StringArrayVar(&f.slacks, "slack", nil, "post alarms to this `URL` of a Slack incoming webhook; repeat for more sinks")
	fs.StringArrayVar(&f.alertmanagers, "alertmanager", nil, "send alarms to the Alertmanager at this `URL`; repeat for each member of its cluster")
	strictyaml.Bind(fs, &f.email)
	fs.StringArrayVar(&f.routersOut, "router-out", nil, "publish control-loop events to this topic `URL` of a Message Router; repeat for more sinks")
	fs.StringVar(&f.compat, "compat", "", "\"onap\": control-loop events exactly as ONAP's heartbeat service makes them")
	fs.BoolVar(&f.log, "log", false, "write a log line for each alarm")

	fs.StringArrayVar(&f.routersIn, "router-in", nil, "read heartbeats from this topic `URL` of a Message Router; repeat for more")
	fs.StringVar(&f.group, "group", "understudy", "consumer `GROUP`, the same for all instances")
	fs.StringVar(&f.consumer, "consumer", "", "consumer `ID`, different on every instance (default: the name of this instance)")
	fs.StringVar(&f.routerUser, "router-user", "", "`USER` at the Message Routers")
	fs.StringVar(&f.routerPassword, "router-password-file", "", "its password is in this `FILE`")
	fs.StringArrayVar(&f.pingKeys, "ping-key-file", nil, "let senders in that show the key in this `FILE`, for heartbeats only; repeat for more")
	fs.BoolVar(&f.pingPost, "ping-post-only", false, "with a ping key accept POST only: link previews send GET and HEAD")

	strictyaml.Bind(fs, &f.Monitor, "first_window", "keep_alarms")
	f.Name = instance.Hostname()
	strictyaml.Bind(fs, &f.Server, "name", "listen", "token_file", "tls_cert", "tls_key", "behind_tls")
	fs.BoolVar(&f.asFile, "as-file", false, "print what the flags say as a file for \"understudy serve -c\", webhook URLs included, and exit")
	strictyaml.More(fs, "router-out", "router-in", "group", "ping-key-file", "ping-post-only", "tls-cert", "tls-key", "behind-tls", "poll")
	for name := range fileOnly {
		fs.Lookup(name).Hidden = true
	}
}

// fileOnly are flags of the version before for what belongs in a file, and the key there.
var fileOnly = map[string]string{
	"webhook-secret-file": "secret_file of the webhook", "recognises": "deduplicates of the webhook",
	"compat": "format: control_loop_original of the sink", "consumer": "consumer of the router",
	"router-user": "user of the router and the sink", "router-password-file": "password_file of the router and the sink",
	"email-tls": "tls of the email", "email-user": "user of the email", "email-password-file": "password_file of the email",
	"keep-alarms": "keep_alarms of the part monitor",
}

// complete turns the flags into what the file would say, and checks it.
func (f *monitorRunFlags) complete(changed func(string) bool) (*settings.Server, error) {
	m := &f.Monitor
	m.Keep = true
	for _, text := range slices.Concat(f.checks, f.events) {
		e, err := settings.ParseCheck(text)
		if err != nil {
			return nil, err
		}
		m.Checks = append(m.Checks, e)
	}
	for _, text := range f.declared {
		check, source, ok := strings.Cut(text, "/")
		if !ok {
			return nil, usererr.Errorf("--declare %q: use CHECK/SOURCE", text)
		}
		m.Declared = append(m.Declared, settings.Declared{Check: check, Source: source})
	}
	if f.fetch.File != "" || f.fetch.CBS {
		if len(m.Checks) > 0 || len(m.Declared) > 0 {
			return nil, usererr.Errorf("--check and --declare exclude --config and --config-cbs, which apply a whole configuration")
		}
		m.Keep = false
		m.Config = &f.fetch
	} else if changed("poll") {
		return nil, usererr.Errorf("--poll belongs to --config and --config-cbs")
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
		return nil, usererr.Errorf("--ping-post-only belongs to --ping-key-file")
	}
	if err := lease.NewInstance(f.Name, "").Validate(); err != nil {
		return nil, err
	}
	cfg := &f.Server
	cfg.Monitor = m
	return cfg, cfg.Complete()
}

// printAsFile prints the settings as a file, on the store that was named.
func (a *app) printAsFile(cfg *settings.Server) error {
	if cfg.StoreFile = a.storeFile; cfg.StoreFile == "" { // a URL that has a file of its own may have a password
		cfg.Store = a.StoreURL
	}
	_, err := fmt.Fprint(a.stdout, strictyaml.Written(reflect.ValueOf(*cfg)))
	return err
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
			SinkHTTP: settings.SinkHTTP{URL: url}, SecretFile: f.webhookSecret, Deduplicates: f.deduplicates,
		}})
	}
	for i, url := range f.slacks {
		add(settings.Sink{Sink: numbered("slack", i), Slack: &settings.SlackSink{SinkHTTP: settings.SinkHTTP{URL: url}}})
	}
	if len(f.alertmanagers) > 0 {
		add(settings.Sink{Sink: "alertmanager", Alertmanager: &settings.AlertSink{URLs: f.alertmanagers}})
	}
	if len(f.email.To) > 0 {
		f.email.Server = cmp.Or(f.email.Server, "127.0.0.1")
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
	case len(f.webhooks) == 0 && (f.webhookSecret != "" || f.deduplicates):
		return usererr.Errorf("--webhook-secret-file and --recognises belong to --webhook")
	case len(f.routersOut) == 0 && f.compat != "":
		return usererr.Errorf("--compat belongs to --router-out")
	case len(f.email.To) == 0 && (changed("email-server") || changed("email-from") || changed("email-tls") || changed("email-user") || changed("email-password-file")):
		return usererr.Errorf("--email-server, --email-from, --email-tls, --email-user and --email-password-file belong to --email")
	case len(f.routersIn) == 0 && (changed("group") || changed("consumer")):
		return usererr.Errorf("--group and --consumer belong to --router-in")
	case len(f.routersIn)+len(f.routersOut) == 0 && (f.routerUser != "" || f.routerPassword != ""):
		return usererr.Errorf("--router-user and --router-password-file belong to --router-in and --router-out")
	}
	return nil
}
