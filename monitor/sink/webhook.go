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

// webhook tells by one HTTP request.
type webhook struct {
	hook        *target.Webhook
	url         Secret
	hidden      []string
	contentType string
	// render returns nil when there is nothing to send.
	render func(a alarm) ([]byte, error)
}

func (*WebhookConfig) name() string { return "webhook" }

func (c *WebhookConfig) validate() error {
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
	t.Method, t.Secret, t.Recognises = c.Method, []byte(c.Secret), c.Recognises
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
	bodies, err := c.bodies()
	if err != nil {
		return nil, err
	}
	hidden := append(pathOf(c.URL), string(c.Secret))
	for _, v := range c.Header {
		hidden = append(hidden, string(v))
	}
	return openWebhook(c.target(), c.URL, webhook{
		hidden: hidden, contentType: cmp.Or(c.ContentType, jsonType),
		render: func(a alarm) ([]byte, error) {
			if b := bodies[a.m.Status]; b != nil {
				return b.render(a.m)
			}
			return a.Payload, nil
		},
	})
}

func openWebhook(c target.WebhookConfig, url Secret, w webhook) (receiver, error) {
	hook, err := target.NewWebhook(c)
	if err != nil {
		return nil, err
	}
	w.hook, w.url = hook, url
	return &w, nil
}

func (w *webhook) address() string    { return host(w.url) }
func (w *webhook) secrets() []string  { return w.hidden }
func (w *webhook) deduplicates() bool { return w.hook.Semantics().Deduplicates }

func (w *webhook) deliver(ctx context.Context, a alarm) dispatch.Answer {
	made, err := w.render(a)
	switch {
	case err != nil:
		// The configuration is wrong, not the alarm, which waits until that is mended.
		return dispatch.Answer{Outcome: dispatch.Rejected, Detail: "its template fails: " + err.Error()}
	case made == nil:
		return dispatch.Answer{Outcome: dispatch.Done, Detail: "nothing to send"}
	}
	a.Payload, a.ContentType = made, w.contentType
	return w.hook.Submit(ctx, a.Assignment)
}
