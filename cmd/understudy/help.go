package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// printUsage prints what cobra would print, with the flags that few people need under a heading of their own.
func printUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprint(w, "Usage:")
	if c.Runnable() {
		fmt.Fprintf(w, "\n  %s", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n  %s [command]", c.CommandPath())
	}
	if len(c.Aliases) > 0 && !c.HasSubCommands() {
		fmt.Fprintf(w, "\n\nAliases:\n  %s", c.NameAndAliases())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\n\nExamples:\n%s", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "\n\nAvailable Commands:")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	first, more := strictyaml.SplitFlags(c.LocalFlags())
	printFlags(w, "Flags", first)
	printFlags(w, "More flags", more)
	printFlags(w, "Global flags", c.InheritedFlags())
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\nUse \"%s [command] --help\" for more information about a command.", c.CommandPath())
	}
	_, err := fmt.Fprintln(w)
	return err
}

// printFlags prints flags under a heading: switches without "[=true|false]", and one default for each flag.
func printFlags(w io.Writer, heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		one := *f
		toggle := f.Value.Type() == "bool"
		if toggle {
			one.NoOptDefVal = ""
		}
		if strings.Contains(f.Usage, "(default") {
			one.DefValue = ""
		}
		if toggle || one.DefValue == "" {
			one.Value = shownValue{f.Value}
		}
		shown.AddFlag(&one)
	})
	fmt.Fprintf(w, "\n\n%s:\n%s", heading, strings.TrimRight(shown.FlagUsages(), " \n"))
}

// shownValue hides from pflag what kind of value a flag has: the kind decides how its default is printed.
type shownValue struct{ pflag.Value }

func (v shownValue) Type() string {
	if kind := v.Value.Type(); kind != "bool" {
		return kind
	}
	return ""
}
