package onap

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"time"
)

// Decode fills a value from text in some format: yaml.Unmarshal, json.Unmarshal.
type Decode func(data []byte, into any) error

// Properties are what hbproperties.yaml says: the database, and how often to fetch
// the configuration again.
type Properties struct {
	Database Database
	Poll     time.Duration
	Warnings []string
}

// ParseProperties reads hbproperties.yaml. The variables pg_ipAddress, pg_portNum,
// pg_userName and pg_passwd of the environment replace what it says, if all four are
// set. Unlike the original, it takes a CBS_polling_allowed that is no text for what it says.
// Errors wrap [lease.ErrInvalid].
func ParseProperties(data []byte, decode Decode, env func(string) (string, bool)) (Properties, error) {
	root, err := decoded(data, decode)
	if err != nil {
		return Properties{}, invalid("the properties %w", err)
	}
	p := &parser{env: env, missing: map[string]bool{}}
	p.override(root)
	t := p.table("", root)
	var out Properties
	out.Database, out.Poll = p.database(t)
	out.Database.Name = strings.ToLower(out.Database.Name)
	t.rest()
	out.Warnings = p.warnings
	return out, p.err
}

func (p *parser) override(root map[string]any) {
	set := map[string]any{}
	for _, name := range []string{"pg_ipAddress", "pg_portNum", "pg_userName", "pg_passwd"} {
		if p.env == nil {
			return
		}
		value, ok := p.env(name)
		if !ok {
			if len(set) > 0 {
				p.warn("only some of pg_ipAddress, pg_portNum, pg_userName and pg_passwd are set in the environment; they count only together")
			}
			return
		}
		set[name] = value
	}
	maps.Copy(root, set)
}

// WithProperties takes the database and the polling from the properties, all of
// them, if one of those settings is missing: the original's rule.
func (c Config) WithProperties(p Properties) Config {
	if len(c.Missing) == 0 {
		return c
	}
	c.Database, c.Poll = p.Database, p.Poll
	c.Warnings = append(c.Warnings[:len(c.Warnings):len(c.Warnings)],
		"taken from the properties, database and polling, for want of "+strings.Join(c.Missing, ", "))
	c.Warnings = append(c.Warnings, p.Warnings...)
	return c
}

// decoded turns what decode makes into what JSON would have made of it.
func decoded(data []byte, decode Decode) (map[string]any, error) {
	if decode == nil {
		return object(data)
	}
	var value any
	if err := decode(data, &value); err != nil {
		return nil, unreadable{regexp.MustCompile(`line [0-9]+`).FindString(err.Error())}
	}
	if value == nil {
		return map[string]any{}, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, unreadable{}
	}
	return object(text)
}

// unreadable says where a text is wrong and nothing of what stands there, which may
// be a password.
type unreadable struct{ at string }

func (u unreadable) Error() string {
	if u.at == "" {
		return "cannot be read"
	}
	return "cannot be read: it is wrong at " + u.at
}
