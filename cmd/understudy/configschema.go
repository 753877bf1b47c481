package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// exampleFile has every key, and says of each what it is: `config schema` takes its descriptions
// from there. "#key:" at the begin of a line is a key that is left out, "# text" is text.
//
//go:embed example.yaml
var exampleFile string

func (a *app) exampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a commented file with every key",
		Long: `Print a file with every key that "understudy serve -c" knows, and what each is for. It passes "config
check" as it is. Keys with a # before them are left out: because they name files that you would have to make, or exclude
others that stand there.`,
		Example: `  understudy config example >understudy.yaml
  understudy config example | grep -v '^ *#'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json() {
				return a.printJSON(map[string]string{"example": exampleFile})
			}
			_, err := fmt.Fprint(a.stdout, exampleFile)
			return err
		},
	}
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the file, for editors",
		Long: `Print the JSON schema (draft 2020-12) of the server's file. An editor with a YAML language server completes keys
and marks mistakes with it: write "# yaml-language-server: $schema=understudy.schema.json" on the first line of
the file. "config check" says more: a schema knows no relations.`,
		Example: `  understudy config schema >understudy.schema.json`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			schema, err := fileSchema()
			if err != nil {
				return err
			}
			e := json.NewEncoder(a.stdout)
			e.SetEscapeHTML(false)
			if !a.json() {
				e.SetIndent("", "  ")
			}
			return e.Encode(schema)
		},
	}
}

// wholeExample is the example with the keys that are left out in it.
func wholeExample() string {
	return regexp.MustCompile(`(?m)^( *)#([a-z_-])`).ReplaceAllString(exampleFile, "$1$2")
}

// fileSchema is the schema of the server's file, made of the types that it is read into.
func fileSchema() (map[string]any, error) {
	says, err := descriptions()
	if err != nil {
		return nil, err
	}
	out := schemaOf(reflect.TypeFor[serveConfig](), "", says)
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = "The file of understudy serve"
	return out, nil
}

func schemaOf(t reflect.Type, path string, says map[string]string) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[duration]():
		return map[string]any{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	case t == reflect.TypeFor[size]():
		return map[string]any{"type": []string{"string", "integer"}, "pattern": "^[0-9]+(KiB|MiB|GiB)?$", "minimum": 1}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), path, says)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), path+".*", says)}
	}
	properties := map[string]any{}
	for _, k := range fileKeys(t) {
		p := strings.TrimPrefix(path+"."+k.name, ".")
		of := schemaOf(k.of, p, says)
		if text := says[p]; text != "" {
			of["description"] = text
		}
		properties[k.name] = of
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// descriptions are what the example says of each key, by its path: what stands behind it, else
// above it.
func descriptions() (map[string]string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(wholeExample()), &doc); err != nil {
		return nil, err
	}
	out := map[string]string{}
	describe(doc.Content[0], "", out)
	return out, nil
}

func describe(n *yaml.Node, path string, out map[string]string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			describe(item, path, out)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			p := strings.TrimPrefix(path+"."+k.Value, ".")
			for _, text := range []string{v.LineComment, k.LineComment, k.HeadComment} {
				if said := uncomment(text); said != "" && out[p] == "" {
					out[p] = said
				}
			}
			describe(v, p, out)
		}
	}
}

// uncomment joins the lines of a comment, without their marks.
func uncomment(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(strings.TrimLeft(line, "#")); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, " ")
}
