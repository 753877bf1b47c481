package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

const jsonType = "application/json"

func (*WebhookConfig) name() string { return "webhook" }

func (c *WebhookConfig) validate() error {
	if err := c.validateService(); err != nil {
		return err
	}
	c = c.withService()
	if err := c.target().Validate(); err != nil {
		return err
	}
	if _, _, err := mime.ParseMediaType(cmp.Or(c.ContentType, jsonType)); err != nil {
		return fmt.Errorf("content type %q: %w", c.ContentType, err)
	}
	if err := lease.ValidateText("content type", c.ContentType, 0, dispatch.MaxContentType); err != nil {
		return err
	}
	if c.ContentType != "" && c.Body == "" && c.Onset == nil && c.Abated == nil {
		return errors.New("a content type without a template: what is sent is JSON")
	}
	_, err := c.bodies()
	return err
}

func (c *WebhookConfig) target() target.WebhookConfig {
	t := c.HTTP.target(c.URL)
	t.Method, t.Secret, t.Signature, t.Deduplicates = c.Method, []byte(c.Secret), c.Signature, c.Deduplicates
	t.Header = http.Header{}
	for name, value := range c.Header {
		t.Header[name] = []string{string(value)}
	}
	return t
}

// bodies are the templates; one that is nil is the message as it is.
func (c *WebhookConfig) bodies() (map[monitor.Transition]*body, error) {
	out := map[monitor.Transition]*body{}
	for _, t := range []struct {
		name   string
		status monitor.Transition
		own    *string
	}{{"onset", monitor.Onset, c.Onset}, {"abated", monitor.Abated, c.Abated}} {
		text := c.Body
		switch {
		case t.own != nil:
			text = *t.own
		case text == "":
			continue
		}
		b, err := newBody(t.name, text, cmp.Or(c.ContentType, jsonType), t.status)
		if err != nil {
			return nil, err
		}
		out[t.status] = b
	}
	return out, nil
}

func (c *WebhookConfig) open(string) (receiver, error) {
	c = c.withService()
	bodies, err := c.bodies()
	if err != nil {
		return receiver{}, err
	}
	hidden := append(pathOf(c.URL), string(c.Secret))
	for _, v := range c.Header {
		hidden = append(hidden, string(v))
	}
	if c.Service != "" {
		return c.openService(c.target(), hidden)
	}
	return openWebhook(c.target(), c.URL, hidden, cmp.Or(c.ContentType, jsonType), func(a alarm) ([]byte, error) {
		if b := bodies[a.m.Status]; b != nil {
			return b.render(a.m)
		}
		return a.Payload, nil
	})
}

// openWebhook returns what is reached by one HTTP request. render returns nil when there is nothing to send.
func openWebhook(c target.WebhookConfig, url Secret, hidden []string, contentType string, render func(alarm) ([]byte, error)) (receiver, error) {
	hook, err := target.NewWebhook(c)
	if err != nil {
		return receiver{}, err
	}
	deliver := func(ctx context.Context, a alarm) dispatch.Answer {
		body, err := render(a)
		switch {
		case err != nil:
			// The configuration is wrong, not the alarm, which waits until that is fixed.
			return dispatch.Answer{Outcome: dispatch.Misconfigured, Detail: "its template fails: " + err.Error()}
		case body == nil:
			return dispatch.Answer{Outcome: dispatch.Done, Detail: "nothing to send"}
		}
		a.Payload, a.ContentType = body, contentType
		return hook.Submit(ctx, a.Assignment)
	}
	return receiver{address: host(url), secrets: hidden, deduplicates: hook.Semantics().Deduplicates, deliver: deliver}, nil
}
