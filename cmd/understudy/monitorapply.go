package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/monitor"
)

const documentForms = `FILE is YAML with events and declared sources, or a server's file with a part "monitor", or the
JSON of ONAP's heartbeat service; "-" is standard input.`

func (a *app) monitorConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Event names of the monitor: check, apply, show",
		Example: `  understudy monitor config check events.yaml
  understudy monitor config apply events.yaml
  understudy monitor config show >events.yaml`,
	}
	c.AddCommand(a.configCheckCommand(), a.configApplyCommand(), a.configShowCommand())
	return c
}

func (a *app) configCheckCommand() *cobra.Command {
	var properties string
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration, without a store",
		Long: `Check a configuration as it is checked before it is put into force, without a store: exit 2 says
what is wrong, and where. ` + documentForms,
		Example: `  understudy monitor config check events.yaml
  understudy monitor config check hb.json -o json`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := settings.ReadDocument(args[0], properties, c.InOrStdin())
			if err != nil {
				return err
			}
			return a.printDocument(doc)
		},
	}
	c.Flags().StringVar(&properties, "properties", "", "with the JSON of ONAP's service: its hbproperties.yaml, this `FILE`")
	return c
}

func (a *app) printDocument(doc settings.Document) error {
	if a.json() {
		out := map[string]any{"form": doc.Form, "events": eventViews(doc.Events), "declared": len(doc.Declared), "keep": doc.Keep}
		if doc.ONAP != nil {
			out["warnings"] = append([]string{}, doc.ONAP.Warnings...)
		}
		return a.printJSON(out)
	}
	fmt.Fprintf(a.stdout, "%s is the %s; event names: %d, declared sources: %d\n", plain.Text(doc.Origin), doc.Form, len(doc.Events), len(doc.Declared))
	if doc.ONAP != nil {
		for _, w := range doc.ONAP.Warnings {
			fmt.Fprintf(a.stderr, "warning: %s\n", plain.Text(plain.Line(w)))
		}
		if err := a.printElsewhere(doc); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, e := range doc.Events {
		e = e.WithDefaults()
		rows = append(rows, row(e.Name, expectation(e), e.Severity, e.GroupBy, e.ControlLoop.Name, e.ControlLoop.TargetType, e.ControlLoop.Target))
	}
	return a.table("EVENT\tEXPECTED\tSEVERITY\tGROUP BY\tCONTROL LOOP\tTYPE\tTARGET", rows)
}

// printElsewhere shows what else the JSON of ONAP's service says, and where that goes
// here: into flags, or the server's file.
func (a *app) printElsewhere(doc settings.Document) error {
	c := doc.ONAP
	database := ""
	if c.Database.Host != "" {
		database = fmt.Sprintf("postgres://%s@%s/%s", c.Database.User, net.JoinHostPort(c.Database.Host, fmt.Sprint(c.Database.Port)), c.Database.Name)
	}
	poll := "never"
	if c.Poll > 0 {
		poll = plain.Duration(c.Poll)
	}
	return a.printFacts([][2]string{
		{"store", database}, {"read from", plain.URL(c.Subscribe)}, {"group", c.Group}, {"consumer", c.Consumer},
		{"tell", plain.URL(c.Publish)}, {"service", c.Service}, {"poll", poll}, {"missing", strings.Join(c.Missing, ", ")},
	})
}

func eventViews(events []monitor.Event) []api.EventView {
	out := make([]api.EventView, 0, len(events))
	for _, e := range events {
		out = append(out, api.ViewEvent(e.WithDefaults()))
	}
	return out
}

func (a *app) configApplyCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a configuration into force, whole or not at all",
		Long: `Put a configuration into force, while the instances go on. Event names that do not stand in it
are removed with their sources, and their alarms end, unless --keep says otherwise. ` + documentForms + `

Instances that fetch a configuration put theirs into force again at their next look.`,
		Example: `  understudy monitor config apply events.yaml
  understudy monitor config apply --keep more.yaml`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := settings.ReadDocument(args[0], "", c.InOrStdin())
			if err != nil {
				return err
			}
			doc.Keep = doc.Keep || keep
			doc.Origin = originHere(doc.Origin)
			return a.withMonitor(c.Context(), func(ctx context.Context, t monitor.Table) error {
				ctx, cancel := context.WithTimeout(ctx, server.ConfigureTimeout)
				defer cancel()
				done, err := t.Configure(ctx, doc.Configuration)
				if err != nil {
					return err
				}
				return a.printConfigured(done)
			})
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave event names that do not stand in the file as they are")
	return c
}

// originHere is where a configuration came from that a person put into force.
func originHere(path string) string {
	if path == "-" {
		path = "standard input"
	}
	return path + " by " + who()
}

func (a *app) printConfigured(done monitor.Configured) error {
	if a.json() {
		return a.printJSON(map[string]any{
			"added": append([]string{}, done.Added...), "changed": append([]string{}, done.Changed...),
			"removed": append([]string{}, done.Removed...), "declared": done.Declared, "generation": done.Generation,
		})
	}
	for _, what := range []struct {
		did   string
		names []string
	}{{"added", done.Added}, {"changed", done.Changed}, {"removed", done.Removed}} {
		for _, name := range what.names {
			fmt.Fprintf(a.stdout, "%s: %s\n", what.did, plain.Text(name))
		}
	}
	if done.Declared > 0 {
		fmt.Fprintf(a.stdout, "declared: %d new sources\n", done.Declared)
	}
	if len(done.Added)+len(done.Changed)+len(done.Removed)+done.Declared == 0 {
		fmt.Fprintln(a.stdout, "nothing has changed")
	}
	return nil
}

func (a *app) configShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the event names that are in force, as a file that can be applied",
		Long: `Print the event names that are in force, with their defaults, as YAML that "monitor config apply"
takes. With -o json there is one line for each, in the API's form.`,
		Example: `  understudy monitor config show >events.yaml
  understudy monitor config show -o json | jq -r .event`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.askMonitor(c.Context(), func(ctx context.Context, t monitor.Table) error {
				s, err := t.Settings(ctx)
				if err != nil {
					return err
				}
				return a.printSettings(s)
			})
		},
	}
}

func (a *app) printSettings(s monitor.Settings) error {
	var file settings.Monitored
	for _, e := range s.Events {
		if e.Removed {
			continue
		}
		if a.json() {
			if err := a.printJSON(api.ViewEvent(e.Event)); err != nil {
				return err
			}
			continue
		}
		file.Events = append(file.Events, settings.EventOf(e.Event))
	}
	if a.json() {
		return nil
	}
	var text strings.Builder
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := out.Encode(file); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.stdout, text.String())
	return err
}
