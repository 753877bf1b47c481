package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "The server's file: check it, print an example, its schema, and the effective configuration",
		Example: `  understudy config example >understudy.yaml
  understudy config check understudy.yaml
  understudy config show understudy.yaml`,
	}
	c.AddCommand(a.configCheckCommand(), a.configExampleCommand(), a.configSchemaCommand(), a.configShowCommand())
	return c
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file as the server would, and print what it would run and how fast it is taken over",
		Long: `Check a file as "understudy serve -c FILE" does before it starts, with the environment and the files of secrets
that it names, but without a store: exit 2 and all that is wrong, with lines. If nothing is, print each part
that would run, and the longest takeover time if this instance dies while another works.`,
		Example: `  understudy config check /etc/understudy.yaml
  understudy config check understudy.yaml -o json | jq -r '.parts[] | "\(.part) \(.name): \(.worst_ms) ms"'`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return usererr.Errorf("config check: the name of FILE is empty")
			}
			cfg, err := settings.Read(args[0])
			if err != nil {
				return a.printWrong(args[0], err)
			}
			for _, w := range append(settings.UnknownVariables(os.Environ()), cfg.Warnings()...) {
				fmt.Fprintf(a.stderr, "warning: %s\n", termtext.Text(w))
			}
			return a.printRight(args[0], cfg)
		},
	}
}

// printWrong gives a program all errors as a list, and people the error itself.
func (a *app) printWrong(path string, err error) error {
	if !a.json() {
		return err
	}
	out := struct {
		File   string   `json:"file"`
		Valid  bool     `json:"valid"`
		Errors []string `json:"errors"`
	}{File: path}
	for _, e := range strictyaml.Each(err) {
		out.Errors = append(out.Errors, termtext.Text(e.Error()))
	}
	if err := a.printJSON(out); err != nil {
		return err
	}
	return usererr.Errorf("%s: %d errors", path, len(out.Errors))
}

func (a *app) printRight(path string, cfg *settings.Server) error {
	parts, from := cfg.Parts(), []string{}
	for _, k := range settings.Environment() {
		from = append(from, k.Name)
	}
	if a.json() {
		return a.printJSON(map[string]any{"file": path, "valid": true, "listen": cfg.Listen, "environment": from, "parts": append([]settings.Part{}, parts...)})
	}
	fmt.Fprintf(a.stdout, "%s: no errors\n", termtext.Text(path))
	if len(from) > 0 {
		fmt.Fprintf(a.stdout, "from the environment: %s\n", strings.Join(from, ", "))
	}
	fmt.Fprintf(a.stdout, "page and API at %s://%s; it would run:\n\n", cfg.Scheme(), termtext.Text(cfg.Listen))
	var rows []string
	for _, p := range parts {
		worst := "-"
		if p.WorstMS > 0 {
			worst = termtext.Duration(time.Duration(p.WorstMS) * time.Millisecond)
		}
		rows = append(rows, row(p.Part, p.Name, worst, p.Means))
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no part: the page and the API alone")
		return err
	}
	return a.table("PART\tNAME\tWORST TAKEOVER\tMEANING", rows)
}
