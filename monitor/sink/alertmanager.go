package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/monitor"
)

const (
	tenYears = 10 * 365 * 24 * time.Hour
	// alertsPath of the API.
	alertsPath = "/api/v2/alerts"
	// skipFor is how long a member that did not answer is only asked when no
	// other takes an alert: one that hangs must not slow down ten thousand of them.
	skipFor = 10 * time.Second
	// endings is how often the end of an alert is given to a cluster until all
	// members have taken it; one that misses it would show the alert for years.
	endings = 6
)

// grace is how much longer other members are waited for when one has taken an alert.
var grace = time.Second

// alertmanager is told by a request to each member of a cluster.
type alertmanager struct {
	members []*member
	lasts   time.Duration
}

// member of a cluster.
type member struct {
	hook  *target.Webhook
	place string

	mu     sync.Mutex
	silent time.Time // since when it does not answer; zero when it does
}

func (*AlertmanagerConfig) name() string { return "alertmanager" }

func (c *AlertmanagerConfig) validate() error {
	if len(c.URLs) == 0 {
		return errors.New("it needs the URL of an Alertmanager")
	}
	if c.MaxAlertAge < 0 || c.MaxAlertAge > 10*tenYears {
		return fmt.Errorf("an alert that lasts %v; use up to a hundred years, or 0 for ten", c.MaxAlertAge)
	}
	seen := map[Secret]bool{}
	for _, u := range c.URLs {
		if err := c.target(u).Validate(); err != nil {
			return err
		}
		if seen[u] {
			return fmt.Errorf("the URL of %s appears twice", host(u))
		}
		seen[u] = true
	}
	return nil
}

func (c *AlertmanagerConfig) target(u Secret) target.WebhookConfig {
	if base := strings.TrimSuffix(string(u), "/"); !strings.HasSuffix(base, alertsPath) {
		u = Secret(base + alertsPath)
	}
	return c.HTTP.target(u)
}

// open returns a receiver that does not deduplicate: an ONSET that came once more after its ABATED would stand again.
func (c *AlertmanagerConfig) open(string) (receiver, error) {
	am := &alertmanager{lasts: cmp.Or(c.MaxAlertAge, tenYears)}
	var places, hidden []string
	for _, u := range c.URLs {
		hook, err := target.NewWebhook(c.target(u))
		if err != nil {
			return receiver{}, err
		}
		am.members = append(am.members, &member{hook: hook, place: host(u)})
		places, hidden = append(places, host(u)), append(hidden, pathOf(u)...)
	}
	return receiver{address: strings.Join(places, ", "), secrets: hidden, deliver: am.deliver}, nil
}

func (am *alertmanager) deliver(ctx context.Context, a alarm) dispatch.Answer {
	payload, err := json.Marshal(alerts(a.m, am.lasts, time.Now()))
	if err != nil {
		return dispatch.Answer{Outcome: dispatch.InvalidMessage, Detail: err.Error()}
	}
	a.Payload, a.ContentType = payload, jsonType
	now := time.Now()
	skip := skipFor
	if a.m.Status == monitor.Abated {
		skip = grace // all attempts at an end are over before skipFor is
	}
	var first, last []*member
	for _, m := range am.members {
		if m.isSkipped(now, skip) {
			last = append(last, m)
		} else {
			first = append(first, m)
		}
	}
	got := submit(ctx, a, first)
	if !got.taken() {
		got.add(submit(ctx, a, last))
		last = nil
	}
	return got.answer(a, last)
}

// isSkipped reports whether others are asked before it, as it did not answer so short a time ago.
func (m *member) isSkipped(now time.Time, after time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.silent.IsZero() && now.Sub(m.silent) < after
}

// recordAnswer notes whether it has answered.
func (m *member) recordAnswer(answer dispatch.Answer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = time.Time{}
	if answer.Code == 0 {
		m.silent = now
	}
}

// answers of members, in their order.
type answers struct {
	from []*member
	said []dispatch.Answer
}

func (as *answers) add(more answers) {
	as.from, as.said = append(as.from, more.from...), append(as.said, more.said...)
}

func (as answers) taken() bool {
	return slices.ContainsFunc(as.said, func(a dispatch.Answer) bool { return a.Outcome == dispatch.Done })
}

// submit tells members at once. It returns soon after one has taken the alert.
func submit(ctx context.Context, a alarm, members []*member) answers {
	out := answers{members, make([]dispatch.Answer, len(members))}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			answer := m.hook.Submit(within, a.Assignment)
			if ctx.Err() == nil || answer.Code != 0 { // otherwise it had no time to answer
				m.recordAnswer(answer, time.Now())
			}
			if answer.Outcome == dispatch.Done {
				time.AfterFunc(grace, cancel)
			}
			out.said[i] = answer
		})
	}
	all.Wait()
	return out
}

// answer of all: done when one has taken it, and otherwise what leaves the most hope.
func (as answers) answer(a alarm, unasked []*member) dispatch.Answer {
	out := dispatch.Answer{RequestEnded: true}
	var missing []string
	for i, said := range as.said {
		out.RetryAfter = max(out.RetryAfter, said.RetryAfter)
		if said.Outcome == dispatch.Done {
			out.Code = said.Code
			continue
		}
		missing = append(missing, as.from[i].place+": "+said.Detail)
	}
	for _, m := range unasked {
		missing = append(missing, m.place+": it does not answer, and was not asked")
	}
	out.Detail = strings.Join(missing, "; ")
	if !as.taken() {
		return as.refusal(out)
	}
	out.Outcome, out.RetryAfter = dispatch.Done, 0
	switch {
	case len(missing) == 0:
	case a.m.Status == monitor.Abated && a.Attempt < endings:
		out.Outcome, out.Detail = dispatch.Uncertain, "not all members have taken the end: "+out.Detail
	default:
		out.Detail = "not taken by all members: " + out.Detail
	}
	return out
}

func (as answers) refusal(out dispatch.Answer) dispatch.Answer {
	for _, hope := range []dispatch.Outcome{dispatch.Uncertain, dispatch.Busy, dispatch.Misconfigured, dispatch.InvalidMessage} {
		for _, said := range as.said {
			if said.Outcome != hope {
				continue
			}
			if out.Outcome == "" {
				out.Outcome, out.Code = hope, said.Code
			}
			out.RequestEnded = out.RequestEnded && (hope != dispatch.Uncertain || said.RequestEnded)
		}
	}
	return out
}
