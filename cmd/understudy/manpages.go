//go:build manpages

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Built with this tag, the program is another one: it writes a manual page for each command into the directory that it is given. So
// the pages come from the tree of commands itself, and nothing of it is in the program that people run. Their date is $SOURCE_DATE_EPOCH.
func main() {
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	root := a.root()
	root.DisableAutoGenTag = true
	host, _ := os.Hostname()
	forgetHost(root, host)
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Understudy " + release, Manual: "Understudy"}, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forgetHost leaves out a default that is the name of the host which builds the pages.
func forgetHost(c *cobra.Command, host string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.DefValue == host {
			f.DefValue = ""
		}
	})
	for _, sub := range c.Commands() {
		forgetHost(sub, host)
	}
}
