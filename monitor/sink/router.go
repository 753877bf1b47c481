package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/messagerouter"
)

func (*MessageRouterConfig) name() string { return "message router" }

func (c *MessageRouterConfig) validate() error { return c.client().Validate() }

func (c *MessageRouterConfig) client() messagerouter.Config {
	return messagerouter.Config{Topic: c.URL, User: c.User, Password: c.Password, Timeout: patience}
}

func (c *MessageRouterConfig) open(string) (receiver, error) {
	cfg := c.client()
	if c.CAFile != "" {
		var err error
		if cfg.TLS, err = target.Trust(c.CAFile); err != nil {
			return receiver{}, err
		}
	}
	client, err := messagerouter.New(cfg)
	if err != nil {
		return receiver{}, err
	}
	return receiver{
		address: client.String(), secrets: []string{string(c.Password)},
		deliver: func(ctx context.Context, a alarm) dispatch.Answer {
			return published(client.Publish(ctx, a.Payload))
		},
	}, nil
}

// published judges a router's answer. Only one that says it took the event is believed.
func published(err error) dispatch.Answer {
	if err == nil {
		return dispatch.Answer{Outcome: dispatch.Done, Code: http.StatusOK}
	}
	out := dispatch.Answer{Outcome: dispatch.Uncertain, Detail: err.Error()}
	if refused, ok := errors.AsType[*messagerouter.Error](err); ok {
		out.Code, out.RetryAfter = refused.Status, refused.RetryAfter
		switch {
		case refused.Code == messagerouter.CodePartial, refused.Status == http.StatusConflict:
			out.Outcome = dispatch.Busy
		case refused.Status == http.StatusServiceUnavailable && refused.RetryAfter > 0:
			out.Outcome = dispatch.Busy
		default:
			out.Outcome, out.RequestEnded = target.OutcomeOf(refused.Status), true
		}
		return out
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, messagerouter.ErrNotSent) && untrusted:
		out.Outcome = dispatch.Misconfigured
	case errors.Is(err, messagerouter.ErrNotSent):
		out.Outcome = dispatch.Busy
	case errors.Is(err, messagerouter.ErrAnswer), errors.Is(err, messagerouter.ErrTooLarge):
		out.RequestEnded = true // it has answered
	}
	return out
}
