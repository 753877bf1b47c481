package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// marker is what no output may have.
const marker = "s3cretm4rker"

// fillSecrets puts the marker into each field that is a secret, wherever that is.
func fillSecrets(v reflect.Value) (filled int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return fillSecrets(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			return fillSecrets(v.Index(0))
		}
	case reflect.Struct:
		for _, k := range fileKeys(v.Type()) {
			f := v.FieldByIndex(k.index)
			if k.secret == "" {
				filled += fillSecrets(f)
				continue
			}
			filled++
			text := map[string]string{"all": marker, "password": "postgres://u:" + marker + "@h/p", "url": "https://u:" + marker + "@h/p?key=" + marker, "path": "https://h/" + marker}[k.secret]
			switch f.Kind() {
			case reflect.String:
				f.SetString(text)
			case reflect.Slice:
				f.Set(reflect.ValueOf([]string{text}))
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]string{"X": text}))
			default:
				panic("a secret of another kind: " + k.name)
			}
		}
	}
	return filled
}

// What is shown has no secret in it, however deep.
func TestShowHidesSecrets(t *testing.T) {
	var c serveConfig
	if n := fillSecrets(reflect.ValueOf(&c)); n < 12 {
		t.Fatalf("only %d secrets", n)
	}
	v := reflect.ValueOf(&c).Elem()
	if text := writtenAs(t, v, showAll); !strings.Contains(text, marker) {
		t.Fatal("the secrets are not there in the first place")
	}
	if text := writtenAs(t, v, hide); strings.Contains(text, marker) || !strings.Contains(text, hidden) {
		t.Errorf("shows a secret:\n%s", text)
	}
}

func writtenAs(t *testing.T, v reflect.Value, h hiding) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&app{stdout: &out}).printYAML(render(v, "", h)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A key that sounds like a secret names a file, or is hidden.
func TestSecretKeysAreMarked(t *testing.T) {
	var look func(reflect.Type, string)
	look = func(of reflect.Type, path string) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for _, k := range fileKeys(of) {
			look(k.of, path+"."+k.name)
			for _, word := range []string{"token", "password", "secret", "headers", "url", "store"} {
				sounds := k.name == word || strings.HasSuffix(k.name, "_"+word) || k.name == word+"s"
				if sounds && k.secret == "" && !strings.HasPrefix(path, ".cache") && k.of.Kind() != reflect.Bool {
					t.Errorf("%s.%s may be a secret, and is not marked", path, k.name)
				}
			}
		}
	}
	look(reflect.TypeFor[serveConfig](), "")
}

// No command and no error prints a secret of a file, right or wrong.
func TestSecretsAreNeverPrinted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("UNDERSTUDY_STORE", "")
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(marker+"-and-more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := "store: postgres://u:" + marker + "@127.0.0.1:1/db\ntoken: " + marker + "-and-more\nqueues: [{queue: q, webhook: {url: 'https://u:" + marker + "@h/', headers: {A: " + marker + "}, secret_file: " + file + "}}]\n" +
		"monitor: {sinks: [{sink: s, slack: {url: 'https://h/" + marker + "'}}, {sink: t, slack: {url_file: " + file + "}}]}\nsentinel: {listen: '127.0.0.1:0', password_file: " + file + "}\n"
	for name, text := range map[string]string{
		"as it is": right, "an unknown key": right + "tokn: " + marker + "\n", "twice": right + "token: " + marker + "\n",
		"a bad number": right + "history_keep: 7\n", "of another kind": right + "token_file: [" + marker + "]\n", "no YAML": right + "roles: [ {",
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, text)
			for _, args := range [][]string{{"config", "show", path}, {"config", "show", path, "-o", "json"}, {"config", "check", path}, {"config", "check", path, "-o", "json"}} {
				var out, err bytes.Buffer
				run(t.Context(), args, &out, &err)
				if said := out.String() + err.String(); strings.Contains(said, marker) || said == "" {
					t.Errorf("%v: %s", args, said)
				}
			}
		})
	}
}

// What is shown can be read again, and says the same.
func TestShowIsAFile(t *testing.T) {
	c, err := readConfigWith(writeFile(t, exampleFile), nil, func(*serveConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.fill(""); err != nil {
		t.Fatal(err)
	}
	text := writtenAs(t, reflect.ValueOf(c).Elem(), showAll)
	again, err := readConfigWith(writeFile(t, text), nil, func(*serveConfig) {})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if keys := changedKeys(c, again); len(keys) > 0 {
		t.Errorf("differ: %v", keys)
	}
}
