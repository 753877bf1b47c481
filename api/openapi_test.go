package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	goflag "flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor/intake"
)

var update = goflag.Bool("update", false, "write openapi.json")

// operation describes what a route does.
type operation struct {
	id, tag, summary, description string
	params                        []param
	in                            any    // type of the request's body; nil: it has none
	inOther                       string // other forms of the body, as JSON by media type
	answers                       []reply
	errors                        string         // statuses besides those of usualErrors, with the texts of statusTexts
	other                         map[int]string // statuses with texts of their own
}

// param is a parameter, of the query unless in says otherwise; schema is a string unless it is given, as JSON.
type param struct {
	in, name, schema, about string
	required                bool
}

// reply is an answer that is no error: its body's type, or as JSON what else it has (headers, content).
type reply struct {
	status int
	about  string
	body   any
	more   string
}

var schemaRef = regexp.MustCompile(`"#/components/schemas/(\w+)"`)

// object is a JSON object.
type object = map[string]any

// TestOpenAPI makes openapi.json of the routes, of operations and of package apitype, and fails when the file is another.
// With -update it writes the file.
func TestOpenAPI(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}, Reports: struct{ intake.ReportStore }{}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: newRig(t).store, Monitor: &Monitor{HTTP: in}})
	if err != nil {
		t.Fatal(err)
	}
	d := describer{comments: readComments(t), schemas: object{}}
	paths := map[string]object{}
	described := maps.Clone(operations)
	for _, rt := range s.routes() {
		if rt.hidden {
			continue
		}
		op, ok := operations[rt.pattern]
		if !ok {
			t.Errorf("operations has nothing about the route %s", rt.pattern)
			continue
		}
		delete(described, rt.pattern)
		method, path, _ := strings.Cut(rt.pattern, " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(method)] = d.operation(rt, op)
	}
	for pattern := range described {
		t.Errorf("operations describes %s, which is no route", pattern)
	}
	d.schema(reflect.TypeFor[apitype.Problem]())
	d.schema(reflect.TypeFor[apitype.Beat]()) // named in bodies that are written out
	d.schema(reflect.TypeFor[apitype.AddedMessages]())
	d.schema(reflect.TypeFor[apitype.CacheEvent]())
	errorTexts := object{}
	for status, about := range statusTexts {
		errorTexts[status] = problem(about)
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Understudy", "version": "1", "license": object{"name": "MIT", "identifier": "MIT"},
			"description": "One primary per role and per shard of a database, leases for programs in any language, messages delivered in order, a cache of slow values, each fetched by one peer for all, and alarms for sources that fall silent. Errors are application/problem+json; look at their code. Durations are whole milliseconds and end in _ms. A list with more pages has next: pass it back as after.",
		},
		"servers":  []any{object{"url": "/", "description": "The server that answers this: each instance answers for the whole store, and for its own peer of the cache."}},
		"security": []any{object{"token": []string{"read"}}},
		"paths":    paths,
		"components": object{
			"securitySchemes": object{"token": object{
				"type": "http", "scheme": "bearer",
				"description": "The token of the server's configuration, or one of the store that has the scope of the operation: read, act (which includes read) or ingest; config is the former alone. Not needed when the server has none, which is only possible on loopback.",
			}},
			"schemas":   d.schemas,
			"responses": errorTexts,
		},
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	for _, ref := range schemaRef.FindAllStringSubmatch(want.String(), -1) {
		if d.schemas[ref[1]] == nil {
			t.Errorf("the schema %s is referred to and is not there", ref[1])
		}
	}
	if *update {
		if err := os.WriteFile("openapi.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(openapiJSON, want.Bytes()) {
		t.Error("openapi.json does not describe the routes and package apitype: run go test ./api -run TestOpenAPI -update")
	}
}

func merged(all ...map[string]operation) map[string]operation {
	out := map[string]operation{}
	for _, one := range all {
		maps.Copy(out, one)
	}
	return out
}

// describer collects the schemas of the types that it meets.
type describer struct {
	comments map[string]string // by Type and Type.Field
	schemas  object
}

func (d describer) operation(rt route, op operation) object {
	out := object{"operationId": op.id, "tags": []string{op.tag}, "summary": op.summary}
	if op.description != "" {
		out["description"] = op.description
	}
	switch {
	case rt.open:
		out["security"] = []any{}
	case rt.manages:
		out["security"] = []any{object{"token": []string{"config"}}}
	case rt.needs() != access.Read:
		out["security"] = []any{object{"token": []string{string(rt.needs())}}}
	}
	var params []object
	for _, p := range append(paramsOfPath(rt.pattern), op.params...) {
		one := object{"in": cmp.Or(p.in, "query"), "name": p.name, "schema": rawJSON(cmp.Or(p.schema, `{"type": "string"}`))}
		if p.about != "" {
			one["description"] = p.about
		}
		if p.in == "path" || p.required {
			one["required"] = true
		}
		params = append(params, one)
	}
	if params != nil {
		out["parameters"] = params
	}
	if op.in != nil || op.inOther != "" {
		content := object{}
		if op.inOther != "" {
			content = rawJSON(op.inOther).(object)
		}
		if op.in != nil {
			content["application/json"] = object{"schema": d.schema(reflect.TypeOf(op.in))}
		}
		out["requestBody"] = object{"content": content}
	}
	out["responses"] = d.responses(rt, op)
	return out
}

var inBraces = regexp.MustCompile(`{(\w+)}`)

// paramsOfPath are the parameters of a route's path, in their order.
func paramsOfPath(pattern string) (out []param) {
	for _, at := range inBraces.FindAllStringSubmatchIndex(pattern, -1) {
		longest := ""
		for end := range pathParams {
			if strings.HasSuffix(pattern[:at[1]], end) && len(end) > len(longest) {
				longest = end
			}
		}
		p := pathParams[longest]
		p.in, p.name = "path", pattern[at[2]:at[3]]
		out = append(out, p)
	}
	return out
}

// usualErrors are the statuses that follow from what a route and its operation are. Routes that need no token state theirs.
func usualErrors(rt route, op operation) (out []string) {
	if rt.open {
		return nil
	}
	out = []string{"400", "401", "403", "429", "503", "504"} // any query may be unreadable; tokens may be in the store, too
	if op.in != nil || op.inOther != "" {
		out = append(out, "413")
	}
	if _, maybe := maybeMissing[op.tag]; maybe {
		out = append(out, "404")
	}
	return out
}

func (d describer) responses(rt route, op operation) object {
	out := object{}
	for _, a := range op.answers {
		one := object{}
		if a.more != "" {
			one = rawJSON(a.more).(object)
		}
		one["description"] = a.about
		if a.body != nil {
			one["content"] = object{"application/json": object{"schema": d.schema(reflect.TypeOf(a.body))}}
		}
		out[fmt.Sprint(a.status)] = one
	}
	for _, status := range append(usualErrors(rt, op), strings.Fields(op.errors)...) {
		out[status] = object{"$ref": "#/components/responses/" + status}
		if text := maybeMissing[op.tag]; status == "404" && text != "" {
			out[status] = problem(text)
		}
	}
	for status, about := range op.other {
		out[fmt.Sprint(status)] = problem(about)
	}
	return out
}

func problem(about string) object {
	return object{"description": about, "content": object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}
}

func rawJSON(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return v
}

// schema describes a type; a struct of package apitype becomes a reference.
func (d describer) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Slice:
		items := d.schema(t.Elem())
		if t.Elem().Kind() == reflect.Pointer {
			items["type"] = []any{items["type"], "null"}
		}
		return object{"type": "array", "items": items}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer"}
	case reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Struct:
		if d.schemas[t.Name()] == nil {
			d.schemas[t.Name()] = object{} // before its fields, which may be of it
			d.schemas[t.Name()] = d.fields(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	panic("no schema for " + t.String())
}

func (d describer) fields(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" {
			continue
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		of := d.schema(f.Type)
		if values := f.Tag.Get("enum"); values != "" {
			if to, ok := of["items"].(object); ok {
				to["enum"] = strings.Split(values, ",")
			} else {
				of["enum"] = strings.Split(values, ",")
			}
		}
		if text := d.comments[owner.Name()+"."+f.Name]; text != "" {
			of["description"] = text
		}
		properties[name] = of
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	if text := d.comments[t.Name()]; text != "" {
		out["description"] = text
	}
	return out
}

// readComments reads the comments of the types and fields of package apitype.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := os.ReadDir("apitype")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), "apitype/"+f.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			spec := decl.Specs[0].(*ast.TypeSpec)
			out[spec.Name.Name] = plain(decl.Doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range st.Fields.List {
					for _, name := range field.Names {
						out[spec.Name.Name+"."+name.Name] = strings.TrimSpace(plain(field.Doc) + plain(field.Comment))
					}
				}
			}
			return false
		})
	}
	return out
}

func plain(c *ast.CommentGroup) string {
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(c.Text()), " "))
}
