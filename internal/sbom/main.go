// Command sbom writes what a Go program is made of, as CycloneDX has it, beside the program: of what was built, not of what a
// go.mod file allows.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// document is a bill of materials: https://cyclonedx.org/docs/1.6/json. It has no date and no number of its own, so that the same
// program gives the same document.
type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	URL        string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	for _, path := range os.Args[1:] {
		if err := write(path); err != nil {
			fmt.Fprintln(os.Stderr, "sbom:", err)
			os.Exit(1)
		}
	}
}

// write writes PROGRAM.cdx.json.
func write(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(describe(filepath.Base(path), info), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path+".cdx.json", append(text, '\n'), 0o644)
}

func describe(name string, info *debug.BuildInfo) document {
	program := module("application", &info.Main)
	program.Name = name
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED", "-tags", "vcs.revision", "vcs.modified":
			program.Properties = append(program.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	std := component{Type: "library", Name: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	std.URL = "pkg:golang/stdlib@" + std.Version
	std.Ref = std.URL
	out := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{program}, Components: []component{std}}
	for _, m := range info.Deps {
		out.Components = append(out.Components, module("library", cmp.Or(m.Replace, m)))
	}
	return out
}

func module(kind string, m *debug.Module) component {
	out := component{Type: kind, Name: m.Path, Version: m.Version, URL: "pkg:golang/" + m.Path}
	if m.Version != "" {
		out.URL += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	}
	if out.Ref = out.URL; m.Sum != "" {
		out.Properties = []property{{"go:sum", m.Sum}}
	}
	return out
}
