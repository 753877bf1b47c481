package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version that the changelog names first; a test keeps the two together.
const release = "0.1.0"

// build says what this program was made from.
type build struct {
	Version string `json:"version"`          // a release, or one with the commit behind it: 0.1.0+4f2a9c31d7e0
	Commit  string `json:"commit,omitempty"` // empty if it was built outside a checkout
	Time    string `json:"time,omitempty"`   // of the commit, RFC 3339, UTC
	Changed bool   `json:"changed"`          // the checkout had changes that no commit has
	Go      string `json:"go"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and the commit it was built from",
		Example: "  understudy version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := builtFrom()
			return a.print(b, "understudy %s (%s)", b.Version, b.Go)
		},
	}
}

func version() string { return builtFrom().Version }

func builtFrom() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{Version: release, Go: "unknown"}
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) build {
	b := build{Version: release, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	// A checkout of the release's tag, or "go install …@v0.1.0", is the release itself.
	if info.Main.Version == "v"+release || b.Commit == "" {
		return b
	}
	b.Version += "+" + b.Commit[:min(12, len(b.Commit))]
	if b.Changed {
		b.Version += ".changed"
	}
	return b
}
