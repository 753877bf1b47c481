package settings

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strictyaml"
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
		for _, k := range strictyaml.Keys(v.Type()) {
			f := v.FieldByIndex(k.Index)
			if k.Secret == "" {
				filled += fillSecrets(f)
				continue
			}
			filled++
			text := map[string]string{"all": marker, "password": "postgres://u:" + marker + "@h/p", "url": "https://u:" + marker + "@h/p?key=" + marker, "path": "https://h/" + marker}[k.Secret]
			switch f.Kind() {
			case reflect.String:
				f.SetString(text)
			case reflect.Slice:
				f.Set(reflect.ValueOf([]string{text}))
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]string{"X": text}))
			default:
				panic("a secret of another kind: " + k.Name)
			}
		}
	}
	return filled
}

// What is shown has no secret in it, however deep.
func TestShowHidesSecrets(t *testing.T) {
	var c Server
	if n := fillSecrets(reflect.ValueOf(&c)); n < 12 {
		t.Fatalf("only %d secrets", n)
	}
	v := reflect.ValueOf(&c).Elem()
	if text := writtenAs(t, v, strictyaml.ShowAll); !strings.Contains(text, marker) {
		t.Fatal("the secrets are not there in the first place")
	}
	if text := writtenAs(t, v, strictyaml.Hide); strings.Contains(text, marker) || !strings.Contains(text, strictyaml.Hidden) {
		t.Errorf("shows a secret:\n%s", text)
	}
}

func writtenAs(t *testing.T, v reflect.Value, h strictyaml.Hiding) string {
	t.Helper()
	out, err := yaml.Marshal(strictyaml.Render(v, "", h))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
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
		for _, k := range strictyaml.Keys(of) {
			look(k.Of, path+"."+k.Name)
			for _, word := range []string{"token", "password", "secret", "headers", "url", "store"} {
				sounds := k.Name == word || strings.HasSuffix(k.Name, "_"+word) || k.Name == word+"s"
				if sounds && k.Secret == "" && !strings.HasPrefix(path, ".cache") && k.Of.Kind() != reflect.Bool {
					t.Errorf("%s.%s may be a secret, and is not marked", path, k.Name)
				}
			}
		}
	}
	look(reflect.TypeFor[Server](), "")
}

// What is shown can be read again, and says the same.
func TestShowIsAFile(t *testing.T) {
	c, err := ReadWith(writeFile(t, Example()), nil, func(*Server) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fill(""); err != nil {
		t.Fatal(err)
	}
	text := writtenAs(t, reflect.ValueOf(c).Elem(), strictyaml.ShowAll)
	again, err := ReadWith(writeFile(t, text), nil, func(*Server) {})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if keys := Changed(c, again); len(keys) > 0 {
		t.Errorf("differ: %v", keys)
	}
}
