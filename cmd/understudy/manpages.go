//go:build manpages

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Built with this tag, the program is another one: it writes a manual page for each command, and completions for each shell, into the
// folders man and completions of the one that it is given. So both come from the tree of commands itself, and the pages are in nothing that
// people run. Their date is $SOURCE_DATE_EPOCH.
func main() {
	if err := writePages(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writePages(dir string) error {
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	root := a.root()
	root.DisableAutoGenTag = true
	host, _ := os.Hostname()
	forgetHost(root, host)
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Understudy " + release, Manual: "Understudy"}, filepath.Join(dir, "man"))
	for shell, write := range map[string]func(string) error{
		"bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"zsh":  root.GenZshCompletionFile,
		"fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
	} {
		if err == nil {
			err = write(filepath.Join(dir, "completions", shell))
		}
	}
	return err
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
