package strictyaml

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Reference writes tables of all keys of a struct in Markdown, one for the keys at the top and one for each part: the
// key, its default, and what it is for.
func Reference(t reflect.Type, heading string) string {
	var out strings.Builder
	reference(&out, t, "", heading, nil)
	return out.String()
}

func reference(out *strings.Builder, t reflect.Type, path, heading string, seen []reflect.Type) {
	title := "The top of the file"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(out, "%s %s\n\nkey | use\n-|-\n", heading, title)
	type part struct {
		path string
		of   reflect.Type
	}
	var parts []part
	for _, k := range Keys(t) {
		shown := k.Name
		if k.Default != "" {
			shown += ": " + k.Default
		}
		help := strings.ReplaceAll(k.HelpText(), "|", "\\|")
		if of := elem(k.Of); of.Kind() == reflect.Struct && of.NumField() > 0 && !isScalar(of) {
			if slices.Contains(seen, of) {
				help += "; as above"
			} else {
				seen = append(seen, of)
				sub := path + "." + k.Name
				if k.Of.Kind() == reflect.Slice {
					sub += "[]"
				}
				parts = append(parts, part{strings.TrimPrefix(sub, "."), of})
			}
		}
		fmt.Fprintf(out, "`%s` | %s\n", shown, help)
	}
	out.WriteString("\n")
	for _, p := range parts {
		reference(out, p.of, p.path, heading, seen)
	}
}
