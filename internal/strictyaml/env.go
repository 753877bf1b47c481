package strictyaml

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// EnvKey is a key of the file that the environment can say, too: one value at the top or in
// a part, and not in a list.
type EnvKey struct {
	Name   string // of the variable
	Was    string // its old name, which is read for one more version; "" for none
	Path   string // of the key
	index  []int
	shared []int // of the struct that it stands in
	key    Key   // there
	within reflect.Type
}

// EnvKeys are the keys of a struct that the environment can say, in variables that begin with the prefix.
func EnvKeys(t reflect.Type, prefix string) []EnvKey { return envKeysBelow(t, prefix, "", "", nil) }

// envKeysBelow returns the keys of a part, which has a path of keys and one of their old names.
func envKeysBelow(t reflect.Type, prefix, path, oldPath string, index []int) []EnvKey {
	variable := func(path string) string { return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_")) }
	var out []EnvKey
	for _, k := range Keys(t) {
		at, of := append(slices.Clone(index), k.Index...), k.Of
		name := path + k.Name
		old := oldPath + cmp.Or(strings.TrimPrefix(k.Was, "!"), k.Name)
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case isScalar(of):
			out = append(out, EnvKey{Name: variable(name), Path: name, index: at, shared: index, key: k, within: t})
			if old != name {
				out[len(out)-1].Was = variable(old)
			}
		case of.Kind() == reflect.Struct:
			out = append(out, envKeysBelow(of, prefix, name+".", old+".", at)...)
		}
	}
	return out
}

// ApplyEnv puts what the environment says in the place of what v says, and returns the keys that it set. The
// variable of a key is the prefix with its path in capitals. An empty one sets nothing, nor does one for which ignored
// returns true. Outdated has a warning for each variable that was read under its old name.
func ApplyEnv(v any, prefix string, environ []string, ignored func(name string) bool) (taken []EnvKey, outdated []string, err error) {
	said := Variables(prefix, environ)
	f := &Findings{}
	into := reflect.ValueOf(v).Elem()
	for _, k := range EnvKeys(into.Type(), prefix) {
		value := said[k.Name]
		if value == "" && said[k.Was] != "" { // the new name goes before the old one
			outdated = append(outdated, k.outdated())
			value, k.Name = k.oldValue(said[k.Was]), k.Was
		}
		if value == "" || ignored(k.Name) {
			continue
		}
		if plain, isFile := strings.CutSuffix(k.Name, "_FILE"); isFile && said[plain] != "" && slices.ContainsFunc(taken, func(t EnvKey) bool { return t.Name == plain }) {
			f.At("", usererr.Errorf("%s and %s, in the environment, exclude each other", plain, k.Name))
			continue
		}
		if err := set(fieldAt(into, k.index), value); err != nil {
			f.At("", usererr.Errorf("%s, in the environment: %s", k.Name, err))
			continue
		}
		if k.key.isZero(&yaml.Node{Kind: yaml.ScalarNode, Value: value}) {
			f.At("", usererr.Errorf("%s, in the environment: %v", k.Name, k.key.zeroError()))
			continue
		}
		clearExcludedKey(fieldAt(into, k.shared), k.key.Name)
		taken = append(taken, k)
	}
	return taken, outdated, f.Err()
}

// outdated is the warning about a variable that has its old name.
func (k EnvKey) outdated() string {
	said := fmt.Sprintf("%s, in the environment, is now called %s", k.Was, k.Name)
	if strings.HasPrefix(k.key.Was, "!") {
		said += ", which is its opposite"
	}
	return said + "; the old name is read for one more version"
}

// oldValue is what the value of the old variable is under the new name.
func (k EnvKey) oldValue(value string) string {
	if now, isSwitch := inverted[value]; isSwitch && strings.HasPrefix(k.key.Was, "!") {
		return now
	}
	return value
}

// Variables are those of an environment that begin with the prefix, by their names.
func Variables(prefix string, environ []string) map[string]string {
	out := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, prefix) {
			out[name] = value
		}
	}
	return out
}

// fieldAt is a field; parts on the way that are not there are made.
func fieldAt(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		v = derefOrNew(v).Field(i)
	}
	return derefOrNew(v)
}

// derefOrNew is what a pointer points to, which is made where there is nothing; another value is itself.
func derefOrNew(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// set reads one value as it would be read in a file, but a text as it is.
func set(v reflect.Value, value string) error {
	if v.Kind() == reflect.String {
		v.SetString(value)
		return nil
	}
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		parsed, err := parseDuration(value)
		*d = parsed
		return err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		if unmarshals(v.Type()) {
			return err
		}
		return fmt.Errorf("%q is not %s", value, wanted(v.Type()))
	}
	return nil
}

// clearExcludedKey empties the key that excludes the one that the environment has set: a secret and
// the file that it stands in.
func clearExcludedKey(v reflect.Value, key string) {
	other, isFile := strings.CutSuffix(key, "_file")
	if !isFile {
		other = key + "_file"
	}
	for _, k := range Keys(v.Type()) {
		if k.Name == other {
			v.FieldByIndex(k.Index).SetZero()
		}
	}
}
