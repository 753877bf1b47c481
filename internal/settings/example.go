package settings

import (
	_ "embed"
	"reflect"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strict"
)

// Example has every key, and says of each what it is: `config schema` takes its descriptions
// from there. "#key:" at the begin of a line is a key that is left out, "# text" is text.
//
//go:embed example.yaml
var Example string

// wholeExample is the example with the keys that are left out in it.
func wholeExample() string {
	return regexp.MustCompile(`(?m)^( *)#([a-z_-])`).ReplaceAllString(Example, "$1$2")
}

// Schema is the schema of the server's file, made of the types that it is read into.
func Schema() (map[string]any, error) {
	says, err := descriptions()
	if err != nil {
		return nil, err
	}
	out := strict.Schema(reflect.TypeFor[Server](), "", says)
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = "The file of understudy serve"
	return out, nil
}

// descriptions are what the example says of each key, by its path: what stands behind it, else
// above it.
func descriptions() (map[string]string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(wholeExample()), &doc); err != nil {
		return nil, err
	}
	out := map[string]string{}
	strict.Describe(doc.Content[0], "", out)
	return out, nil
}
