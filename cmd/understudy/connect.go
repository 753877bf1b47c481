package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// resolveEndpoint decides whether commands use the store or a server: a flag goes before the
// environment, and with both in the environment a command asks the server if it can.
func (a *app) resolveEndpoint() error {
	switch {
	case a.serverURL != "" && a.StoreURL != "":
		return usererr.Errorf("--store and --server exclude each other: a server is on its own store")
	case a.serverURL == "" && a.StoreURL == "":
		a.serverURL, a.StoreURL = os.Getenv("UNDERSTUDY_SERVER"), os.Getenv("UNDERSTUDY_STORE")
	}
	if a.serverURL == "" {
		return nil
	}
	to, err := url.Parse(a.serverURL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return usererr.Errorf("--server %q: use http://HOST:PORT or https://HOST:PORT", termtext.URL(a.serverURL))
	}
	return nil
}

// needStore refuses a command that a server cannot do when there is no store, and one about queues on a store that never
// keeps any, by its URL: before anything connects to a store that may be down. "batch" is the old name of "queue".
func (a *app) needStore() error {
	if a.StoreURL == "" {
		return usererr.Errorf("%s works on the store itself: give --store", a.command)
	}
	if words := strings.Fields(a.command); len(words) > 1 && (words[1] == "queue" || words[1] == "batch") {
		return a.CanKeep("queues")
	}
	return nil
}

// remote reports whether commands ask a server.
func (a *app) remote() bool { return a.serverURL != "" }

// tokenIn is what is shown to a server: the token in a file, else the one in the environment; "" is nothing.
func tokenIn(file string) (string, error) {
	if file == "" {
		return os.Getenv("UNDERSTUDY_TOKEN"), nil
	}
	return settings.ReadSecret("--token-file", file)
}

// server returns a client of the server that the flags name. Nothing is sent yet.
func (a *app) server() (*client.Client, error) {
	token, err := tokenIn(a.tokenFile)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: a.serverURL, Token: token, HTTP: httpClient(http.DefaultTransport)})
	if err != nil {
		return nil, usererr.Errorf("--server: %v", err)
	}
	return c, nil
}

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

// retryTransport retries a request that was rate-limited, when the server says, as
// long as its context lasts.
type retryTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p retryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := p.RoundTripper.RoundTrip(r)
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
		if !pause(r.Context(), wait) {
			return nil, context.Cause(r.Context())
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// millis is a duration that JSON has in milliseconds.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
