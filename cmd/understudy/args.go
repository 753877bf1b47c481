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

// featureAnnotation of a noun is what the store must support for its commands.
const featureAnnotation = "understudy_requires"

// requires is the annotation of a noun whose commands need a store that supports queues, jobs or sources.
func requires(feature string) map[string]string {
	return map[string]string{featureAnnotation: feature}
}

// requiredFeatureOf is what the noun of a command needs the store to support, "" for nothing in particular.
func requiredFeatureOf(c *cobra.Command) string {
	for ; c != nil; c = c.Parent() {
		if feature := c.Annotations[featureAnnotation]; feature != "" {
			return feature
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
