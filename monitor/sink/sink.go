package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/heard"
	"github.com/understudy-ha/understudy/monitor"
)

// receiver is who is told.
type receiver interface {
	// place is where it is: no secrets.
	place() string
	// secrets are what it must not repeat.
	secrets() []string
	recognises() bool
	tell(ctx context.Context, a alarm) dispatch.Answer
}

// alarm is what is to be told, with the batch that it is in.
type alarm struct {
	dispatch.Assignment
	m monitor.Message
}

// patience bounds one telling, if its context does not.
const patience = time.Minute

// sink is the target of a queue of alarms.
type sink struct {
	name     string
	to       receiver
	redacted *strings.Replacer
}

var _ dispatch.Target = (*sink)(nil)

// New returns the target for a sink's queue, which is monitor.QueueOf of its name.
// Files are read, templates tried, and nobody is told anything.
func New(c Config) (dispatch.Target, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k, err := c.kind()
	if err != nil {
		return nil, c.wrong(err)
	}
	to, err := k.open(c.Name)
	if err != nil {
		return nil, c.wrong(err)
	}
	return &sink{name: strings.TrimSpace(k.name() + " " + to.place()), to: to, redacted: redaction(to.secrets())}, nil
}

// Name implements [dispatch.Target].
func (s *sink) Name() string { return s.name }

// Semantics implements [dispatch.Target]: an alarm twice is better than none, and
// nobody can be asked.
func (s *sink) Semantics() dispatch.Semantics {
	return dispatch.Semantics{Resend: true, Recognises: s.to.recognises()}
}

// Submit implements [dispatch.Target].
func (s *sink) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := message(a.Payload)
	if err != nil {
		return dispatch.Answer{Outcome: dispatch.Refused, Detail: "no alarm: " + heard.Words(err.Error())}
	}
	answer := s.to.tell(ctx, alarm{a, m})
	answer.Detail = heard.Words(s.redacted.Replace(answer.Detail))
	return answer
}

// Ask implements [dispatch.Target].
func (s *sink) Ask(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	return slices.Repeat([]dispatch.Answer{{Outcome: dispatch.Silent, Detail: "a sink cannot be asked"}}, len(as))
}

func message(payload []byte) (m monitor.Message, err error) {
	if err := json.Unmarshal(payload, &m); err != nil {
		return m, err
	}
	switch {
	case m.Status != monitor.Onset && m.Status != monitor.Abated:
		return m, fmt.Errorf("its status is %q, neither %s nor %s", m.Status, monitor.Onset, monitor.Abated)
	case m.Event == "" || m.Source == "" && m.GroupBy == "" && m.Group == "":
		return m, fmt.Errorf("it names no event, or neither a source nor a group")
	}
	return m, nil
}

// redaction replaces secrets that a receiver, or an error, may repeat.
func redaction(secrets []string) *strings.Replacer {
	// The longest first: one may be part of another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) >= 4 { // less would tear words apart, and hide nothing
			pairs = append(pairs, s, redacted)
		}
	}
	return strings.NewReplacer(pairs...)
}

// host is the part of a URL that can be shown.
func host(u Secret) string {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return redacted
	}
	return parsed.Scheme + "://" + parsed.Host
}

// pathOf are the parts of a URL that cannot be shown.
func pathOf(u Secret) []string {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return []string{string(u)}
	}
	return []string{parsed.RequestURI(), strings.TrimPrefix(parsed.EscapedPath(), "/"), parsed.RawQuery}
}

// target is the configuration of package dispatch/target for a URL whose every 2xx is final.
func (h HTTP) target(u Secret) target.WebhookConfig {
	return target.WebhookConfig{
		HTTPConfig: target.HTTPConfig{URL: string(u), CAFile: h.CAFile, TokenFile: h.TokenFile, Concurrency: h.Concurrency},
		Final:      true, Resend: true,
	}
}
