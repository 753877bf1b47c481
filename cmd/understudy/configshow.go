package main

import (
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/settings"
)

func (a *app) configShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print what a server would run with: the file, the environment and the defaults, without secrets",
		Long: `Print the configuration that "understudy serve -c FILE" would run with: what the file says, what the
environment says in its place, and the defaults of what neither says. Secrets are shown as ***. Without a file
it is the configuration of a server that has none.`,
		Example: `  understudy config show /etc/understudy.yaml
  UNDERSTUDY_LISTEN=127.0.0.1:9000 understudy config show -o json`,
		Args: exactly("[FILE]"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := settings.Read(strings.Join(args, ""))
			if err != nil {
				return err
			}
			if err := cfg.Fill(a.StoreURL); err != nil {
				return err
			}
			n := cfg.Shown()
			if a.json() {
				var v any
				if err := n.Decode(&v); err != nil {
					return err
				}
				return a.printJSON(v)
			}
			return a.printYAML(n)
		},
	}
}

func (a *app) printYAML(n *yaml.Node) error {
	e := yaml.NewEncoder(a.stdout)
	e.SetIndent(2)
	return e.Encode(n)
}
