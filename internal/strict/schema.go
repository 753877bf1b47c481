package strict

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Schema is the JSON schema of a struct that is read strictly; says has the descriptions of its keys, by their paths.
func Schema(t reflect.Type, path string, says map[string]string) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[Duration]():
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
		return map[string]any{"type": "array", "items": Schema(t.Elem(), path, says)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": Schema(t.Elem(), path+".*", says)}
	}
	properties := map[string]any{}
	for _, k := range Keys(t) {
		p := strings.TrimPrefix(path+"."+k.Name, ".")
		of := Schema(k.Of, p, says)
		if text := says[p]; text != "" {
			of["description"] = text
		}
		properties[k.Name] = of
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// Describe notes what the comments of a text say of each key: what stands behind it, else above it.
func Describe(n *yaml.Node, path string, out map[string]string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			Describe(item, path, out)
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
			Describe(v, p, out)
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
