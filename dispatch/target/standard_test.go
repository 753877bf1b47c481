package target_test

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
)

// TestStandardWebhooks: the specification's own library accepts what is signed by default, and this package's Verify what
// that library signs.
func TestStandardWebhooks(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	encoded := base64.StdEncoding.EncodeToString(key)
	for name, c := range map[string]struct {
		secret string
		theirs func() (*standardwebhooks.Webhook, error)
	}{
		"with the prefix":    {"whsec_" + encoded, func() (*standardwebhooks.Webhook, error) { return standardwebhooks.NewWebhook("whsec_" + encoded) }},
		"without the prefix": {encoded, func() (*standardwebhooks.Webhook, error) { return standardwebhooks.NewWebhook(encoded) }},
		"any text": {"a secret of some length", func() (*standardwebhooks.Webhook, error) {
			return standardwebhooks.NewWebhookRaw([]byte("a secret of some length"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := c.theirs()
			if err != nil {
				t.Fatal(err)
			}
			other, err := standardwebhooks.NewWebhookRaw([]byte("another secret"))
			if err != nil {
				t.Fatal(err)
			}
			at := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = theirs.Verify(body, r.Header)
				}
				if err != nil {
					t.Errorf("not accepted: %v", err)
				}
				if other.Verify(body, r.Header) == nil || theirs.Verify(append(body, '!'), r.Header) == nil {
					t.Error("another secret, or another body, is accepted")
				}
				if id := r.Header.Get("webhook-id"); id != "id 1%25" || r.Header.Get("Idempotency-Key") != id {
					t.Errorf("webhook-id %q", id)
				}
				if err := target.Verify([]byte(c.secret), r.Header, body, time.Now(), time.Hour); err != nil {
					t.Errorf("Verify: %v", err)
				}
			})
			hook := webhook(t, target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: at}, Secret: []byte(c.secret)})
			for _, payload := range []string{"", "hello", "{\"a\": \"\u00fc\"}"} {
				if got := hook.Submit(deadline(t, time.Minute), assignment("k", "id 1%", payload)); got.Outcome != dispatch.Done {
					t.Errorf("%+v", got)
				}
			}
			now, body := time.Now(), []byte("signed by theirs")
			signature, err := theirs.Sign("msg", now, body)
			if err != nil {
				t.Fatal(err)
			}
			header := func(id, signature string) http.Header {
				h := http.Header{}
				h.Set("webhook-id", id)
				h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
				h.Set("webhook-signature", signature)
				return h
			}
			if err := target.Verify([]byte(c.secret), header("msg", "v1,bm90IGl0 "+signature), body, now, time.Minute); err != nil {
				t.Errorf("one of several signatures: %v", err)
			}
			for what, err := range map[string]error{
				"another id":     target.Verify([]byte(c.secret), header("other", signature), body, now, time.Minute),
				"another secret": target.Verify([]byte("other"), header("msg", signature), body, now, time.Minute),
				"too old":        target.Verify([]byte(c.secret), header("msg", signature), body, now.Add(2*time.Minute), time.Minute),
				"from later":     target.Verify([]byte(c.secret), header("msg", signature), body, now.Add(-2*time.Minute), time.Minute),
				"no version":     target.Verify([]byte(c.secret), header("msg", "v1,"), body, now, time.Minute),
			} {
				if !errors.Is(err, target.ErrSignature) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
