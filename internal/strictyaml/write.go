package strictyaml

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/termtext"
)

// Hidden stands where a secret is.
const Hidden = "***"

// Hiding is how a text is shown, by what its key says of secrets in it: nothing, "password"
// for a store's URL with one, "url" for another URL with one, "path" for a URL that is one, or "all".
type Hiding func(secret, text string) string

// ShowAll shows secrets, too: for a text that nobody sees.
func ShowAll(_, text string) string { return text }

// Hide hides secrets.
func Hide(secret, text string) string {
	switch {
	case text == "" || secret == "":
		return text
	case secret == "password":
		return termtext.URL(text)
	case secret == "url":
		shown, _, asks := strings.Cut(termtext.URL(text), "?")
		if asks {
			shown += "?" + Hidden
		}
		return shown
	case secret == "path":
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			return u.Scheme + "://" + u.Host + "/" + Hidden
		}
	}
	return Hidden
}

// Render writes a value as a file would have it, without what is empty, and secrets as h shows them; nil is nothing.
func Render(v reflect.Value, secret string, h Hiding) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		if n := Render(v.Elem(), secret, h); n != nil {
			return n
		}
		return renderZero(v.Elem()) // it is there, and says what is otherwise left out
	}
	if v.IsZero() {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return word(termtext.Duration(x), "")
	case Size:
		return word(x.String(), "")
	}
	switch v.Kind() {
	case reflect.Struct:
		return renderStruct(v, h)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item := Render(v.Index(i), secret, h)
			if item == nil {
				item = renderZero(v.Index(i))
			}
			n.Content = append(n.Content, item)
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, word(k.String(), "!!str"), word(h(secret, v.MapIndex(k).String()), "!!str"))
		}
		return n
	case reflect.String:
		return word(h(secret, v.String()), "!!str")
	case reflect.Float64:
		return word(strconv.FormatFloat(v.Float(), 'g', -1, 64), "")
	default:
		return word(fmt.Sprint(v.Interface()), "")
	}
}

// renderZero is a value that is there, though it is empty.
func renderZero(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		return &yaml.Node{Kind: yaml.MappingNode}
	case reflect.String:
		return word("", "!!str")
	default:
		return word(fmt.Sprint(v.Interface()), "")
	}
}

func renderStruct(v reflect.Value, h Hiding) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range Keys(v.Type()) {
		if value := Render(v.FieldByIndex(k.Index), k.Secret, h); value != nil {
			n.Content = append(n.Content, word(k.Name, "!!str"), value)
		}
	}
	return n
}

func word(text, tag string) *yaml.Node {
	n := &yaml.Node{}
	if tag == "!!str" {
		n.SetString(text)
		return n
	}
	n.Kind, n.Value = yaml.ScalarNode, text
	return n
}

// Written is a value as it stands in a file, secrets and all: never to be shown.
func Written(v reflect.Value) string {
	n := Render(v, "", ShowAll)
	if n == nil {
		return ""
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
