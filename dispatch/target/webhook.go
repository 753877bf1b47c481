package target

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/headers"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// WebhookConfig tells how messages are sent as webhooks.
type WebhookConfig struct {
	HTTPConfig
	// Method of a submission: POST, PUT or PATCH. Default POST.
	Method string
	// Final: every 2xx means committed. The location of a 202 is not asked, and
	// neither is anything else.
	Final bool
	// StatusURL is asked what became of a message, with {id} in it standing for
	// the message's id. Default: only locations that the receiver itself named are.
	StatusURL string
	// At is where a submission goes, below URL. Default: to URL.
	At func(base *url.URL, a dispatch.Assignment) *url.URL
	// Secret signs every request. Default: no signature. One that starts with whsec_ must be base64 behind it.
	Secret []byte
	// Signature is how. Default [StandardSignature].
	Signature Signature
	// Header has more headers for every request. It cannot set those that the
	// protocol has.
	Header http.Header
	// AtMostOnce: a message whose outcome is unknown is not sent again: its key blocks until an operator decides. Default: it
	// is sent again, with the same id and a growing pause.
	AtMostOnce bool
	// Deduplicates declares that the receiver deduplicates by the Idempotency-Key of what
	// it has done, however late it comes again.
	Deduplicates bool
	// NotFoundIsFinal declares that a 404 of the status URL proves that the message did
	// not arrive.
	NotFoundIsFinal bool
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c WebhookConfig) Validate() error {
	if err := c.HTTPConfig.Validate(); err != nil {
		return err
	}
	switch c.Method {
	case "", http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		return fmt.Errorf("%w: method %q; use POST, PUT or PATCH", lease.ErrInvalid, c.Method)
	}
	if c.Final && c.StatusURL != "" {
		return fmt.Errorf("%w: a receiver whose every 2xx is final is not asked; it needs no status URL", lease.ErrInvalid)
	}
	if c.StatusURL != "" {
		status := HTTPConfig{URL: strings.ReplaceAll(c.StatusURL, "{id}", "id")}
		if err := status.Validate(); err != nil {
			return fmt.Errorf("status: %w", err)
		}
		if !strings.Contains(c.StatusURL, "{id}") {
			return fmt.Errorf("%w: the status URL lacks {id}, which stands for the message's id", lease.ErrInvalid)
		}
	}
	switch c.Signature {
	case "", StandardSignature, UnderstudySignature:
	default:
		return fmt.Errorf("%w: signature %q; use %s or %s", lease.ErrInvalid, c.Signature, StandardSignature, UnderstudySignature)
	}
	if bytes.HasPrefix(c.Secret, []byte("whsec_")) && bytes.Equal(standardKey(c.Secret), c.Secret) {
		return fmt.Errorf("%w: the secret begins with whsec_, and is not base64 behind it", lease.ErrInvalid)
	}
	if err := checkOnce(c.AtMostOnce, c.Deduplicates); err != nil {
		return err
	}
	if c.NotFoundIsFinal && c.StatusURL == "" {
		return fmt.Errorf("%w: a receiver without a status URL cannot prove that a message did not arrive", lease.ErrInvalid)
	}
	own := func(name string) bool {
		return name == HeaderID || name == "Content-Type" || strings.HasPrefix(name, "Webhook-")
	}
	if err := headers.Check(c.Header, own); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	return nil
}

// checkOnce refuses what contradicts itself.
func checkOnce(atMostOnce, deduplicates bool) error {
	if atMostOnce && deduplicates {
		return fmt.Errorf("%w: a target that deduplicates can be sent a message twice: leave out at most once", lease.ErrInvalid)
	}
	return nil
}

// Webhook sends messages by HTTP.
type Webhook struct {
	cfg    WebhookConfig
	client *client
	signer *signer
}

// NewWebhook returns a target for webhooks.
func NewWebhook(c WebhookConfig) (*Webhook, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Method = cmp.Or(c.Method, http.MethodPost)
	cl, err := newClient(c.HTTPConfig)
	if err != nil {
		return nil, err
	}
	cl.secrets = c.secrets()
	w := &Webhook{cfg: c, client: cl}
	switch {
	case len(c.Secret) == 0:
	case c.Signature == UnderstudySignature:
		w.signer = newSigner(c.Secret)
	default:
		w.signer = newSigner(standardKey(c.Secret))
	}
	return w, nil
}

// secrets are what in a request may let it in: values of configured headers, by themselves or behind a scheme such as Bearer, and
// those of queries; the longest first, because one may be part of another.
func (c WebhookConfig) secrets() (out []string) {
	for name, values := range c.Header {
		if slices.Contains([]string{"Accept", "Content-Type", "User-Agent"}, http.CanonicalHeaderKey(name)) {
			continue
		}
		for _, v := range values {
			out = append(out, v)
			if _, behind, ok := strings.Cut(v, " "); ok {
				out = append(out, behind)
			}
		}
	}
	for _, text := range []string{c.URL, c.StatusURL} {
		to, err := url.Parse(text)
		if err != nil || to.RawQuery == "" {
			continue
		}
		out = append(out, to.RawQuery)
		for _, values := range to.Query() {
			for _, v := range values {
				out = append(out, v, url.QueryEscape(v))
			}
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// Name implements [dispatch.Target]. A query may hold secrets, and is left out.
func (w *Webhook) Name() string { return "webhook " + w.client.place() }

// Semantics implements [dispatch.Target].
func (w *Webhook) Semantics() dispatch.Semantics {
	return dispatch.Semantics{
		Resend: !w.cfg.AtMostOnce, Deduplicates: w.cfg.Deduplicates,
		HasStatus: !w.cfg.Final, StatusLimit: 1, Forgets: !w.cfg.NotFoundIsFinal,
	}
}

// Submit implements [dispatch.Target].
func (w *Webhook) Submit(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	header := w.header(a)
	switch {
	case w.signer == nil:
	case w.cfg.Signature == UnderstudySignature:
		header[HeaderSignature] = []string{w.signer.sign(header, a.Payload, time.Now())}
	default:
		w.signer.signStandard(header, a.Payload, time.Now())
	}
	to := w.client.base
	if w.cfg.At != nil {
		to = w.cfg.At(to, a)
	}
	r := w.client.do(ctx, w.cfg.Method, to, header, a.Payload, maxAnswer)
	return w.classify(r, a.Attempt > 1 || a.Retried, time.Now())
}

func (w *Webhook) header(a dispatch.Assignment) http.Header {
	values := [...]string{
		headerText(a.ID), headerText(a.Queue), headerText(a.Key), headerText(a.ContentType),
		strconv.FormatInt(a.Term, 10), strconv.Itoa(a.Attempt), strconv.FormatInt(a.Seq, 10), agent,
	}
	h := make(http.Header, len(values)+4+len(w.cfg.Header)+len(a.Headers))
	for name, value := range a.Headers { // what the queue's owner configured overrides it
		h[textproto.CanonicalMIMEHeaderKey(name)] = []string{headerText(value)}
	}
	for name, more := range w.cfg.Header {
		h[textproto.CanonicalMIMEHeaderKey(name)] = more
	}
	names := [...]string{HeaderID, HeaderQueue, HeaderKey, "Content-Type", HeaderTerm, HeaderAttempt, HeaderSequence, "User-Agent"}
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
	return h
}

const agent = "understudy"

// Status implements [dispatch.Target].
func (w *Webhook) Status(ctx context.Context, as []dispatch.Assignment) []dispatch.Answer {
	out := make([]dispatch.Answer, len(as))
	for i, a := range as {
		out[i] = w.queryStatus(ctx, a)
	}
	return out
}

func (w *Webhook) queryStatus(ctx context.Context, a dispatch.Assignment) dispatch.Answer {
	to, err := w.place(a)
	switch {
	case err != nil:
		return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: err.Error()}
	case to == nil:
		return dispatch.Answer{Outcome: dispatch.NotFound} // nobody was asked: the reason stays the attempt's own
	}
	header := http.Header{"User-Agent": {agent}, "Accept": {"application/json"}}
	for name, more := range w.cfg.Header {
		header[textproto.CanonicalMIMEHeaderKey(name)] = more
	}
	answer := classifyStatus(w.client.do(ctx, http.MethodGet, to, header, nil, maxAnswer), time.Now())
	if answer.Outcome == dispatch.NotFound && a.Link != "" && w.cfg.StatusURL != "" {
		// A receiver may drop a location when the work is done: what its owner declared to remember is the status URL.
		a.Link = ""
		return w.queryStatus(ctx, a)
	}
	return answer
}

// place is where to ask about a message; nil when there is none.
func (w *Webhook) place(a dispatch.Assignment) (*url.URL, error) {
	if a.Link != "" {
		return location(w.client.base, a.Link)
	}
	if w.cfg.StatusURL == "" {
		return nil, nil
	}
	return url.Parse(strings.ReplaceAll(w.cfg.StatusURL, "{id}", escape(a.ID, unreserved)))
}

// maxLink bounds what is kept of a location.
const maxLink = 1000

// location resolves what a receiver named as the place to ask, which must be on
// the same host: secrets go with the question.
func location(base *url.URL, link string) (*url.URL, error) {
	to, err := base.Parse(link)
	if err != nil || len(link) > maxLink {
		return nil, fmt.Errorf("its location cannot be read")
	}
	switch {
	case !strings.EqualFold(to.Hostname(), base.Hostname()):
		return nil, fmt.Errorf("its location is on another host (%s), which is not asked", untrusted.Words(to.Host))
	case to.Scheme != base.Scheme: // as of a receiver that does not know that a proxy does the TLS
		return nil, fmt.Errorf("its location begins with %s://, not %s:// as the target, and is not asked", untrusted.Words(to.Scheme), base.Scheme)
	case portOf(to) != portOf(base):
		return nil, fmt.Errorf("its location is on another host (%s), which is not asked", untrusted.Words(to.Host))
	case to.User != nil:
		return nil, fmt.Errorf("its location has a user or password, and is not asked")
	}
	to.Fragment = ""
	return to, nil
}

// portOf is the port of a URL, also when it is left out.
func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}
