package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/monitor"
)

// receiver is what a sink delivers to.
type receiver struct {
	address      string   // its host or topic, without secrets
	secrets      []string // that must not appear in what its answers are shown as
	deduplicates bool
	deliver      func(ctx context.Context, a alarm) dispatch.Answer
}

// alarm is what to deliver, with its message in the queue.
type alarm struct {
	dispatch.Assignment
	m monitor.AlarmMessage
	// formatted: the payload is in the sink's format, and no longer m as JSON.
	formatted bool
}

// patience bounds one delivery whose context has no deadline.
const patience = time.Minute

// sink is the target of a queue of alarms.
type sink struct {
	name     string
	format   Format
	to       receiver
	redacted *strings.Replacer
}

var _ dispatch.Target = (*sink)(nil)

// New returns the target for a sink's queue, which is monitor.SinkQueue of its name.
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
	s := &sink{name: strings.TrimSpace(k.name() + " " + to.address), format: c.Format, to: to, redacted: redaction(to.secrets)}
	if c.MessageRouter != nil {
		s.format = cmp.Or(s.format, ControlLoop)
	}
	return s, nil
}

// Name implements [dispatch.Target].
func (s *sink) Name() string { return s.name }

// Semantics implements [dispatch.Target]: an alarm twice is better than none, and
// nobody can be asked.
func (s *sink) Semantics() dispatch.Semantics {
	return dispatch.Semantics{Resend: true, Deduplicates: s.to.deduplicates}
}

// Submit implements [dispatch.Target].
func (s *sink) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	m, err := message(a.Payload)
	if err != nil {
		return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: "no alarm: " + untrusted.Words(err.Error())}
	}
	if m.Reminder > 0 && a.Age >= time.Duration(m.RemindMS)*time.Millisecond {
		// The receiver was away for long: it gets one reminder then, not all of them. By the age in the store: no two
		// hosts' clocks are compared.
		return dispatch.Answer{Outcome: dispatch.Done, Detail: "a later reminder follows"}
	}
	made := alarm{Assignment: a, m: m}
	if s.format != "" {
		if m.Reminder > 0 || m.What != "" { // a policy would act on it once more, or has nothing to act on
			return dispatch.Answer{Outcome: dispatch.Done, Detail: "there are no control-loop events of reminders and jobs"}
		}
		if made.Payload, err = s.format.render(m, time.Now()); err != nil {
			return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: "no control-loop event can be made of it: " + err.Error()}
		}
		made.formatted = true
	}
	answer := s.to.deliver(ctx, made)
	answer.Detail = untrusted.Words(s.redacted.Replace(answer.Detail))
	return answer
}

// Status implements [dispatch.Target].
func (s *sink) Status(_ context.Context, as []dispatch.Assignment) []dispatch.Answer {
	return slices.Repeat([]dispatch.Answer{{Outcome: dispatch.Uncertain, Detail: "a sink cannot be asked"}}, len(as))
}

func message(payload []byte) (m monitor.AlarmMessage, err error) {
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
		if len(s) >= 8 { // what is shorter ("hook", "alerts") is no secret, and hiding it would tear words apart
			pairs = append(pairs, s, secret.Hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

// host is the part of a URL that can be shown.
func host(u Secret) string {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return secret.Hidden
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
		Final:      true,
	}
}
