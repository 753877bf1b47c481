package onap

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// events reads heartbeat_config.
func (p *parser) events(t *table) []monitor.Check {
	const name = "heartbeat_config"
	if text, ok := t.values[name].(string); ok {
		o, err := object([]byte(text))
		if err != nil {
			p.fail("%s is a text that %w", name, err)
			return nil
		}
		t.values[name] = p.substitute(o)
	}
	if !t.has(name) {
		p.fail("%s is missing", name)
		return nil
	}
	config := t.table(name)
	list, ok := config.take("vnfs").([]any)
	if !ok || len(list) == 0 {
		p.fail("%s.vnfs is not a list with entries", name)
		return nil
	}
	config.rest()
	var out []monitor.Check
	at := map[string]int{}
	for i, item := range list {
		where := fmt.Sprintf("%s.vnfs[%d]", name, i)
		values, ok := item.(map[string]any)
		if !ok {
			p.fail("%s is not an object", where)
			return nil
		}
		e := p.event(p.table(where, values))
		if before, twice := at[e.Name]; twice {
			p.fail("%s: event name %q appears already at %s.vnfs[%d]", where, e.Name, name, before)
		}
		at[e.Name] = i
		out = append(out, e)
	}
	return out
}

func (p *parser) event(t *table) monitor.Check {
	e := monitor.Check{Name: t.text("eventName"), AnyDomain: true} // the original does not look at the domain
	if e.Name == "" {
		p.fail("%s.eventName is missing", t.where)
	}
	e.Missed = int(t.number("heartbeatcountmissed", 1, monitor.MaxMissed))
	e.Interval = time.Duration(t.number("heartbeatinterval", 1, maxSeconds)) * time.Second
	for name, into := range map[string]*string{
		"closedLoopControlName": &e.ControlLoop.Name,
		"policyVersion":         &e.ControlLoop.PolicyVersion,
		"policyName":            &e.ControlLoop.PolicyName,
		"policyScope":           &e.ControlLoop.PolicyScope,
		"target":                &e.ControlLoop.Target,
		"version":               &e.ControlLoop.Version,
	} {
		if *into = t.text(name); !t.has(name) {
			t.lacks = append(t.lacks, name)
		}
	}
	slices.Sort(t.lacks)
	for _, name := range t.lacks {
		p.warn("%s.%s is missing; it will be empty in control-loop events", t.where, name)
	}
	switch e.ControlLoop.TargetType = t.text("target_type"); e.ControlLoop.TargetType {
	case "VNF", "VM":
	case "":
		e.ControlLoop.TargetType = "VNF"
		p.warn("%s.target_type is missing; it is taken for VNF", t.where)
	default:
		p.fail("%s (event name %q): target_type %q; use VNF or VM", t.where, e.Name, e.ControlLoop.TargetType)
	}
	t.rest()
	return e
}

// table is a JSON object, and which of its values were taken.
type table struct {
	p      *parser
	where  string
	values map[string]any
	taken  map[string]bool
	lacks  []string
}

func (p *parser) table(where string, values map[string]any) *table {
	return &table{p: p, where: where, values: values, taken: map[string]bool{}}
}

func (t *table) path(name string) string {
	if t.where == "" {
		return name
	}
	return t.where + "." + name
}

func (t *table) take(name string) any {
	t.taken[name] = true
	return t.values[name]
}

func (t *table) has(name string) bool { return t.values[name] != nil }

// table takes an object; an empty one if there is none.
func (t *table) table(name string) *table {
	value := t.take(name)
	values, ok := value.(map[string]any)
	if value != nil && !ok {
		t.p.fail("%s is not an object", t.path(name))
	}
	return t.p.table(t.path(name), values)
}

// text takes a text; anything that is plain is turned into one.
func (t *table) text(name string) string {
	switch v := t.take(name).(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	t.p.fail("%s is not a text", t.path(name))
	return ""
}

// number takes a whole number within bounds.
func (t *table) number(name string, least, most int64) int64 {
	text := t.text(name)
	if text == "" {
		t.p.fail("%s is missing", t.path(name))
		return least
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if f, ferr := strconv.ParseFloat(text, 64); err != nil && ferr == nil && f == float64(int64(f)) {
		n, err = int64(f), nil // 3e1, 30.0
	}
	if err != nil || n < least || n > most {
		t.p.fail("%s is not a whole number from %d to %d", t.path(name), least, most)
		return least
	}
	return n
}

// rest warns of what nobody took.
func (t *table) rest() {
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		if !t.taken[name] {
			t.p.warn("%s is not known, and ignored", t.path(strconv.Quote(name)))
		}
	}
}
