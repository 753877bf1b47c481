package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// chooseSide decides whether commands ask the store or a server: a flag goes before the
// environment, and with both in the environment a command asks the server if it can.
func (a *app) chooseSide() error {
	switch {
	case a.serverURL != "" && a.StoreURL != "":
		return usage.Errorf("--store and --server exclude each other: a server is on its own store")
	case a.serverURL == "" && a.StoreURL == "":
		a.serverURL, a.StoreURL = os.Getenv("UNDERSTUDY_SERVER"), os.Getenv("UNDERSTUDY_STORE")
	}
	if a.serverURL == "" {
		return nil
	}
	to, err := url.Parse(a.serverURL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return usage.Errorf("--server %q: use http://HOST:PORT or https://HOST:PORT", plain.URL(a.serverURL))
	}
	return nil
}

// needStore refuses a command that a server cannot do when there is no store.
func (a *app) needStore() error {
	if a.StoreURL == "" {
		return usage.Errorf("%s works on the store itself: give --store", a.command)
	}
	return nil
}

// remote tells whether commands ask a server.
func (a *app) remote() bool { return a.serverURL != "" }

// token is what is shown to the server; "" is nothing.
func (a *app) token() (string, error) {
	if a.tokenFile == "" {
		return os.Getenv("UNDERSTUDY_TOKEN"), nil
	}
	text, err := settings.SecretFile(a.tokenFile)
	return string(text), err
}

// server returns who asks the server. Nothing is sent yet.
func (a *app) server() (*client.Client, error) {
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: a.serverURL, Token: token, HTTP: httpClient(http.DefaultTransport)})
	if err != nil {
		return nil, usage.Errorf("--server: %v", err)
	}
	return c, nil
}

// httpClient follows no redirects, so that the token goes nowhere else, and comes back to a server
// that has had too many requests.
func httpClient(by http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     patient{by},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// leastPause is between two tries of a request that came too soon.
const leastPause = 100 * time.Millisecond

// patient sends a request again that came too soon after others, when the server says, as
// long as its context lasts.
type patient struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := p.RoundTripper.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusTooManyRequests || r.Body != nil && r.GetBody == nil {
			return answer, err
		}
		seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 16)
		pause := max(time.Duration(seconds)*time.Second, leastPause) // what says 0 is not asked in a loop
		if ends, ok := r.Context().Deadline(); err != nil || !ok || time.Until(ends) <= pause {
			return answer, nil // the caller is told
		}
		answer.Body.Close()
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-time.After(pause):
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// heardError is an error in a server's words, which counts as one of this program's.
type heardError struct {
	text string
	is   error
}

func (e heardError) Error() string { return e.text }
func (e heardError) Unwrap() error { return e.is }

// meanings of the codes of the API.
func meanings() map[string]error {
	return map[string]error{
		"vacant": elect.ErrVacant, "not_found": lease.ErrNotFound,
		"no_queue": dispatch.ErrNoQueue, "no_batch": dispatch.ErrNoBatch, "wrong_state": dispatch.ErrState,
		"no_event": monitor.ErrNoEvent, "unknown_event": monitor.ErrNoEvent, "no_source": monitor.ErrNoSource, "no_alarm": monitor.ErrNoAlarm,
		"no_primary": shard.ErrNoPrimary, "under_way": shard.ErrLocked, "changed": shard.ErrChanged, "not_done": shard.ErrFailed, "no_agent": shard.ErrNoAgent,
		"no_token":      access.ErrNotFound,
		"unsafe_timing": lease.ErrUnsafeTiming, "invalid": lease.ErrInvalid, "too_large": lease.ErrInvalid,
		"store_without_queues": usage.Err, "store_without_sources": usage.Err, "store_without_tokens": usage.Err, "no_shards": usage.Err,
		"store_unavailable": lease.ErrUnavailable, "busy": lease.ErrUnavailable, "stopping": lease.ErrUnavailable, "not_ready": lease.ErrUnavailable,
		"two_hosts": lease.ErrTwoHosts, "unknown_outcome": lease.ErrUnknown,
	}
}

// heard turns what a client returned into an error that this program knows.
func heard(err error) error {
	answer, ok := errors.AsType[*client.Error](err)
	if !ok {
		return unheard(err)
	}
	if is := meanings()[answer.Code]; is != nil {
		return heardError{answer.Error(), is}
	}
	text := fmt.Sprintf("the server refused with %d: %s", answer.Status, plain.Line(answer.Error()))
	switch {
	case answer.Code == client.NotUnderstudy && answer.Status >= http.StatusInternalServerError:
		// What stands before the server says that it is not there.
		return heardError{answer.Detail, lease.ErrUnavailable}
	case answer.Code == client.NotUnderstudy:
		return errors.New(answer.Detail + "; is it the address of a server?")
	case answer.Status == http.StatusUnauthorized:
		return errors.New(text + "; give a token with --token-file, or set UNDERSTUDY_TOKEN")
	}
	return errors.New(text)
}

// unheard is what went wrong before there was an answer.
func unheard(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return heardError{fmt.Sprintf("%v; SSL_CERT_FILE names certificates to trust", failed.Err), lease.ErrUnavailable}
	}
	return heardError{fmt.Sprintf("the server cannot be reached: %v", failed.Err), lease.ErrUnavailable}
}

// recast turns what a client returned into the view from which the server made it.
func recast[T any](from any) (out T, err error) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// orZero is a time that may be missing.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// millis is a duration that JSON has in milliseconds.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
