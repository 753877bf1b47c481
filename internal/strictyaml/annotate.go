package strictyaml

import (
	"reflect"
	"regexp"
	"strings"
)

var exampleKey = regexp.MustCompile(`^( *)(#?)((?:- )?)([a-z_]+):(.*)$`)

// Annotate puts the help of each key of a struct beside it in an example file: behind a value, and above a part; the default,
// where the example has another value. The
// example is written in block style, two blanks a level; "#key:" is a key that is left out.
func Annotate(example string, t reflect.Type) string {
	type level struct {
		indent int
		of     map[string]Key
	}
	levels := []level{{0, keyMap(t)}}
	var out []string
	for line := range strings.SplitSeq(example, "\n") {
		m := exampleKey.FindStringSubmatch(line)
		if m == nil {
			out = append(out, line)
			continue
		}
		indent := len(m[1]) + len(m[3])
		for levels[len(levels)-1].indent > indent {
			levels = levels[:len(levels)-1]
		}
		key, known := levels[len(levels)-1].of[m[4]]
		help := key.HelpText()
		if value := strings.TrimSpace(m[5]); value != "" && key.Default != "" && value != key.Default {
			help += " (default " + key.Default + ")"
		}
		switch {
		case !known:
			out = append(out, line)
		case m[5] != "":
			out = append(out, line+"  # "+help)
		default:
			out = append(out, m[1]+"# "+help, line)
			step := 2
			if elem(key.Of) != key.Of && key.Of.Kind() == reflect.Slice {
				step = 4 // past the "- " of each item
			}
			levels = append(levels, level{indent + step, keyMap(key.Of)})
		}
	}
	return strings.Join(out, "\n")
}

func keyMap(t reflect.Type) map[string]Key {
	out := map[string]Key{}
	if t = elem(t); t.Kind() != reflect.Struct {
		return out
	}
	for _, k := range Keys(t) {
		out[k.Name] = k
	}
	return out
}

// elem is what a pointer or a list is of.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}
