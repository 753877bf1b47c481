package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// schemas are those of openapi.json.
type schemas struct {
	doc map[string]any
}

var described = sync.OnceValue(func() (out schemas) {
	if err := json.Unmarshal(openapiJSON, &out.doc); err != nil {
		panic(err)
	}
	return out
})

// answer is what is described of a route's answer with a status; nil where that has no JSON, or the route is hidden.
func (s schemas) answer(route string, status int) (schema map[string]any, err error) {
	method, path, _ := strings.Cut(route, " ")
	paths, _ := s.doc["paths"].(map[string]any)
	of, _ := paths[path].(map[string]any)
	operation, _ := of[strings.ToLower(method)].(map[string]any)
	if operation == nil {
		return nil, nil
	}
	responses, _ := operation["responses"].(map[string]any)
	answer, ok := responses[fmt.Sprint(status)].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: the answer %d is not described", route, status)
	}
	content, _ := s.follow(answer)["content"].(map[string]any)
	inJSON, _ := content["application/json"].(map[string]any)
	schema, _ = inJSON["schema"].(map[string]any)
	return schema, nil
}

// checkSchema checks that an answer which is no error is as openapi.json says.
func (a answer) checkSchema(r *http.Request) {
	a.t.Helper()
	if a.Status >= 300 || r.Method == http.MethodHead || a.Header.Get("Content-Type") != "application/json" {
		return
	}
	schema, err := described().answer(r.Pattern, a.Status)
	if err != nil {
		a.t.Error(err)
	}
	if schema == nil {
		return
	}
	var v any
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		a.t.Errorf("%s: %v", r.Pattern, err)
	}
	for _, flaw := range described().flaws(r.Pattern, schema, v) {
		a.t.Error(flaw)
	}
}

func (s schemas) follow(m map[string]any) map[string]any {
	for {
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		var at any = s.doc
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[step]
		}
		m = at.(map[string]any)
	}
}

// flaws tells where a value is not as a schema says: every member must be described,
// and every one that is required there.
func (s schemas) flaws(at string, schema map[string]any, v any) (out []string) {
	schema = s.follow(schema)
	for i, one := range asList(schema["oneOf"]) {
		if flaws := s.flaws(at, one.(map[string]any), v); i == 0 || len(flaws) < len(out) {
			out = flaws // of what it is most like
		}
	}
	if schema["type"] == nil {
		return out // without oneOf it may be anything
	}
	is := func(kind string) bool {
		several, _ := schema["type"].([]any)
		return schema["type"] == kind || slices.Contains(several, any(kind))
	}
	if choice, ok := schema["enum"].([]any); ok && !slices.Contains(choice, v) {
		out = append(out, fmt.Sprintf("%s is %v, not one of %v", at, v, choice))
	}
	wrong := false
	switch v := v.(type) {
	case map[string]any:
		wrong = !is("object")
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range asList(schema["required"]) {
			if _, there := v[name.(string)]; !there {
				out = append(out, fmt.Sprintf("%s.%s is missing", at, name))
			}
		}
		for name, member := range v {
			of, described := properties[name].(map[string]any)
			if !described {
				of, described = schema["additionalProperties"].(map[string]any)
			}
			if !described {
				if properties != nil {
					out = append(out, fmt.Sprintf("%s.%s is not described", at, name))
				}
				continue
			}
			out = append(out, s.flaws(at+"."+name, of, member)...)
		}
	case []any:
		wrong = !is("array")
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			out = append(out, s.flaws(fmt.Sprintf("%s[%d]", at, i), items, item)...)
		}
	case string:
		wrong = !is("string")
		if _, err := time.Parse(time.RFC3339Nano, v); schema["format"] == "date-time" && err != nil {
			out = append(out, fmt.Sprintf("%s is no time: %s", at, v))
		}
	case float64:
		wrong = !is("integer") && !is("number")
	case bool:
		wrong = !is("boolean")
	case nil:
		wrong = !is("null")
	}
	if wrong {
		out = append(out, fmt.Sprintf("%s is %v, not %v", at, v, schema["type"]))
	}
	return out
}

func asList(v any) []any { l, _ := v.([]any); return l }

// TestFlawsAreFound: the check of the answers would notice.
func TestFlawsAreFound(t *testing.T) {
	alarm, err := described().answer("GET /v1/alarms/{alarm}", 200)
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"id":"i","check":"e","reason":"silent","started":"2026-01-01T00:00:00Z","raised":"2026-01-01T00:00:00Z"}`
	for text, want := range map[string]int{
		good: 0,
		strings.Replace(good, `"id":"i",`, "", 1):           1,
		strings.Replace(good, `silent`, "asleep", 1):        1,
		strings.Replace(good, `"i"`, "5", 1):                1,
		strings.Replace(good, `2026-01-01`, "today", 1):     1,
		strings.Replace(good, `{`, `{"secret":1,`, 1):       1,
		strings.Replace(good, `{`, `{"labels":null,`, 1):    1,
		strings.Replace(good, `{`, `{"labels":{"a":1},`, 1): 1,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got := described().flaws("alarm", alarm, v); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}
