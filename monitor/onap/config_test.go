package onap_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

const secret = "s3cret-hunter2"

const entry = `{"eventName":"Heartbeat_edgeRouter","heartbeatcountmissed":4,"heartbeatinterval":30,"closedLoopControlName":"CL-edge",` +
	`"policyVersion":"2.1","policyName":"restartEdge","policyScope":"site=7","target_type":"VM","target":"vserver.vserver-name","version":"1.0.2"}`

// config is a good configuration as the original takes it, with replacements in
// its heartbeat_config.
func config(replace ...string) string {
	vnfs := strings.NewReplacer(replace...).Replace(`{"vnfs":[` + entry + `]}`)
	text, _ := json.Marshal(vnfs)
	return with("heartbeat_config", string(text))
}

// with sets one key of the good configuration, or removes it.
func with(key, value string) string {
	all := map[string]json.RawMessage{}
	text, _ := json.Marshal(`{"vnfs":[` + entry + `]}`)
	base := `{"pg_ipAddress":"127.0.0.1","pg_portNum":"54329","pg_userName":"hbuser","pg_passwd":"` + secret + `","pg_dbName":"hb_site7",
	 "CBS_polling_allowed":"True","CBS_polling_interval":"120","consumerID":"site7-a","groupID":"hb-site7","SERVICE_NAME":"hb-a",
	 "streams_subscribes":{"ves-heartbeat":{"type":"message_router","dmaap_info":{"topic_url":"http://127.0.0.1:3904/events/site7.HB_IN"}}},
	 "streams_publishes":{"dcae_cl_out":{"type":"message_router","dmaap_info":{"topic_url":"http://127.0.0.1:3904/events/site7.CL_OUT"}}},
	 "heartbeat_config":` + string(text) + `}`
	if err := json.Unmarshal([]byte(base), &all); err != nil {
		panic(err)
	}
	delete(all, key)
	if value != "" {
		all[key] = json.RawMessage(value)
	}
	out, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(out)
}

var good = onap.Config{
	Monitor: monitor.Configuration{Checks: []monitor.Check{{
		Name: "Heartbeat_edgeRouter", Interval: 30 * time.Second, Missed: 4, AnyDomain: true,
		ControlLoop: monitor.ControlLoop{
			Name: "CL-edge", PolicyName: "restartEdge", PolicyScope: "site=7", PolicyVersion: "2.1",
			TargetType: "VM", Target: "vserver.vserver-name", Version: "1.0.2",
		},
	}}},
	DatabaseKeys: []string{"pg_ipAddress", "pg_portNum", "pg_userName", "pg_passwd", "pg_dbName"},
	Database:     onap.Database{Host: "127.0.0.1", Port: 54329, User: "hbuser", Password: secret, Name: "hb_site7"},
	Poll:         2 * time.Minute, Group: "hb-site7", Consumer: "site7-a", Service: "hb-a",
	Subscribe: "http://127.0.0.1:3904/events/site7.HB_IN", Publish: "http://127.0.0.1:3904/events/site7.CL_OUT",
}

func TestParse(t *testing.T) {
	change := func(f func(*onap.Config)) onap.Config {
		c := good
		f(&c)
		return c
	}
	for name, c := range map[string]struct {
		data string
		want onap.Config
	}{
		"as the original takes it": {config(), good},
		"an object, not a text":    {with("heartbeat_config", `{"vnfs":[`+entry+`]}`), good},
		"numbers as texts":         {config(`:4,`, `:"4",`, `:30,`, `:"30",`), good},
		"numbers of other forms":   {config(`:30,`, `:3e1,`, `:4,`, `:4.0,`), good},
		"texts as numbers":         {with("pg_portNum", "54329"), good},
		"true":                     {with("CBS_polling_allowed", "true"), good},
		"not polled":               {with("CBS_polling_allowed", `"False"`), change(func(c *onap.Config) { c.Poll = 0 })},
		"polled by default": {with("CBS_polling_interval", ""), change(func(c *onap.Config) {
			c.Poll, c.Missing = 5*time.Minute, []string{"CBS_polling_interval"}
		})},
		"from the environment": {strings.Replace(with("heartbeat_config", `"${HB}"`), `"hb-site7"`, `"${GROUP}"`, 1), good},
		"not quite from it":    {with("SERVICE_NAME", `"x${GROUP}"`), change(func(c *onap.Config) { c.Service = "x${GROUP}" })},
		"what is not known": {with("extra\n", `{"a":1}`), change(func(c *onap.Config) {
			c.Warnings = []string{`"extra\n" is not known, and ignored`}
		})},
		"what an entry need not have": {config(`"target_type":"VM",`, "", `"version":"1.0.2"`, `"more":true`), change(func(c *onap.Config) {
			e := c.Monitor.Checks[0]
			e.ControlLoop.TargetType, e.ControlLoop.Version = "VNF", ""
			c.Monitor.Checks = []monitor.Check{e}
			c.Warnings = []string{
				"heartbeat_config.vnfs[0].version is missing; it will be empty in control-loop events",
				"heartbeat_config.vnfs[0].target_type is missing; it is taken for VNF",
				`heartbeat_config.vnfs[0]."more" is not known, and ignored`,
			}
		})},
		"no topic": {with("streams_publishes", ""), change(func(c *onap.Config) {
			c.Publish = ""
			c.Warnings = []string{"streams_publishes.dcae_cl_out.dmaap_info.topic_url is missing"}
		})},
	} {
		got, err := onap.Parse([]byte(c.data), func(name string) (string, bool) {
			value, ok := map[string]string{"HB": `{"vnfs":[` + entry + `]}`, "GROUP": "hb-site7"}[name]
			return value, ok
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// bad configurations, and a part of what is said about them.
var bad = map[string]string{
	"":                             "is not valid JSON: it ends too early",
	`{}`:                           "is empty",
	`null`:                         "not a JSON object",
	`[]`:                           "not a JSON object",
	`{"a":`:                        "ends too early",
	`{"a":1}{}`:                    "something after its end",
	`{"a":` + secret:               "wrong at byte",
	with("heartbeat_config", ""):   "heartbeat_config is missing",
	with("heartbeat_config", `""`): "heartbeat_config is a text that is not valid JSON",
	with("heartbeat_config", `"{\"vnfs\":[{]}"`):                    "wrong at byte",
	with("heartbeat_config", `{"vnfs":[]}`):                         "vnfs is not a list with entries",
	with("heartbeat_config", `{"vnfs":[1]}`):                        "vnfs[0] is not an object",
	with("heartbeat_config", `[]`):                                  "heartbeat_config is not an object",
	with("heartbeat_config", `{"vnfs":[`+entry+`,`+entry+`]}`):      `vnfs[1]: event name "Heartbeat_edgeRouter" appears already at heartbeat_config.vnfs[0]`,
	config(`:30,`, `:0,`):                                           "vnfs[0].heartbeatinterval is not a whole number from 1",
	config(`:30,`, `:-30,`):                                         "heartbeatinterval is not a whole number",
	config(`:30,`, `:0.5,`):                                         "heartbeatinterval is not a whole number",
	config(`:30,`, `:1e300,`):                                       "heartbeatinterval is not a whole number",
	config(`:30,`, `:34560001,`):                                    "heartbeatinterval is not a whole number",
	config(`:30,`, `:"soon",`):                                      "heartbeatinterval is not a whole number",
	config(`:30,`, `:[30],`):                                        "heartbeatinterval is not a text",
	config(`:4,`, `:0,`):                                            "heartbeatcountmissed is not a whole number from 1",
	config(`:4,`, `:"-1",`):                                         "heartbeatcountmissed is not a whole number",
	config(`"heartbeatcountmissed":4,`, ``):                         "heartbeatcountmissed is missing",
	config(`:30,`, `:30000000,`, `:4,`, `:10000,`):                  "the limit",
	config(`"eventName":"Heartbeat_edgeRouter",`, ``):               "vnfs[0].eventName is missing",
	config(`"Heartbeat_edgeRouter"`, `"a\nb"`):                      "unprintable",
	config(`"VM"`, `"vm"`):                                          `"vm"; use VNF or VM`,
	with("pg_portNum", `"`+secret+`"`):                              "pg_portNum is not a whole number from 1 to 65535",
	with("pg_portNum", `70000`):                                     "pg_portNum",
	with("CBS_polling_interval", `0`):                               "CBS_polling_interval",
	with("streams_subscribes", `[]`):                                "streams_subscribes is not an object",
	with("consumerID", `{"a":"`+secret+`"}`):                        "consumerID is not a text",
	with("groupID", `"${GROUP_ID}"`):                                "the environment lacks: GROUP_ID",
	strings.ReplaceAll(config(), `"hb-`, `"${B}","x":"${A}","y":"`): "the environment lacks: A, B",
	with("streams_publishes", `{"dcae_cl_out":{"dmaap_info":{"topic_url":"http://u:`+secret+`@h:port/x"}}}`): "topic_url is not an http or https URL",
}

func TestParseRefuses(t *testing.T) {
	for data, want := range bad {
		c, err := onap.Parse([]byte(data), nil)
		if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", data, err, want)
		}
		if len(c.Monitor.Checks) != 0 {
			t.Errorf("%s\nwas refused, and taken", data)
		}
	}
}

// TestD19NoSecrets: whatever is wrong, what is said of it holds no secret; nor does a
// configuration that is printed.
func TestD19NoSecrets(t *testing.T) {
	for data := range bad {
		if _, err := onap.Parse([]byte(data), nil); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells: %v", err)
		}
	}
	c, err := onap.Parse([]byte(with("unknown", `"`+secret+`"`)), nil)
	if err != nil || string(c.Database.Password) != secret {
		t.Fatal(string(c.Database.Password), err)
	}
	printed, _ := json.Marshal(c)
	for _, text := range []string{
		string(printed), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%q %x %v", c.Database.Password, c.Database.Password, &c.Database),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("printed: %s", text)
		}
	}
	_, err = onap.ParseProperties([]byte("pg_passwd: *"+secret), yaml.Unmarshal, nil)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("the properties' error tells: %v", err)
	}
}

func TestProperties(t *testing.T) {
	const file = "pg_ipAddress: 10.0.4.1\npg_portNum: 5432\npg_userName: postgres\npg_passwd: postgres\npg_dbName: HB\nCBS_polling_allowed: True\nCBS_polling_interval: 300\n"
	read := func(file string, env map[string]string) onap.Properties {
		t.Helper()
		p, err := onap.ParseProperties([]byte(file), yaml.Unmarshal, func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := onap.Properties{
		Database: onap.Database{Host: "10.0.4.1", Port: 5432, User: "postgres", Password: "postgres", Name: "hb"}, Poll: 5 * time.Minute,
	}
	if d := cmp.Diff(plain, read(file, nil)); d != "" {
		t.Error(d)
	}
	env := map[string]string{"pg_ipAddress": "db", "pg_portNum": "1", "pg_userName": "u", "pg_passwd": "p"}
	all := plain
	all.Database = onap.Database{Host: "db", Port: 1, User: "u", Password: "p", Name: "hb"}
	if d := cmp.Diff(all, read(file, env)); d != "" {
		t.Error(d)
	}
	delete(env, "pg_passwd")
	some := read(file, env)
	if some.Database != plain.Database || len(some.Warnings) != 1 {
		t.Errorf("three of four variables: %+v", some)
	}
	if p := read("", nil); p.Poll != 0 || p.Database != (onap.Database{}) {
		t.Errorf("no properties: %+v", p)
	}
	for _, wrong := range []string{"- 1", "a: b: c", "pg_portNum: x", "1: 2"} {
		if _, err := onap.ParseProperties([]byte(wrong), yaml.Unmarshal, nil); !errors.Is(err, lease.ErrInvalid) && wrong != "1: 2" {
			t.Errorf("%q: %v", wrong, err)
		}
	}

	if d := cmp.Diff(good, good.WithProperties(plain)); d != "" {
		t.Errorf("properties replace what lacks nothing: %s", d)
	}
	c, err := onap.Parse([]byte(with("pg_dbName", "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithProperties(plain)
	if c.Database != plain.Database || c.Poll != plain.Poll || !slices.ContainsFunc(c.Warnings, func(w string) bool { return strings.Contains(w, "pg_dbName") }) {
		t.Errorf("without a database's name: %+v", c)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(config()))
	f.Add([]byte(with("heartbeat_config", `{"vnfs":[`+entry+`]}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := onap.Parse(data, func(name string) (string, bool) { return name, name != "X" })
		if err != nil {
			if !errors.Is(err, lease.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if err := c.Monitor.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
