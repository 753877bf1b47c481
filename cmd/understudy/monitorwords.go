package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// plain says what is wrong with a file in the words of who wrote it: the library
// names Go types, which mean nothing to them. A key that is not known is shown with the
// one that is nearest.
func plain(err error) string {
	known := map[string][]string{}
	collectKeys(reflect.TypeFor[serveConfig](), known)
	unknown := regexp.MustCompile(`field (\S+) not found in type main\.(\w+)`)
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n  "), "\n  ", "\n")
	text = unknown.ReplaceAllStringFunc(text, func(said string) string {
		m := unknown.FindStringSubmatch(said)
		return said + didYouMean(m[1], known[m[2]])
	})
	return plainer().Replace(text)
}

// withoutLines drops numbers of lines, of a text that nobody has seen.
func withoutLines(text string) string {
	return regexp.MustCompile(`line \d+: `).ReplaceAllString(text, "")
}

// keysOf are the keys of a type in a file.
func keysOf[T any]() []string {
	known := map[string][]string{}
	t := reflect.TypeFor[T]()
	collectKeys(t, known)
	return known[t.Name()]
}

// collectKeys notes the keys of a type and of all that it is made of, by their names.
func collectKeys(t reflect.Type, known map[string][]string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || known[t.Name()] != nil {
		return
	}
	known[t.Name()] = []string{}
	for f := range t.Fields() {
		key, options, tagged := strings.Cut(f.Tag.Get("yaml"), ",")
		collectKeys(f.Type, known)
		switch {
		case tagged && options == "inline":
			known[t.Name()] = append(known[t.Name()], known[f.Type.Name()]...)
		case key != "" && key != "-":
			known[t.Name()] = append(known[t.Name()], key)
		}
	}
}

// didYouMean names what is nearest to a word, if it is near.
func didYouMean(word string, known []string) string {
	if len(word) > 100 { // nobody has meant a key by that
		return ""
	}
	nearest, least := "", 2+len(word)/4
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			nearest, least = k, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", nearest)
}

// distance is how many letters must be changed, added, left out or swapped with the
// next to make one word of another.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	d := make([][]int, len(x)+1) // [i][j]: of the first i letters and the first j
	for i := range d {
		d[i] = make([]int, len(y)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case x[i-1] == y[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = d[i-1][j-1] + 1
			}
			d[i][j] = min(d[i][j], d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(x)][len(y)]
}
