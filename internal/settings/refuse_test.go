package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// What the server would refuse at its start is refused by the check.
func TestConfigRefusesWhatTheServerRefuses(t *testing.T) {
	const queue = "queues:\n  - queue: q\n    webhook: {url: 'http://127.0.0.1:1/'}\n    "
	const origin = "cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', peers: [{url: 'tcp://127.0.0.1:3', api: 'tcp://127.0.0.1:4'}], origin: {url: 'http://h/{key}', "
	node := func(more string) string { return "{shard: s, node: '127.0.0.1:7', command: [cat], " + more + "}" }
	for text, want := range map[string]string{
		"listen: 0.0.0.0:7600":                                              "lets other hosts in",
		"listen: 0.0.0.0:7600\ntoken: 0123456789abcdef":                     "in the clear",
		origin + "headers: {X-A: 1, x-a: 2}}}":                              "the headers X-A and x-a are one",
		origin + "headers: {Authorization: a}, token_file: /dev/stdin}}":    "header Authorization stands in headers",
		"tls_client_ca: /nowhere":                                           "tls_client_ca and tls_clients go together",
		"tls_client_ca: /nowhere\ntls_clients: [{name: a, scopes: [read]}]": "set tls_cert and tls_key",
		"behind_tls: true":                                                  "behind_tls: a proxy in front lets other hosts in: set token_file",
		"listen: localhost":                                                 "use HOST:PORT",
		"store: pstgres://u:p@h/db":                                         "store: lease: invalid input: store URL",
		"store: redis://h:x/0":                                              "a port is not a number",
		"store: postgres://u:p%zz@h/db":                                     "should look like",
		"token: short":                                                      "at least 16",
		"sentinel: {listen: '127.0.0.1:7600'}":                              "sentinel: 127.0.0.1:7600 is taken by listen",
		"dns: {listen: '127.0.0.1:7600'}":                                   "is taken by listen",
		strings.Replace(queue, "/'}", "/', headers: {X-A: 1, x-a: 2}}", 1):  "the headers X-A and x-a are one",
		strings.Replace(queue, "/'}", "/', headers: {X-A: 1}, header_files: {x-a: '"+writeFile(t, "secret")+"'}}", 1): "the headers X-A and x-a are one",
		"monitor: {sinks: [{sink: s, webhook: {url: 'http://127.0.0.1:1/', headers: {X-A: 1, x-a: 2}}}]}":             "the headers X-A and x-a are one",
		queue + "on_failure: retry\n    max_age: 72h":                                                                 `max_age of 72h0m0s: on_failure: retry`,
		queue + "on_failure: explode":                              `on_failure: "explode"`,
		queue + "rate: .nan":                                       "rate is NaN",
		queue + "rate: -1":                                         "rate is -1",
		queue + "concurrency: 0":                                   "line 4: concurrency cannot be zero (submissions in flight at once); leave it out for 64",
		queue + "keep: 0s":                                         "keep cannot be zero (keep finished messages this long; negative: for ever); leave it out for 168h",
		"roles: [{role: a, stop_grace: 0}]":                        "line 1: stop_grace cannot be zero",
		"monitor: {sinks: [{sink: s, log: {}, concurrency: 0}]}":   "concurrency cannot be zero",
		queue + "concurrency: 1001":                                "concurrency is 1001",
		queue + "{first_window: 1s}":                               "it is not valid YAML",
		queue + "submit_timeout: 179s":                             "a second window of 3m0s",
		"monitor: {sinks: [{sink: s, log: {}, rate: -1}]}":         "sink s: rate is -1",
		"monitor: {routers: [{router: r, group: g, url: 'x'}]}":    `router "r"`,
		"shards:\n- " + node("data: a") + "\n- " + node("data: b"): "line 3: shard \"s\": node 127.0.0.1:7 appears twice",
		"shards:\n- {shard: s, node: 'h:1', data: a, pod: p-0}\n- {shard: s, node: 'h:2', data: b, pod: p-0}": "line 3: shard \"s\": pod p-0 appears twice",
		"shards: [{shard: s, node: 'h:1', data: a, pod: P_0}]":                                                `"P_0" is not the name of a pod`,
		"roles: [{role: a, with: b}, {role: b, with: a}]":                                                     `role "a": with leads back to it (a → b → a)`,
		"roles:\n- {role: x, with: a}\n- {role: a, with: b}\n- {role: b, with: c}\n- {role: c, with: a}":      `line 3: role "a": with leads back to it (a → b → c → a)`,
		"roles:\n- &a {role: a}\n- {<<: *a, <<: *a, role: b}":                                                 `"<<" appears twice`,
	} {
		if _, err := ReadWith(writeFile(t, text), nil, func(*Server) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nsays %v; want %q", text, err, want)
		}
	}
	for _, text := range []string{
		"listen: 0.0.0.0:7600\ntoken: 0123456789abcdef\nbehind_tls: true", "listen: 127.0.0.1:0\ndns: {listen: '127.0.0.1:0'}\nsentinel: {listen: '127.0.0.1:0'}",
		"roles: [{role: a, with: b}, {role: b, with: c}, {role: d, with: b}]", queue + "concurrency: 1000", "store: postgres://u:p@127.0.0.1:1/db", "store: redis://127.0.0.1:1/0", "store: redis+sentinel://127.0.0.1:1/m/0", "store: sqlite:/nowhere/u.db", queue + "rate: 0.5", queue + "keep: -1s",
	} {
		if _, err := ReadWith(writeFile(t, text), nil, func(*Server) {}); err != nil {
			t.Errorf("%s\nis refused: %v", text, err)
		}
	}
}

// No mistake makes an error show what may be a secret.
func TestConfigErrorsShowNoSecrets(t *testing.T) {
	for _, text := range []string{
		"token: *S3cret-S3cret-S3cret", "token: !!binary S3cret-S3cret-S3cret", "token: !!int S3cret-S3cret-S3cret", "token: !!null S3cret-S3cret-S3cret", "token: [S3cret-S3cret-S3cret]",
		"token: S3cret", "token: \"S3cret-S3cret-S3cret\\n\"", "store: postgres://u:S3cret%zz@h/db", "store: pstgres://u:S3cret@h/db", "store: redis://u:S3cret@h:x/0", "store: !!float postgres://u:S3cret@h/db",
	} {
		if _, err := ReadWith(writeFile(t, text), nil, func(*Server) {}); err == nil || strings.Contains(err.Error(), "S3cret") {
			t.Errorf("%s\nsays %v", text, err)
		}
	}
}

func TestConfigIsBounded(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err == nil {
		if _, err := Read("/dev/zero"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a file without an end: %v", err)
		}
	}
	var text strings.Builder
	for i := range 3 * strictyaml.MaxFound {
		fmt.Fprintf(&text, "k%d: 1\n", i)
	}
	_, err := Read(writeFile(t, text.String()))
	if n := len(strictyaml.Each(err)); n != strictyaml.MaxFound {
		t.Errorf("%d mistakes are told, want %d", n, strictyaml.MaxFound)
	}
}

// The environment is as strict as the file, and nothing stands for a key that is left empty.
func TestZeroIsNotTheDefault(t *testing.T) {
	if _, err := ReadWith("", []string{"UNDERSTUDY_HISTORY_KEEP=0"}, func(*Server) {}); err == nil || !strings.Contains(err.Error(), "UNDERSTUDY_HISTORY_KEEP, in the environment: history_keep cannot be zero") {
		t.Errorf("zero in the environment: %v", err)
	}
	if c, err := ReadWith(writeFile(t, "history_keep:\n"), []string{"UNDERSTUDY_INTERVAL="}, func(*Server) {}); err != nil || c.HistoryKeep != 100000 {
		t.Errorf("an empty key: %v", err)
	}
}

// A secret and the file of another one cannot both be meant.
func TestEnvironmentSaysASecretOnce(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"UNDERSTUDY_TOKEN_FILE=" + token, "UNDERSTUDY_TOKEN=fedcba9876543210"}
	if _, err := ReadWith("", environ, func(*Server) {}); err == nil || !strings.Contains(err.Error(), "UNDERSTUDY_TOKEN and UNDERSTUDY_TOKEN_FILE") {
		t.Errorf("both: %v", err)
	}
	if c, err := ReadWith("", environ[:1], func(*Server) {}); err != nil || c.Token != "0123456789abcdef" {
		t.Errorf("the file: %v", err)
	}
}

// Commands without a file read the store of the environment as a server does.
func TestStoreOfTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://db/app\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, environ := range [][]string{
		nil, {"UNDERSTUDY_STORE=redis://h"}, {"UNDERSTUDY_STORE_FILE=" + file}, {"UNDERSTUDY_STORE=", "UNDERSTUDY_STORE_FILE=" + file}, {"UNDERSTUDY_STORE=redis://h", "UNDERSTUDY_STORE_FILE="},
		{"UNDERSTUDY_STORE=redis://h", "UNDERSTUDY_STORE_FILE=" + file}, {"UNDERSTUDY_STORE_FILE=" + file + ".missing"}, {"UNDERSTUDY_STORE_FILE=" + os.DevNull},
	} {
		url, _, err := EnvironmentStore(environ)
		server, wrong := ReadWith("", environ, func(*Server) {})
		if (err == nil) != (wrong == nil) || err == nil && url != server.Store {
			t.Errorf("%q: a command has %q, %v; the server %v", environ, url, err, wrong)
		}
		if err != nil && !refused(err) {
			t.Errorf("%q: %v is not an error of the user's", environ, err)
		}
	}
}
