package onap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Config is a configuration of the original.
type Config struct {
	// Monitor holds the event names, ready to be put into force.
	Monitor monitor.Configuration
	// Database that the original would use.
	Database Database
	// Poll is how often to fetch the configuration again; 0: not at all.
	Poll time.Duration
	// Group and Consumer are the ids at the Message Router; Service is the name under
	// which an instance shows itself.
	Group, Consumer, Service string
	// Subscribe and Publish are the topics of beats and of control-loop events.
	Subscribe, Publish string
	// DatabaseKeys are the settings of Database that are there.
	DatabaseKeys []string
	// Missing are the settings that the original takes from its properties, all of
	// them, if one is missing: see [Config.WithProperties].
	Missing []string
	// Warnings are what is odd but harmless.
	Warnings []string
}

// Database is where PostgreSQL is.
type Database struct {
	Host     string
	Port     int
	User     string
	Password secret.Text
	Name     string
}

// Parse reads the original's JSON. Text values of the form "${NAME}" are taken from
// env (nil: nothing is set); numbers may be texts; heartbeat_config may be an object, or
// a text that holds one. Errors wrap [lease.ErrInvalid].
func Parse(data []byte, env func(string) (string, bool)) (Config, error) {
	root, err := object(data)
	if err != nil {
		return Config{}, invalid("the configuration %w", err)
	}
	return parseObject(root, env)
}

func parseObject(root map[string]any, env func(string) (string, bool)) (Config, error) {
	if len(root) == 0 {
		return Config{}, invalid("the configuration is empty")
	}
	p := &parser{env: env, missing: map[string]bool{}}
	c := p.config(p.table("", p.substitute(root).(map[string]any)))
	if len(p.missing) > 0 {
		return Config{}, invalid("the configuration asks for what the environment lacks: %s", strings.Join(slices.Sorted(maps.Keys(p.missing)), ", "))
	}
	if p.err == nil {
		p.err = c.Monitor.Validate()
	}
	if p.err != nil {
		return Config{}, p.err
	}
	c.Warnings = p.warnings
	return c, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{lease.ErrInvalid}, args...)...)
}

// object decodes one JSON object, and nothing after it.
func object(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("is not valid JSON: it is wrong at byte %d", syntax.Offset)
		}
		return nil, errors.New("is not valid JSON: it ends too early")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("has something after its end")
	}
	o, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	return o, nil
}

// parser collects what is wrong: the first error, all warnings, all that is missing
// in the environment.
type parser struct {
	env      func(string) (string, bool)
	err      error
	warnings []string
	missing  map[string]bool
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid(format, args...)
	}
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// substitute replaces texts that are "${NAME}".
func (p *parser) substitute(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for k := range v {
			v[k] = p.substitute(v[k])
		}
	case []any:
		for i := range v {
			v[i] = p.substitute(v[i])
		}
	case string:
		name, ok := strings.CutPrefix(v, "${")
		name, closed := strings.CutSuffix(name, "}")
		if !ok || !closed || name == "" || strings.ContainsAny(name, "{}$") {
			return v
		}
		if p.env != nil {
			if set, ok := p.env(name); ok {
				return set
			}
		}
		p.missing[name] = true
	}
	return value
}

func (p *parser) config(t *table) Config {
	var c Config
	c.Database, c.Poll = p.database(t)
	c.Consumer, c.Group = t.text("consumerID"), t.text("groupID")
	for _, name := range []string{
		"pg_ipAddress", "pg_portNum", "pg_userName", "pg_passwd", "pg_dbName",
		"CBS_polling_allowed", "CBS_polling_interval", "consumerID", "groupID",
	} {
		if !t.has(name) {
			c.Missing = append(c.Missing, name)
		} else if strings.HasPrefix(name, "pg_") {
			c.DatabaseKeys = append(c.DatabaseKeys, name)
		}
	}
	c.Service = t.text("SERVICE_NAME")
	c.Subscribe = p.topic(t, "streams_subscribes", "ves-heartbeat")
	c.Publish = p.topic(t, "streams_publishes", "dcae_cl_out")
	c.Monitor.Checks = p.events(t)
	t.rest()
	return c
}

func (p *parser) database(t *table) (Database, time.Duration) {
	d := Database{
		Host: t.text("pg_ipAddress"), User: t.text("pg_userName"), Name: t.text("pg_dbName"),
		Password: secret.Text(t.text("pg_passwd")),
	}
	if t.has("pg_portNum") {
		d.Port = int(t.number("pg_portNum", 1, 65535))
	}
	allowed := t.text("CBS_polling_allowed")
	if !strings.EqualFold(allowed, "true") {
		if allowed != "" && !strings.EqualFold(allowed, "false") {
			p.warn("CBS_polling_allowed is neither True nor False; the configuration is not fetched again")
		}
		t.text("CBS_polling_interval")
		return d, 0
	}
	poll := 300 * time.Second
	if t.has("CBS_polling_interval") {
		poll = time.Duration(t.number("CBS_polling_interval", 1, maxSeconds)) * time.Second
	}
	return d, poll
}

const maxSeconds = int64(monitor.MaxInterval / time.Second)

func (p *parser) topic(t *table, streams, name string) string {
	all := t.table(streams)
	stream := all.table(name)
	kind := stream.text("type")
	info := stream.table("dmaap_info")
	topic := info.text("topic_url")
	all.rest()
	stream.rest()
	info.rest()
	if kind != "" && kind != "message_router" {
		p.warn("%s.%s.type is not message_router; it is taken for that", streams, name)
	}
	if topic == "" {
		p.warn("%s.%s.dmaap_info.topic_url is missing", streams, name)
		return ""
	}
	// The URL may hold a password, and so may what url.Parse says of it.
	if u, err := url.Parse(topic); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		p.fail("%s.%s.dmaap_info.topic_url is not an http or https URL", streams, name)
	}
	return topic
}
