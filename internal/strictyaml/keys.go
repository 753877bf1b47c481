package strictyaml

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// Key is one setting: a field of a struct, declared once by the tags of the field.
//
//	yaml     the key in the file; ",inline" takes in the keys of an embedded struct
//	was      the key's old name, still read, with a warning; "!" before it says that it was the opposite
//	default  the value in force when nobody sets one, as it is written in a file
//	help     one line of help: for --help, the example file, the schema and the reference. A word in single
//	         quotes, such as 'FILE', names the value.
//	flag     the flag's name, when it is not the key with "-" for "_"; "-" for no flag
//	flagwas  the flag's old name, which works for one more version
//	more     "yes" for a flag that few people need: --help lists it under a heading of its own
//	secret   how the value is hidden; see [Hiding]
//
// A blank field with a tag gone names a key that had an effect in the version before: it is read past, with a warning.
type Key struct {
	Name    string
	Index   []int // of the field, through inlined structs
	Of      reflect.Type
	Was     string
	Default string
	Help    string
	Flag    string
	FlagWas string
	More    bool
	Secret  string
}

// Keys returns the keys of a struct, in their order.
func Keys(t reflect.Type) []Key {
	var out []Key
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, tagged := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case tagged && options == "inline":
			for _, k := range Keys(f.Type) {
				k.Index = append([]int{i}, k.Index...)
				out = append(out, k)
			}
		case name != "" && name != "-":
			flag, ok := f.Tag.Lookup("flag")
			if !ok && f.Type.Kind() == reflect.Slice {
				flag = "-"
			} else if !ok {
				flag = strings.ReplaceAll(name, "_", "-")
			}
			out = append(out, Key{
				Name: name, Index: []int{i}, Of: f.Type, Was: f.Tag.Get("was"), Default: f.Tag.Get("default"),
				Help: f.Tag.Get("help"), Flag: flag, FlagWas: f.Tag.Get("flagwas"), More: f.Tag.Get("more") != "", Secret: f.Tag.Get("secret"),
			})
		}
	}
	return out
}

// isGone reports that a struct had a key of this name, which has no effect any more.
func isGone(t reflect.Type, name string) bool {
	for field := range t.Fields() {
		if field.Tag.Get("gone") == name {
			return true
		}
	}
	return false
}

var placeholder = regexp.MustCompile(`'([A-Z][^' ]*)'`)

// HelpText returns the help without the quotes around the name of the value.
func (k Key) HelpText() string { return placeholder.ReplaceAllString(k.Help, "$1") }

// KeysOf returns the keys of a struct, by name.
func KeysOf(t reflect.Type) map[string]Key {
	out := map[string]Key{}
	for _, k := range Keys(t) {
		out[k.Name] = k
	}
	return out
}

// isZero reports a number or duration that is written as zero where zero stands for the default:
// its author means something else.
func (k Key) isZero(n *yaml.Node) bool {
	if k.Default == "" || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return false
	}
	switch k.Of.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		v := reflect.New(k.Of)
		return set(v.Elem(), n.Value) == nil && v.Elem().IsZero()
	default:
		return false
	}
}

func (k Key) zeroError() error {
	return usererr.Errorf("%s cannot be zero (%s); leave it out for %s", k.Name, k.HelpText(), k.Default)
}

// isScalar reports whether a value of the type is one word.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	default:
		return unmarshals(t)
	}
}

func unmarshals(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]())
}

// ApplyDefaults gives every setting of a struct that is empty its default, in all parts and lists that are there.
func ApplyDefaults(v any) { applyDefaults(reflect.ValueOf(v).Elem()) }

func applyDefaults(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			applyDefaults(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			applyDefaults(v.Index(i))
		}
	case reflect.Struct:
		for _, k := range Keys(v.Type()) {
			f := v.FieldByIndex(k.Index)
			if k.Default == "" || !f.IsZero() {
				applyDefaults(f)
				continue
			}
			if err := set(derefOrNew(f), k.Default); err != nil {
				panic("the default of " + k.Name + ": " + err.Error()) // a mistake of the declaration
			}
		}
	}
}

// parseDuration reads a duration as it is written in a file.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errDuration(text)
	}
	return d, nil
}
