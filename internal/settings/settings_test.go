package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
)

func TestConfigRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, says string }{
		"broken YAML":               {"roles: [ {", "it is not valid YAML"},
		"unknown key":               {"rolez: []", `"rolez" is not known here`},
		"unknown key of a role":     {"roles: [{role: a, comand: [b]}]", `"comand" is not known in a role`},
		"a list":                    {"- a", "the file wants keys with values"},
		"a key twice":               {"name: a\nname: b", `line 2: "name" appears twice here; it is already on line 1`},
		"second document":           {"name: a\n---\nname: b", "second document"},
		"no unit":                   {"interval: 5", `line 1: interval: "5" is not a valid duration`},
		"unsafe timing":             {"interval: 1s\ntimeout: 2s", "T > 2·I"},
		"long grace":                {"roles: [{role: a, stop_grace: 20s}]", "T ≥ 3·I + stop grace"},
		"no room for a grace":       {"interval: 200ms\nroles: [{role: a}]", "T ≥ 3·I + stop grace"},
		"negative grace":            {"roles: [{role: a, stop_grace: -1s}]", "negative"},
		"role twice":                {"roles: [{role: a}, {role: a}]", `role "a" appears twice`},
		"role without a name":       {"roles: [{command: [a]}]", "role is empty"},
		"too many holders":          {"roles: [{role: a, holders: 101}]", "1 to 100 are possible"},
		"negative holders":          {"roles: [{role: a, holders: -1}]", "1 to 100 are possible"},
		"with itself":               {"roles: [{role: a, with: a}]", "only with itself"},
		"with what is no role":      {"roles: [{role: a, with: 'b#2'}]", "contains '#'"},
		"command without program":   {`roles: [{role: a, command: [""]}]`, "names no program"},
		"unknown key of a queue":    {"queues: [{queue: a, webook: {}}]", `"webook" is not known in a queue`},
		"unknown key of a target":   {"queues: [{queue: a, webhook: {ulr: x}}]", `"ulr" is not known in webhook`},
		"unknown key of a front":    {"queues: [{queue: a, front: {port: 1}}]", `"port" is not known in front`},
		"queue without a name":      {"queues: [{exec: {command: [a]}}]", "1 to 32 characters"},
		"queue twice":               {"queues: [{queue: a, exec: {command: [a]}}, {queue: a, exec: {command: [a]}}]", `queue "a" appears twice`},
		"no target":                 {"queues: [{queue: a}]", "0 targets; name one of webhook"},
		"two targets":               {"queues: [{queue: a, exec: {command: [a]}, webhook: {url: http://x}}]", "2 targets"},
		"unsafe windows":            {"queues: [{queue: a, exec: {command: [a]}, submit_timeout: 3m}]", "must be longer than the deadline"},
		"window in no unit":         {"queues: [{queue: a, exec: {command: [a]}, first_window: 30}]", `"30" is not a valid duration`},
		"a front for everybody":     {"queues: [{queue: a, exec: {command: [a]}, front: {listen: ':9008'}}]", "may enqueue"},
		"a front without address":   {"queues: [{queue: a, exec: {command: [a]}, front: {dialect: grid}}]", "use HOST:PORT"},
		"an unknown dialect":        {"queues: [{queue: a, exec: {command: [a]}, front: {listen: '127.0.0.1:0', dialect: morse}}]", "the dialects are"},
		"unknown key of the cache":  {"cache: {urll: x}", `"urll" is not known in cache`},
		"unknown key of a peer":     {"cache: {peers: [{uri: x}]}", `"uri" is not known in a peer`},
		"unknown key of an origin":  {"cache: {origin: {uri: x}}", `"uri" is not known in origin`},
		"cache without addresses":   {"cache: {url: 'tcp://127.0.0.1:1'}", "url and api are missing"},
		"cache for everybody":       {"cache: {url: 'tcp://10.0.0.1:1', api: 'tcp://10.0.0.1:2'}", "can be reached from other hosts"},
		"cache of two sources":      {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', exec: {command: ['true', '{key}']}, origin: {url: 'http://x/{key}'}}", "not from both"},
		"cache of no size":          {"cache: {max_bytes: 5MB}", `line 1: max_bytes: "5MB" is not a valid size`},
		"cache of no member":        {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', peers: [{url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:3'}]}", "appears twice"},
		"unsafe cache":              {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', announce_timeout: 100ms}", "unsafe timing"},
		"cache of another type":     {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', content_type: text}", "not a valid media type"},
		"cache without its key":     {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', curve_key_file: /no/such/file}", "key file"},
		"cache without its secret":  {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', secret_file: /no/such/file}", "secret_file: open"},
		"cache of too much jitter":  {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', jitter: 0.6}", "0 to 0.5"},
		"cache of negative jitter":  {"cache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', jitter: -1}", "0 to 0.5"},
		"sentinel nowhere":          {"sentinel: {}", "listen is missing"},
		"sentinel without a port":   {"sentinel: {listen: here}", "use HOST:PORT"},
		"no password for sentinel":  {"sentinel: {listen: '127.0.0.1:0', password_file: /no/such/file}", "password_file"},
		"unknown key of sentinel":   {"sentinel: {lisen: x}", `"lisen" is not known in sentinel`},
		"name with a bell":          {`name: "a\a"`, "unprintable"},
		"little history":            {"history_keep: 5", "at least 1000"},
		"certificate alone":         {"tls_cert: c.pem", "go together"},
		"no such token file":        {"token_file: /no/such/file", "token_file"},
		"empty token file":          {"token_file: " + empty, "is empty"},
		"a shard without its node":  {"shards: [{shard: a, data: d}]", `line 1: shard "a": node is missing`},
		"a shard without a name":    {"shards: [{node: 'h:1', data: d}]", "shard"},
		"a shard without a folder":  {"shards: [{shard: a, node: 'h:1'}]", "data is missing"},
		"unsafe shard":              {"shards: [{shard: a, node: 'h:1', data: d, timeout: 3s}]", "safe are timeout 3.75s"},
		"a shard of no engine":      {"shards: [{shard: a, node: 'h:1', data: d, engine: disk}]", `engine "disk"`},
		"a shard that keeps nobody": {"shards: [{shard: a, node: 'h:1', data: d, keep_node: true}]", "keep_node belongs to command"},
		"two nodes in one folder":   {"shards: [{shard: a, node: 'h:1', data: d}, {shard: a, node: 'h:2', data: d}]", "that of another node"},
		"no such log level":         {"log_level: loud", "the levels are"},
		"no such log format":        {"log_format: xml", "the formats are"},
		"a list of words":           {"roles: [{role: a, command: b}]", "command wants a list"},
		"a word for a number":       {"history_keep: many", `line 1: history_keep: "many" is not a whole number`},
		"a key within itself":       {"roles: &a [*a]", "a role wants keys with values"},
		"two stores":                {"store: a\nstore_file: " + empty, "store and store_file exclude"},
		"queue without its secret":  {"queues: [{queue: a, webhook: {url: 'http://h/', secret_file: /no/such/file}}]", "secret_file: open"},
		"no such certificate":       {"tls_cert: /no/a\ntls_key: /no/b", "tls_cert and tls_key"},
		"two tokens":                {"token: abc\ntoken_file: " + empty, "exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "understudy.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Read(path)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "settings.") {
				t.Errorf("says %q, should say %q", err, c.says)
			}
			if !refused(err) {
				t.Errorf("%v is not the user's error", err)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "understudy.yaml")
	if err := os.WriteFile(path, []byte("queues: [{queue: a, exec: {command: [a]}, front: {listen: '127.0.0.1:0'}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if q := c.Queues[0]; c.Interval != lease.DefaultInterval || c.Timeout != 5*lease.DefaultInterval || q.Front.Dialect != "sawtooth" || q.Deadline() != 15*time.Second {
		t.Errorf("the defaults are %v, %v, %q and %v", c.Interval, c.Timeout, q.Front.Dialect, q.Deadline())
	}
}

// refused reports whether an error is of the kinds that the command line exits with 2 for.
func refused(err error) bool {
	return slices.ContainsFunc([]error{usererr.Err, lease.ErrInvalid, lease.ErrUnsafeTiming, cache.ErrConfig}, func(kind error) bool { return errors.Is(err, kind) })
}
