package main

import (
	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/usererr"
)

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usererr.Errorf("%s takes no arguments; see --help", c.CommandPath())
	}
	return nil
}

// exactly checks the number of arguments and names the ones that are missing; a [NAME] may be.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < len(names) && names[len(args)][0] != '[' {
			return usererr.Errorf("%s: %s is missing; see --help", c.CommandPath(), names[len(args)])
		}
		if len(args) > len(names) {
			return usererr.Errorf("%s: %q is one argument too many; see --help", c.CommandPath(), args[len(names)])
		}
		return nil
	}
}

// startingWith checks the number of arguments, and the first of them.
func startingWith(validate func(string) error, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := exactly(names...)(c, args); err != nil {
			return err
		}
		return validate(args[0])
	}
}

// nameAndProgram wants NAME -- CMD [ARG…].
func nameAndProgram(name, flags string, validate func(string) error) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		dash := c.ArgsLenAtDash()
		switch {
		case len(args) == 0 || dash == 0:
			return usererr.Errorf("%s: %s is missing; see --help", c.CommandPath(), name)
		case dash != 1 || len(args) < 2:
			return usererr.Errorf("%s: write the program after --, as in: %s %s%s -- ./program", c.CommandPath(), c.CommandPath(), args[0], flags)
		}
		return validate(args[0])
	}
}

// keepsAnnotation of a noun is what a store must keep for its commands.
const keepsAnnotation = "understudy_keeps"

// keeping is the annotation of a noun whose commands need a store that keeps queues, jobs or sources.
func keeping(what string) map[string]string { return map[string]string{keepsAnnotation: what} }

// keptFor is what the noun of a command needs a store to keep, "" for nothing in particular.
func keptFor(c *cobra.Command) string {
	for ; c != nil; c = c.Parent() {
		if what := c.Annotations[keepsAnnotation]; what != "" {
			return what
		}
	}
	return ""
}

// atLeast checks that every argument is there; the last may be repeated.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		return exactly(names...)(c, args[:min(len(args), len(names))])
	}
}
