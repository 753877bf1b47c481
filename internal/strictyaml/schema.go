package strictyaml

import (
	"reflect"
	"time"
)

// Schema returns the JSON schema of a struct that is read strictly, with the help text of each key as its description.
func Schema(t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	case t == reflect.TypeFor[Size]():
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
		return map[string]any{"type": "array", "items": Schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": Schema(t.Elem())}
	}
	properties := map[string]any{}
	for _, k := range Keys(t) {
		of := Schema(k.Of)
		if k.Help != "" {
			of["description"] = k.HelpText()
		}
		properties[k.Name] = of
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}
