package main

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
)

const documentForms = `FILE is YAML with checks and declared sources, or a server's file with a part "monitor", or the
JSON of ONAP's heartbeat service; "-" is standard input.`

func (a *app) monitorConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Checks of the monitor: check, apply, show",
		Example: `  understudy monitor config check checks.yaml
  understudy monitor config apply checks.yaml
  understudy monitor config show >checks.yaml`,
	}
	c.AddCommand(a.monitorConfigCheckCommand(), a.monitorConfigApplyCommand(), a.monitorConfigShowCommand())
	return c
}

func (a *app) monitorConfigCheckCommand() *cobra.Command {
	var properties string
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration, without a store",
		Long: `Check a configuration as "apply" does, but without a store. Exit code 2: it has mistakes, which are
printed with their lines. ` + documentForms,
		Example: `  understudy monitor config check checks.yaml
  understudy monitor config check hb.json -o json`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := a.readDocument(c, args[0], properties)
			if err != nil {
				return err
			}
			return a.printDocument(doc)
		},
	}
	c.Flags().StringVar(&properties, "properties", "", "with the JSON of ONAP's service: its hbproperties.yaml, this `FILE`")
	return c
}

// readDocument reads a configuration, and warns of keys that have an old name.
func (a *app) readDocument(c *cobra.Command, path, properties string) (settings.Document, error) {
	doc, err := settings.ReadDocument(path, properties, standardInput(c))
	if err != nil && c.Context().Err() != nil {
		err = context.Cause(c.Context()) // nothing is wrong with what there was
	}
	for _, w := range doc.Outdated {
		fmt.Fprintf(a.stderr, "warning: %s: %s\n", termtext.Text(path), termtext.Text(w))
	}
	return doc, err
}

func (a *app) printDocument(doc settings.Document) error {
	checks := make([]apitype.Check, 0, len(doc.Checks))
	for _, c := range doc.Checks {
		checks = append(checks, api.ViewCheck(c.WithDefaults()))
	}
	if a.json() {
		out := map[string]any{"form": doc.Form, "checks": checks, "declared": len(doc.Declared), "keep": doc.Keep}
		if doc.ONAP != nil {
			out["warnings"] = append([]string{}, doc.ONAP.Warnings...)
		}
		return a.printJSON(out)
	}
	fmt.Fprintf(a.stdout, "%s is the %s; checks: %d, declared sources: %d\n", termtext.Text(doc.Origin), doc.Form, len(doc.Checks), len(doc.Declared))
	if doc.ONAP != nil {
		for _, w := range doc.ONAP.Warnings {
			fmt.Fprintf(a.stderr, "warning: %s\n", termtext.Text(termtext.Line(w)))
		}
		if err := a.printElsewhere(doc); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, c := range checks {
		rows = append(rows, row(c.Name, expectation(c), c.Severity, c.GroupBy, c.ControlLoop.Name, c.ControlLoop.TargetType, c.ControlLoop.Target))
	}
	return a.table("CHECK\tEXPECTED\tSEVERITY\tGROUP BY\tCONTROL LOOP\tTYPE\tTARGET", rows)
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
		poll = termtext.Duration(c.Poll)
	}
	return a.printFacts([][2]string{
		{"store", database}, {"read from", termtext.URL(c.Subscribe)}, {"group", c.Group}, {"consumer", c.Consumer},
		{"publish to", termtext.URL(c.Publish)}, {"service", c.Service}, {"poll", poll}, {"missing", strings.Join(c.Missing, ", ")},
	})
}

func (a *app) monitorConfigApplyCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "apply FILE",
		Short: "Apply a configuration, whole or not at all",
		Long: `Apply a configuration while the instances run. Checks that are not in it are removed with their
sources, and their alarms end, unless --keep-others is given. ` + documentForms + `

Instances that fetch a configuration apply theirs again at their next poll.`,
		Example: `  understudy monitor config apply checks.yaml
  understudy monitor config apply --keep-others more.yaml`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := a.readDocument(c, args[0], "")
			if err != nil {
				return err
			}
			doc.Keep = doc.Keep || keep
			a.mayCreate = true
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				done, err := c.Configure(ctx, configurationOf(doc))
				if err != nil {
					return err
				}
				return printAs(a, done, a.printConfigured)
			})
		},
	}
	c.Flags().BoolVar(&keep, "keep-others", false, "leave checks that are not in the file as they are")
	strictyaml.Renamed(c.Flags(), "keep", "keep-others")
	return c
}

// configurationOf is a configuration that an operator applies, as the API takes it.
func configurationOf(doc settings.Document) apitype.MonitorConfiguration {
	out := apitype.MonitorConfiguration{Checks: []apitype.Check{}, Keep: doc.Keep, Origin: doc.Origin, By: operator()}
	if out.Origin == "-" {
		out.Origin = "standard input"
	}
	for _, c := range doc.Checks {
		out.Checks = append(out.Checks, api.ViewCheck(c))
	}
	for _, d := range doc.Declared {
		out.Declared = append(out.Declared, apitype.Declaration(d))
	}
	return out
}

func (a *app) printConfigured(done apitype.ConfigurationChange) error {
	for _, what := range []struct {
		did   string
		names []string
	}{{"added", done.Added}, {"changed", done.Changed}, {"removed", done.Removed}} {
		for _, name := range what.names {
			fmt.Fprintf(a.stdout, "%s: %s\n", what.did, termtext.Text(name))
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

func (a *app) monitorConfigShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the applied checks, as a file that can be applied again",
		Long: `Print the applied checks, with their defaults, as YAML for "monitor config apply". With -o json there
is one line for each check, in the API's form.`,
		Example: `  understudy monitor config show >checks.yaml
  understudy monitor config show -o json | jq -r .check`,
		Args: noArgs,
		RunE: a.apiRunE(func(ctx context.Context, c *client.Client, _ []string) error {
			m, err := c.Monitor(ctx)
			if err != nil {
				return err
			}
			return a.printChecks(m.Checks)
		}),
	}
}

// printChecks prints checks as a file that can be applied.
func (a *app) printChecks(checks []apitype.CheckCount) error {
	var file settings.Monitored
	for _, c := range checks {
		if c.Removed {
			continue
		}
		if a.json() {
			if err := a.printJSON(c.Check); err != nil {
				return err
			}
			continue
		}
		file.Checks = append(file.Checks, settings.CheckOf(api.CheckOf(c.Check)))
	}
	if a.json() {
		return nil
	}
	n := strictyaml.Render(reflect.ValueOf(file), "", strictyaml.ShowAll)
	if n == nil {
		n = &yaml.Node{Kind: yaml.MappingNode}
	}
	return a.printYAML(n)
}
