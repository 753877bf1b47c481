package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// httpClient follows no redirects, so that the token goes nowhere else, and comes back to a server
// that has had too many requests.
func httpClient(by http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     retryTransport{by},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// leastPause is between two tries of a request that came too soon.
const leastPause = 100 * time.Millisecond

// maxDrain is how many bytes of an answer are read that says to come again.
const maxDrain = 64 << 10

// notSent is the error of a request of which nothing was sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// roundTripOnce returns notSent if there was no connection on which it could have been sent.
func (p retryTransport) roundTripOnce(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	answer, err := p.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil || connected.Load() {
		return answer, err
	}
	if tlsErr, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(tlsErr.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch // as net/http says it
	}
	return nil, notSent{err}
}

// retryTransport retries a request that was rate-limited, when the server says, if that is before the deadline of its
// context. One without a deadline watches: see waitRetryAfter.
type retryTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p retryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := p.roundTripOnce(r)
		if err != nil || answer.StatusCode != http.StatusTooManyRequests || r.Body != nil && r.GetBody == nil {
			return answer, err
		}
		seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 16)
		wait := max(time.Duration(seconds)*time.Second, leastPause) // what says 0 is not asked in a loop
		if ends, ok := r.Context().Deadline(); err != nil || !ok || time.Until(ends) <= wait {
			return answer, nil // the caller is told
		}
		_, _ = io.CopyN(io.Discard, answer.Body, maxDrain) // read to its end, the connection can be used again
		answer.Body.Close()
		if !backoff.Sleep(r.Context(), wait) {
			return nil, context.Cause(r.Context())
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// maxRetryAfter is how long at most a command that watches waits because the server has had too many requests.
const maxRetryAfter = time.Minute

// waitRetryAfter reports whether err says that the server has had too many requests, and then waits as long as it says, and a
// bit more: those who were refused together do not come back together.
func waitRetryAfter(ctx context.Context, err error) bool {
	after, ok := errors.AsType[tooManyError](apiError(err))
	if !ok {
		return false
	}
	wait := min(max(time.Duration(after)*time.Millisecond, leastPause), maxRetryAfter)
	backoff.Sleep(ctx, wait+backoff.Random(time.Second))
	return true
}
