package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// MaxFound is how many mistakes are told at once.
const MaxFound = 100

// File is what Read learned about a text besides its values.
type File struct {
	// Lines has the line of each key, by its path, such as roles[0].command.
	Lines map[string]int
	// Outdated has one warning for each key that was read under its old name, or that has no effect any more.
	Outdated []string
}

// Read reads YAML into v. It refuses every unknown key, repeated key and value of the wrong kind, all of them at once,
// each with its line. In errors, what names v in the words of the author of the text.
func Read(text []byte, v any, what string) (file File, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return file, nil // the text is empty
	} else if err != nil {
		return file, usererr.Errorf("it is not valid YAML: %s", whyNotYAML(err))
	}
	if d.Decode(&yaml.Node{}) != io.EOF {
		return file, usererr.Errorf("there is a second document in the file; only one is read")
	}
	w := &walk{File: File{Lines: map[string]int{}}, seen: map[visit]bool{}}
	w.value(doc.Content[0], reflect.TypeOf(v).Elem(), place{noun: what})
	if len(w.found) > 0 {
		return file, errors.Join(w.found...)
	}
	if err := doc.Decode(v); err != nil { // such as a value that contains itself
		return file, usererr.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return w.File, nil
}

// whyNotYAML says why a text is none, without the name of an anchor: that may be a secret which starts
// with a star.
func whyNotYAML(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor") {
		return "a * names an anchor that does not stand before it; write a text that begins with a * in quotes"
	}
	return text
}

// walk goes through a text beside the type that it is read into.
type walk struct {
	File
	found []error
	seen  map[visit]bool // what stands once and is named often is looked at once
}

type visit struct {
	node *yaml.Node
	of   reflect.Type
}

// place is where the walk is: the path of keys, and what is there, in words.
type place struct {
	path, noun string
}

func (p place) key(k string) place {
	if p.path != "" {
		return place{p.path + "." + k, k}
	}
	return place{k, k}
}

func (p place) item(i int) place {
	return place{fmt.Sprintf("%s[%d]", p.path, i), oneOf(p.noun)}
}

// in is how the place is named behind a key that it does not have.
func (p place) in() string {
	if p.noun == "" {
		return "here"
	}
	return "in " + p.noun
}

// oneOf names one of many: "a role" of "roles".
func oneOf(many string) string {
	one := strings.ReplaceAll(strings.TrimSuffix(many, "s"), "_", " ")
	if strings.HasSuffix(one, "ed") { // declared
		one += " source"
	}
	if strings.ContainsRune("aeiou", rune(one[0])) {
		return "an " + one
	}
	return "a " + one
}

func (w *walk) say(n *yaml.Node, format string, args ...any) {
	if len(w.found) == MaxFound {
		return
	}
	w.found = append(w.found, usererr.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...)))
}

func (w *walk) value(n *yaml.Node, t reflect.Type, at place) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := visit{n, t}
	if w.seen[v] {
		return
	}
	w.seen[v] = true
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Decode(new(any)) == nil: // nothing stands there
	case isScalar(t):
		w.scalar(n, t, at)
	case n.Kind == yaml.MappingNode && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		w.mapping(n, t, at)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			p := at.item(i)
			w.Lines[p.path] = item.Line
			w.value(item, t.Elem(), p)
		}
	default:
		want := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Map: "names with values", reflect.Struct: "keys with values"}[t.Kind()]
		w.say(n, "%s wants %s", at.whole(), want)
	}
}

// whole names the place as the subject of a sentence.
func (p place) whole() string {
	if p.noun == "" {
		return "the file"
	}
	return p.noun
}

func (w *walk) mapping(n *yaml.Node, t reflect.Type, at place) {
	var known map[string]Key
	if t.Kind() == reflect.Struct {
		known = KeysOf(t)
	}
	if t.Kind() == reflect.Struct {
		w.rename(n, t, at)
		w.dropGone(n, t, at)
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content) && len(w.found) < MaxFound; i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if before, twice := first[k.Value]; twice {
			w.say(k, "%q appears twice %s; it is already on line %d", k.Value, at.in(), before)
			continue
		}
		first[k.Value] = k.Line
		if k.Tag == "!!merge" {
			w.merge(v, t, at)
			continue
		}
		key, ok := known[k.Value]
		if known == nil {
			key.Of = t.Elem()
		} else if !ok {
			w.say(k, "%q is not known %s%s", k.Value, at.in(), DidYouMean(k.Value, slices.Collect(maps.Keys(known))))
			continue
		}
		p := at.key(k.Value)
		w.Lines[p.path] = k.Line
		w.value(v, key.Of, p)
		if key.isZero(v) {
			w.say(k, "%v", key.zeroError())
		}
	}
}

// inverted is what the value of a switch is under a name that says the opposite.
var inverted = map[string]string{"true": "false", "false": "true"}

// rename gives keys that have an old name their new one, with one warning for each name.
func (w *walk) rename(n *yaml.Node, t reflect.Type, at place) {
	for _, key := range Keys(t) {
		for i := 0; key.Was != "" && i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			was, opposite := strings.CutPrefix(key.Was, "!")
			if k.Value != was {
				continue
			}
			k.Value = key.Name
			said := fmt.Sprintf("%q is now called %q %s", was, key.Name, at.in())
			if v := n.Content[i+1]; opposite {
				said = fmt.Sprintf("%q is now called %q, which is its opposite, %s", was, key.Name, at.in())
				v.Value = inverted[v.Value]
			}
			w.warn(k, said, "the old name is read for one more version")
		}
	}
}

// dropGone takes out keys that have no effect any more, with one warning for each name.
func (w *walk) dropGone(n *yaml.Node, t reflect.Type, at place) {
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if k := n.Content[i]; isGone(t, k.Value) {
			n.Content = slices.Delete(n.Content, i, i+2)
			w.warn(k, fmt.Sprintf("%q has no effect any more %s", k.Value, at.in()), "it is accepted for one more version")
		}
	}
}

// warn notes what is outdated, once for all places that have it.
func (w *walk) warn(n *yaml.Node, said, until string) {
	if !slices.ContainsFunc(w.Outdated, func(before string) bool { return strings.Contains(before, said) }) {
		w.Outdated = append(w.Outdated, fmt.Sprintf("line %d: %s; %s", n.Line, said, until))
	}
}

// merge is "<<": keys that stand elsewhere.
func (w *walk) merge(n *yaml.Node, t reflect.Type, at place) {
	if n.Kind == yaml.SequenceNode {
		for _, one := range n.Content {
			w.value(one, t, at)
		}
		return
	}
	w.value(n, t, at)
}

func (w *walk) scalar(n *yaml.Node, t reflect.Type, at place) {
	if n.Kind != yaml.ScalarNode {
		w.say(n, "%s wants %s", at.whole(), wanted(t))
		return
	}
	if t == reflect.TypeFor[time.Duration]() {
		if _, err := parseDuration(n.Value); err != nil {
			w.say(n, "%s: %v", at.whole(), err)
		}
		return
	}
	if err := n.Decode(reflect.New(t).Interface()); err != nil {
		switch {
		case t.Kind() == reflect.String: // which may be a secret
			w.say(n, "%s wants %s", at.whole(), wanted(t))
		case !unmarshals(t):
			w.say(n, "%s: %q is not %s", at.whole(), n.Value, wanted(t))
		default:
			w.say(n, "%s: %s", at.whole(), WithoutLines(err.Error()))
		}
	}
}

// wanted is what a value of the type looks like.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration, such as 1s or 250ms"
	case t == reflect.TypeFor[Size]():
		return "a size, such as 256MiB"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		return "one text"
	}
}

// WithoutLines drops numbers of lines, of a text that nobody has seen.
func WithoutLines(text string) string {
	for {
		begin := strings.Index(text, "line ")
		if begin < 0 {
			return text
		}
		rest := strings.TrimLeft(text[begin+len("line "):], "0123456789")
		if !strings.HasPrefix(rest, ": ") {
			return text
		}
		text = text[:begin] + rest[2:]
	}
}
