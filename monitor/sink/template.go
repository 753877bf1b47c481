package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	// Go's text/template without calls of methods, which keep the linker from leaving out any
	// exported method of the program: 2 MiB.
	template "github.com/DataDog/datadog-agent/pkg/template/text"

	"github.com/understudy-ha/understudy/monitor"
)

// Data is what a template is executed over. Besides the builtin functions it has
//
//	json X          X as JSON, quotes included: {"who": {{json .Source}}}
//	time T [LAYOUT] a time in UTC, RFC 3339 or as Go lays times out; "" if there is none
//	unix T          a time in whole seconds since 1970; 0 if there is none
//	default D X     X, or D if X is empty
//
// A label that an alarm does not have is empty; a field that does not exist is an
// error when the sink is made.
type Data struct {
	monitor.AlarmMessage
	Title string // what has happened, in one line
	Text  string // all that is known, in lines
}

// maxBody is how many bytes a template may make.
const maxBody = 1 << 20

var errLong = fmt.Errorf("it makes more than %d bytes", maxBody)

// body is a template that was tried.
type body struct {
	template *template.Template
	json     bool // what it makes must be JSON
}

// newBody parses a template and tries it with samples of what it may be given.
func newBody(name, text, contentType string, status monitor.Transition) (*body, error) {
	t, err := template.New(name).Option("missingkey=zero").Funcs(template.FuncMap{
		"json": toJSON, "time": toTime, "unix": toUnix, "default": orDefault,
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	b := &body{template: t, json: kind == "application/json" || strings.HasSuffix(kind, "+json")}
	for _, m := range samples(status) {
		if _, err := b.render(m); err != nil {
			if strings.HasSuffix(err.Error(), "time.Time") {
				err = fmt.Errorf("%w (templates call no methods: use time or unix)", err)
			}
			return nil, fmt.Errorf("tried for %s with sample names: %w", status, err)
		}
	}
	return b, nil
}

// errNoJSON: what a template made is no JSON, most often for a name with a quote in it.
var errNoJSON = errors.New("what it makes is not valid JSON; write {{json .Source}}, without quotes, and the like, or set another content type")

// render returns nil when there is nothing to send.
func (b *body) render(m monitor.AlarmMessage) ([]byte, error) {
	out := &bounded{}
	if err := b.template.Execute(out, Data{AlarmMessage: m, Title: title(m), Text: text(m)}); err != nil {
		return nil, err
	}
	made := out.Bytes()
	switch {
	case len(bytes.TrimSpace(made)) == 0:
		return nil, nil
	case b.json && !json.Valid(made):
		return nil, errNoJSON
	}
	return made, nil
}

// bounded keeps a template from filling the memory.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxBody {
		return 0, errLong
	}
	return b.Buffer.Write(p)
}

func toJSON(v any) (string, error) {
	out, err := json.Marshal(v)
	return string(out), err
}

func toTime(v any, layout ...string) (string, error) {
	at, err := timeOf(v)
	switch {
	case err != nil:
		return "", err
	case len(layout) > 1:
		return "", errors.New("time takes one layout")
	case at.IsZero():
		return "", nil
	case len(layout) == 1:
		return at.UTC().Format(layout[0]), nil
	}
	return at.UTC().Format(time.RFC3339Nano), nil
}

func toUnix(v any) (int64, error) {
	at, err := timeOf(v)
	if err != nil || at.IsZero() {
		return 0, err
	}
	return at.Unix(), nil
}

// timeOf returns the zero time where there is none.
func timeOf(v any) (time.Time, error) {
	switch v := v.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return v, nil
	case *time.Time:
		if v == nil {
			return time.Time{}, nil
		}
		return *v, nil
	}
	return time.Time{}, fmt.Errorf("%T is not a time", v)
}

func orDefault(instead, v any) any {
	if truth, ok := template.IsTrue(v); ok && truth {
		return v
	}
	return instead
}

// samples of messages: with all that there may be, with the least, and of a group.
// Their names have what names may have and formats trip over.
func samples(status monitor.Transition) []monitor.AlarmMessage {
	at := time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	end := at.Add(90 * time.Second)
	least := monitor.AlarmMessage{
		Status: status, RequestID: "8a0c1f6e-3c55-4f0e-9d5c-5f1f6d0d7c11", Reason: monitor.Silent,
		Event: `sample "event"`, Source: `sample \ "source" <&>`, Started: at, Raised: at,
	}
	if status == monitor.Abated {
		least.Ended = &end
	}
	full := least
	full.Severity, full.Tags, full.Limit, full.LastBeat = "major", []string{`"tag"`}, "15s", &at
	full.Labels = map[string]string{`"label"`: `"value"`}
	full.ControlLoop = monitor.ControlLoop{Name: "loop", TargetType: "VNF"}
	if status == monitor.Onset {
		full.Reminder, full.RemindMS, full.Acknowledge = 2, 60_000, "https://monitor.example/acknowledge/ID/SIGNATURE"
	}
	group := full
	group.Source, group.GroupBy, group.Group = "", "site", `"north"`
	group.Members, group.Count = []string{`"a"`, `\b`}, 2
	retired := least
	if status == monitor.Abated {
		retired.End = monitor.Retire
	}
	return []monitor.AlarmMessage{least, full, group, retired}
}
