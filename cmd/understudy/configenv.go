package main

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// envPrefix begins the names of all variables of the environment that this program knows.
const envPrefix = "UNDERSTUDY_"

// envKey is a key of the file that the environment can say, too: one value at the top or in
// a part, and not in a list.
type envKey struct {
	name   string // of the variable
	path   string // of the key
	index  []int
	shared []int  // of the struct that it stands in
	key    string // there
}

// envKeys are the keys of a struct that the environment can say.
func envKeys(t reflect.Type) []envKey { return envKeysBelow(t, "", nil) }

func envKeysBelow(t reflect.Type, path string, index []int) []envKey {
	var out []envKey
	for _, k := range fileKeys(t) {
		at, of := append(slices.Clone(index), k.index...), k.of
		name := path + k.name
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case scalar(of):
			out = append(out, envKey{envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_")), name, at, index, k.name})
		case of.Kind() == reflect.Struct:
			out = append(out, envKeysBelow(of, name+".", at)...)
		}
	}
	return out
}

// takeEnv puts what the environment says in the place of what the file says, and tells the
// variables that it took. An empty variable says nothing.
func takeEnv(c *serveConfig, environ []string) (taken []envKey, err error) {
	said := variables(environ)
	f := &findings{}
	for _, k := range envKeys(reflect.TypeFor[serveConfig]()) {
		value := said[k.name]
		if value == "" || k.name == envPrefix+"NAME" && said[envPrefix+"TERM"] != "" {
			continue // a guarded program's name is that of its guard
		}
		if plain, isFile := strings.CutSuffix(k.name, "_FILE"); isFile && said[plain] != "" && slices.ContainsFunc(taken, func(t envKey) bool { return t.name == plain }) {
			f.at("", usagef("%s and %s, in the environment, exclude each other", plain, k.name))
			continue
		}
		if err := set(fieldAt(reflect.ValueOf(c).Elem(), k.index), value); err != nil {
			f.at("", usagef("%s, in the environment: %s", k.name, err))
			continue
		}
		forgetOther(fieldAt(reflect.ValueOf(c).Elem(), k.shared), k.key)
		taken = append(taken, k)
	}
	return taken, f.err()
}

// variables are those of the environment that are this program's, by their names.
func variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, envPrefix) {
			out[name] = value
		}
	}
	return out
}

// fieldAt is a field; parts on the way that are not there are made.
func fieldAt(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		v = there(v).Field(i)
	}
	return there(v)
}

func there(v reflect.Value) reflect.Value {
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
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		if unmarshals(v.Type()) {
			return err
		}
		return fmt.Errorf("%q is not %s", value, wanted(v.Type()))
	}
	return nil
}

// forgetOther empties the key that excludes the one that the environment has set: a secret and
// the file that it stands in.
func forgetOther(v reflect.Value, key string) {
	other, isFile := strings.CutSuffix(key, "_file")
	if !isFile {
		other = key + "_file"
	}
	for _, k := range fileKeys(v.Type()) {
		if k.name == other {
			v.FieldByIndex(k.index).SetZero()
		}
	}
}

// tellEnv logs which keys the environment says, and which of its variables nobody knows.
func tellEnv(log *slog.Logger, taken []envKey, environ []string) {
	for _, k := range taken {
		log.Info("the environment goes before the file", "variable", k.name, "key", k.path)
	}
	for _, w := range strangers(environ) {
		log.Warn(w)
	}
}

// strangers says of each variable that looks as if it were meant for this program, and is not
// known, that it changes nothing.
func strangers(environ []string) []string {
	known := otherVariables()
	for _, k := range envKeys(reflect.TypeFor[serveConfig]()) {
		known = append(known, k.name)
	}
	var out []string
	for name := range variables(environ) {
		if slices.Contains(known, name) || slices.ContainsFunc(otherPrefixes(), func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		out = append(out, fmt.Sprintf("%s is set in the environment, and changes nothing: no key has that name%s", name, didYouMean(name, known)))
	}
	slices.Sort(out)
	return out
}

// otherVariables are those that are no keys: of commands that ask a server, and those that
// programs get which this one runs.
func otherVariables() []string {
	var out []string
	for _, name := range []string{
		"API", "CACHE", "CACHE_HTTP",
		"ROLE", "ID", "NAME", "TERM",
		"QUEUE", "BATCH", "KEY", "SEQUENCE", "ATTEMPT", "CONTENT_TYPE", "ORIGIN",
		"SHARD", "NODE", "EPOCH", "EVENT", "FROM", "TO", "WHEN",
		"PROVE", "SEED", "REQUIRE_BACKENDS", "SHOTS", "SERVER", "GATE", "OLD", "OTHER",
	} {
		out = append(out, envPrefix+name)
	}
	return out
}

// otherPrefixes begin the names of variables that hooks get, or tests.
func otherPrefixes() []string {
	return []string{envPrefix + "EVENT_", envPrefix + "TEST_", envPrefix + "FAULT", envPrefix + "DEMO"}
}

// environTaken is what the environment says of a configuration, for who shows it.
func environTaken() []envKey {
	taken, _ := takeEnv(&serveConfig{}, os.Environ())
	return taken
}
