package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/settings"
)

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a commented file with every key",
		Long: `Print a file with every key that "understudy serve -c" knows, and what each is for. It passes "config
check" as it is. Keys with a # before them are left out: because they name files that you would have to make, or they
conflict with other keys in the file.`,
		Example: `  understudy config example >understudy.yaml
  understudy config example | grep -v '^ *#'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json() {
				return a.printJSON(map[string]string{"example": settings.Example()})
			}
			_, err := fmt.Fprint(a.stdout, settings.Example())
			return err
		},
	}
}

func (a *app) configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the file, for editors",
		Long: `Print the JSON schema (draft 2020-12) of the server's file. An editor with a YAML language server completes keys
and marks mistakes with it: write "# yaml-language-server: $schema=understudy.schema.json" on the first line of
the file. "config check" says more: a schema cannot relate keys.`,
		Example: `  understudy config schema >understudy.schema.json`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			e := json.NewEncoder(a.stdout)
			e.SetEscapeHTML(false)
			if !a.json() {
				e.SetIndent("", "  ")
			}
			return e.Encode(settings.Schema())
		},
	}
}
