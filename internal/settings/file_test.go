package settings

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "understudy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything that is wrong is said at once, each on a line of its own with its place.
func TestConfigTellsAll(t *testing.T) {
	path := writeFile(t, "lisen: x\nroles:\n  - rolle: a\n    holders: many\n  - role: b\n    role: c\n")
	_, err := Read(path)
	want := []string{
		path + `: line 1: "lisen" is not known here; did you mean "listen"?`,
		path + `: line 3: "rolle" is not known in a role; did you mean "role"?`,
		path + `: line 4: holders: "many" is not a whole number`,
		path + `: line 6: "role" appears twice in a role; it is already on line 5`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("says\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	path = writeFile(t, "history_keep: 5\nroles:\n  - role: a\n  - role: a\nqueues:\n  - queue: q\n")
	_, err = Read(path)
	if got := len(strictyaml.Each(err)); got != 3 || !strings.Contains(err.Error(), `line 4: role "a" appears twice`) {
		t.Errorf("%d errors, want 3: %v", got, err)
	}
}

// What stands once and is merged in counts as if it stood there.
func TestConfigMerges(t *testing.T) {
	c, err := Read(writeFile(t, "roles:\n  - &a {role: a, stop_grace: 2s}\n  - <<: *a\n    role: b\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Roles) != 2 || c.Roles[1].Role != "b" || time.Duration(c.Roles[1].StopGrace) != 2*time.Second {
		t.Errorf("%+v", c.Roles)
	}
	if _, err := Read(writeFile(t, "roles:\n  - &a {role: a, stop: 2s}\n  - <<: *a\n    role: b\n")); err == nil {
		t.Error("an unknown key that is merged in was taken")
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, "listen: 127.0.0.1:1\nname: file\ntoken_file: "+token+"\ncache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2'}\n")
	c, err := ReadWith(path, []string{
		"UNDERSTUDY_LISTEN=127.0.0.1:2", "UNDERSTUDY_TIMEOUT=8s", "UNDERSTUDY_CACHE_TTL=5m", "UNDERSTUDY_CACHE_MAX_BYTES=32MiB", "UNDERSTUDY_CACHE_JITTER=0",
		"UNDERSTUDY_SENTINEL_LISTEN=127.0.0.1:3", "UNDERSTUDY_MONITOR_FIRST_WINDOW=7s", "UNDERSTUDY_TOKEN=fedcba9876543210", "UNDERSTUDY_NAME=", "UNDERSTUDY_BEHIND_TLS=true",
		"UNDERSTUDY_HISTORY_KEEP=2000", "HOME=/",
	}, func(c *Server) { c.Listen = "127.0.0.1:4" })
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.Listen, c.Name, c.Timeout, c.Cache.TTL, int64(c.Cache.MaxBytes), *c.Cache.Jitter, c.Sentinel.Listen,
		c.Monitor.FirstWindow, c.Token, c.TokenFile, c.BehindTLS, c.HistoryKeep}
	want := []any{"127.0.0.1:4", "file", 8 * time.Second, 5 * time.Minute, int64(32 << 20), 0.0, "127.0.0.1:3", 7 * time.Second, "fedcba9876543210", "", true, 2000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A program that is guarded has the name of its guard in the environment.
	c, err = ReadWith("", []string{"UNDERSTUDY_NAME=guard", "UNDERSTUDY_TERM=7"}, func(*Server) {})
	if err != nil || c.Name != instance.Hostname() {
		t.Errorf("%v, %v", c.Name, err)
	}
	for _, bad := range []struct{ variable, says string }{
		{"UNDERSTUDY_HISTORY_KEEP=many", `UNDERSTUDY_HISTORY_KEEP, in the environment: "many" is not a whole number`},
		{"UNDERSTUDY_INTERVAL=5", `"5" is not a valid duration`},
		{"UNDERSTUDY_BEHIND_TLS=maybe", "true or false"},
	} {
		if _, err := ReadWith("", []string{bad.variable}, func(*Server) {}); err == nil || !strings.Contains(err.Error(), bad.says) || !refused(err) {
			t.Errorf("%s: %v", bad.variable, err)
		}
	}
}

// No two keys have the same variable, and none has that of something else.
func TestEnvironmentIsUnambiguous(t *testing.T) {
	of := map[string]string{}
	for _, k := range strictyaml.EnvKeys(reflect.TypeFor[Server](), envPrefix) {
		if other, taken := of[k.Name]; taken {
			t.Errorf("%s is both %s and %s", k.Name, other, k.Path)
		}
		of[k.Name] = k.Path
		if k.Path != "name" && slices.Contains(otherVariables(), k.Name) {
			t.Errorf("%s is that of something else", k.Name)
		}
	}
	for _, k := range strictyaml.EnvKeys(reflect.TypeFor[Server](), envPrefix) {
		if other, taken := of[k.Was]; taken || slices.Contains(otherVariables(), k.Was) {
			t.Errorf("%s, the old name of %s, is that of something else, too: %s", k.Was, k.Path, other)
		}
	}
	if of["UNDERSTUDY_MONITOR_KEEP_ALARMS"] != "monitor.keep_alarms" {
		t.Errorf("%v", of)
	}
	links := []string{"UNDERSTUDY_SERVICE_HOST=x", "UNDERSTUDY_WEB_SERVICE_PORT_HTTP=1", "UNDERSTUDY_PORT=x", "UNDERSTUDY_PORT_7600_TCP_ADDR=x"}
	if got := UnknownVariables(links); len(got) != len(links) {
		t.Errorf("outside of a pod: %q", got)
	}
	if got := UnknownVariables(append(links, "KUBERNETES_SERVICE_HOST=x")); len(got) > 0 {
		t.Errorf("in a pod: %q", got)
	}
	got := UnknownVariables([]string{"UNDERSTUDY_LISEN=x", "UNDERSTUDY_STROE=", "UNDERSTUDY_STORE=x", "UNDERSTUDY_EVENT_ID=3", "UNDERSTUDY_TERM=1", "UNDERSTUDY_PLACE=1", "UNDERSTUDY_SCHEDULED=1", "UNDERSTUDY_HEADERS={}", "UNDERSTUDY_MESSAGE_ID=1", "UNDERSTUDY_BATCH=1", "PATH=/"})
	if len(got) != 1 || !strings.HasSuffix(got[0], `did you mean "UNDERSTUDY_LISTEN"?`) {
		t.Errorf("%q", got)
	}
}

// keyPaths are all keys that the file may have.
func keyPaths(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for _, k := range strictyaml.Keys(t) {
		p := strings.TrimPrefix(path+"."+k.Name, ".")
		out = append(append(out, p), keyPaths(k.Of, p)...)
	}
	return out
}

// The example passes the check, has every key, and says of each what it is.
func TestExample(t *testing.T) {
	t.Setenv("UNDERSTUDY_STORE", "")
	if _, err := ReadWith(writeFile(t, Example()), nil, func(*Server) {}); err != nil {
		t.Errorf("the example does not pass:\n%v", err)
	}
	var c Server
	if _, err := strictyaml.Read([]byte(wholeExample()), &c, ""); err != nil {
		t.Errorf("with the keys that are left out:\n%v", err)
	}
	has := map[string]bool{}
	for _, path := range yamlPaths(t, wholeExample()) {
		has[path] = true
	}
	for _, path := range keyPaths(reflect.TypeFor[Server](), "") {
		if !has[path] {
			t.Errorf("the example lacks %s", path)
		}
	}
	for line := range strings.SplitSeq(Example(), "\n") {
		if regexp.MustCompile(`^ *#?(- )?[a-z_]+:( .*)?$`).MatchString(line) && strings.HasSuffix(line, "  # ") {
			t.Errorf("the example does not say what this is for: %s", line)
		}
	}
	for i, line := range strings.Split(Example(), "\n") {
		if strings.TrimRight(line, " ") != line || strings.Contains(line, "\t") {
			t.Errorf("line %d of the example has blanks at its end, or tabs", i+1)
		}
	}
}

// wholeExample is the example with the keys that are left out in it.
func wholeExample() string {
	return regexp.MustCompile(`(?m)^( *)#([a-z_-])`).ReplaceAllString(exampleValues, "$1$2")
}

// yamlPaths are all keys of a text.
func yamlPaths(t *testing.T, text string) (out []string) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		for i, c := range n.Content {
			switch {
			case n.Kind != yaml.MappingNode:
				walk(c, path)
			case i%2 == 1:
				p := strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
				out = append(out, p)
				walk(c, p)
			}
		}
	}
	walk(&doc, "")
	return out
}

var update = flag.Bool("update", false, "write docs/understudy.yaml")

// The documentation has the example, so that every key can be read without the program.
func TestReference(t *testing.T) {
	const page = "../../docs/understudy.yaml"
	if *update {
		if err := os.WriteFile(page, []byte(Example()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != Example() {
		t.Errorf("%s is out of date (%v); run: go test ./internal/settings -run TestReference -update", page, err)
	}
}

// Every key says what it is for.
func TestKeysHaveHelp(t *testing.T) {
	var look func(reflect.Type, string)
	look = func(of reflect.Type, path string) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for _, k := range strictyaml.Keys(of) {
			if k.Help == "" {
				t.Errorf("%s.%s has no help", path, k.Name)
			}
			look(k.Of, path+"."+k.Name)
		}
	}
	look(reflect.TypeFor[Server](), "")
}

// A file of the last version is read, with one warning for each key that has a new name.
func TestOldNames(t *testing.T) {
	c, err := Read(writeFile(t, "monitor:\n  events:\n  - {event: a, interval: 5s}\n  - {event: b, interval: 5s}\n  declared: [{event: a, source: s}]\nhooks: [{on: [batch], command: [cat]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Monitor.Checks) != 2 || c.Monitor.Checks[1].Name != "b" || c.Monitor.Declared[0].Check != "a" || c.Hooks[0].On[0] != "message" {
		t.Errorf("%+v", c)
	}
	want := []string{
		`line 2: "events" is now called "checks" in monitor; the old name is read for one more version`,
		`line 3: "event" is now called "check" in a check; the old name is read for one more version`,
		`line 5: "event" is now called "check" in a declared source; the old name is read for one more version`,
	}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
}

// Keys of queues and of the monitor that were renamed later.
func TestOldKeys(t *testing.T) {
	text := func(also, lasts, remind, keep string) string {
		return "queues: [{queue: a, scabbard: {url: 'http://x', " + also + ": ['http://x/scabbard/abcde-12345/gsBB']}}]\n" +
			"monitor:\n  " + keep + ": true\n  checks: [{check: a, interval: 5s, " + remind + ": 4h}]\n" +
			"  sinks: [{sink: a, alertmanager: {urls: ['http://x'], " + lasts + ": 1h}}, {sink: b, webhook: {url: 'http://x', deduplicates: true}}]\n"
	}
	want, err := Read(writeFile(t, text("other_services", "max_alert_age", "repeat_interval", "keep_others")))
	if err != nil || len(want.Warnings()) != 0 {
		t.Fatal(err, want.Warnings())
	}
	got, err := Read(writeFile(t, strings.Replace(text("also", "lasts", "remind", "keep"), "deduplicates", "recognises", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Warnings()) != 5 {
		t.Errorf("%q", got.Warnings())
	}
	if diff := Changed(want, got); len(diff) > 0 {
		t.Errorf("%v differ", diff)
	}
	if c, err := ReadWith("", []string{"UNDERSTUDY_MONITOR_KEEP=true"}, func(*Server) {}); err != nil || !c.Monitor.Keep || len(c.Warnings()) != 1 {
		t.Errorf("the variable: %v, %+v", err, c)
	}
	if c, err := ParseCheck("a,schedule=30 2 * * *,remind=4h"); err != nil || c.Remind != 4*time.Hour {
		t.Errorf("--check: %v, %+v", err, c)
	}
}

// A key that had an effect once is read past, with one warning, whatever its value.
func TestGoneKeys(t *testing.T) {
	c, err := Read(writeFile(t, "cache: {join: maybe, url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2'}\nqueues:\n- {queue: a, webhook: {url: 'http://x', compares_terms: true}}\n- {queue: b, webhook: {compares_terms: false, url: 'http://y'}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Cache.URL != "tcp://127.0.0.1:1" || c.Queues[0].Webhook.URL != "http://x" || c.Queues[1].Webhook.URL != "http://y" {
		t.Errorf("%+v", c)
	}
	want := []string{
		`line 1: "join" has no effect any more in cache; it is accepted for one more version`,
		`line 3: "compares_terms" has no effect any more in webhook; it is accepted for one more version`,
	}
	if diff := cmp.Diff(want, c.Warnings()); diff != "" {
		t.Error(diff)
	}
}

// The schema takes the example, and refuses what the check refuses.
func TestSchema(t *testing.T) {
	schema := plainSchema(t)
	var example any
	if err := yaml.Unmarshal([]byte(wholeExample()), &example); err != nil {
		t.Fatal(err)
	}
	if err := fits(schema, example, ""); err != "" {
		t.Error("the example: " + err)
	}
	for text, says := range map[string]string{
		"lisen: x":                    "lisen",
		"roles: [{role: a, hold: 1}]": "roles[0].hold",
		"interval: soon":              "interval",
		"history_keep: many":          "history_keep",
		"roles: {}":                   "roles",
		"cache: {max_bytes: 5MB}":     "cache.max_bytes",
		"behind_tls: 1":               "behind_tls",
	} {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := fits(schema, v, ""); !strings.HasPrefix(err, says+":") {
			t.Errorf("%s: %q", text, err)
		}
	}
}

func plainSchema(t *testing.T) map[string]any {
	t.Helper()
	text, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fits checks a value against the subset of JSON schema that is used: type, properties,
// additionalProperties, items, pattern, minimum. "" is that it does.
func fits(schema map[string]any, v any, at string) string {
	kinds, ok := schema["type"].([]any)
	if !ok {
		kinds = []any{schema["type"]}
	}
	kind := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number", reflect.Slice: "array", reflect.Map: "object",
	}[reflect.ValueOf(v).Kind()]
	if !slices.Contains(kinds, any(kind)) && (kind != "integer" || !slices.Contains(kinds, any("number"))) {
		return at + ": is of type " + kind
	}
	switch v := v.(type) {
	case string:
		if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return at + ": does not match " + p
		}
	case int:
		if least, ok := schema["minimum"].(float64); ok && float64(v) < least {
			return at + ": is too small"
		}
	case []any:
		for i, item := range v {
			if err := fits(schema["items"].(map[string]any), item, at+"["+string(rune('0'+i))+"]"); err != "" {
				return err
			}
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			p := strings.TrimPrefix(at+"."+key, ".")
			of, known := properties[key].(map[string]any)
			if !known {
				if of, known = schema["additionalProperties"].(map[string]any); !known {
					return p + ": is no property"
				}
			}
			if err := fits(of, v[key], p); err != "" {
				return err
			}
		}
	}
	return ""
}
