package settings

import (
	_ "embed"
	"reflect"

	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// exampleValues has a value for every key. "#key:" is a key that is left out.
//
//go:embed example.yaml
var exampleValues string

// Example returns a file with every key, and the help of each beside it.
func Example() string { return strictyaml.Annotate(exampleValues, reflect.TypeFor[Server]()) }

// Schema returns the JSON schema of the server's file.
func Schema() map[string]any {
	out := strictyaml.Schema(reflect.TypeFor[Server]())
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = "The file of understudy serve"
	return out
}
