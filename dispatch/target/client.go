package target

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// HTTPConfig is what all targets that are reached by HTTP have in common. The
// environment's proxies are used, but never for loopback.
type HTTPConfig struct {
	// URL of the target: http or https, without user or password. Required.
	URL string
	// CAFile has the certificates (PEM) that are trusted instead of the system's.
	CAFile string
	// TokenFile has the token that is sent as "Authorization: Bearer TOKEN". It
	// is read again when it has changed. Default: no such header.
	TokenFile string
	// Concurrency is how many connections are kept open for the next request.
	// Default 64; that of the dispatcher fits.
	Concurrency int
	// IdleTimeout closes connections that nobody has used for so long. It should
	// be shorter than the target's own: a request that meets the target closing
	// is lost without a trace. Default 1 s.
	IdleTimeout time.Duration
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Second)
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c HTTPConfig) Validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the target's URL cannot be read", lease.ErrInvalid) // the error would quote a password
	case u.User != nil:
		return fmt.Errorf("%w: the target's URL has a user or password; use a token file", lease.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Fragment != "":
		return fmt.Errorf("%w: the target's URL is not http://HOST… or https://HOST…", lease.ErrInvalid) // it may be a secret
	case c.Concurrency < 0 || c.IdleTimeout < 0:
		return fmt.Errorf("%w: concurrency and idle timeout cannot be negative", lease.ErrInvalid)
	}
	return nil
}

// Bounds of what is read of an answer.
const (
	maxAnswer   = 64 << 10
	maxStatuses = 8 << 20
)

// client sends one request at a time exactly once. It uses the transport without
// http.Client: no redirects, no cookies.
type client struct {
	base      *url.URL
	transport *http.Transport
	token     *tokenFile
	secrets   []string    // that a request may carry beside the token
	clock     lease.Clock // continues while this process, or its host, is held up
}

func newClient(c HTTPConfig) (*client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	if base.Path == "" {
		base.Path = "/" // otherwise paths joined to it have none at their beginning
	}
	cl := &client{base: base, clock: lease.BootClock()}
	cl.transport = &http.Transport{
		// Leaves loopback alone.
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            cl.dial,
		MaxIdleConns:           c.Concurrency,
		MaxIdleConnsPerHost:    c.Concurrency,
		IdleConnTimeout:        c.IdleTimeout,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxAnswer,
		DisableCompression:     true,
	}
	if c.CAFile != "" {
		if cl.transport.TLSClientConfig, err = Trust(c.CAFile); err != nil {
			return nil, err
		}
	}
	if c.TokenFile != "" {
		cl.token = &tokenFile{path: c.TokenFile}
		if _, err := cl.token.get(); err != nil {
			return nil, fmt.Errorf("%w: %w", lease.ErrInvalid, err)
		}
	}
	return cl, nil
}

// Trust is a client's TLS that trusts the certificates (PEM) in a file, and nothing
// else. Its errors wrap [lease.ErrInvalid].
func Trust(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: certificates: %w", lease.ErrInvalid, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s has no certificate", lease.ErrInvalid, file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (c *client) place() string {
	return c.base.Scheme + "://" + c.base.Host + strings.TrimSuffix(c.base.Path, "/")
}

var errLate = errors.New("this process was held up past the request's deadline")

// countingConn counts what was written, so that it can be told whether a request
// has left at all, and writes nothing past the deadline of its request: the timer of a
// process that was held up may fire later than the process continues.
type countingConn struct {
	net.Conn
	clock   lease.Clock
	written atomic.Int64
	until   atomic.Int64 // a reading of the clock; 0 for no deadline
}

func (c *countingConn) Write(p []byte) (int, error) {
	if until := c.until.Load(); until != 0 && c.clock.Now() > time.Duration(until) {
		return 0, errLate
	}
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, clock: c.clock}, nil
}

// reply is an answer by HTTP, or the lack of one.
type reply struct {
	status int // 0 when there was none
	header http.Header
	body   []byte
	// unsent: certainly nothing of the request has reached the target.
	unsent bool
	// err is what went wrong, with or without a status: a body that broke off.
	err error
	// secrets are those of the request, which the target may repeat.
	secrets []string
}

// minSecret is the shortest text that is hidden: hiding shorter ones would tear words apart.
const minSecret = 8

// words is [untrusted.Words] of what the target said, without the request's secrets.
func (r reply) words(text string) string {
	var pairs []string
	for _, s := range r.secrets {
		if len(s) >= minSecret {
			pairs = append(pairs, s, secret.Hidden)
		}
	}
	return untrusted.Words(strings.NewReplacer(pairs...).Replace(text))
}

// maxTries is how often a request that met a closed connection tries another one.
const maxTries = 3

// do sends a request and reads up to most bytes of its answer.
func (c *client) do(ctx context.Context, method string, to *url.URL, header http.Header, body []byte, most int) reply {
	secrets := c.secrets
	if c.token != nil {
		token, err := c.token.get()
		if err != nil {
			return reply{unsent: true, err: err}
		}
		secrets = append([]string{token}, secrets...)
		header["Authorization"] = []string{"Bearer " + token}
	}
	for try := 1; ; try++ {
		r, reused := c.once(ctx, method, to, header, body, most)
		if r.unsent && reused && try < maxTries && ctx.Err() == nil {
			continue
		}
		r.secrets = secrets
		return r
	}
}

func (c *client) once(ctx context.Context, method string, to *url.URL, header http.Header, body []byte, most int) (r reply, reused bool) {
	var conn *countingConn
	var before, until int64
	got := false
	if deadline, ok := ctx.Deadline(); ok {
		until = int64(c.clock.Now() + time.Until(deadline))
	}
	trace := httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		got, reused = true, i.Reused
		raw := i.Conn
		if t, ok := raw.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		if conn, _ = raw.(*countingConn); conn != nil {
			before = conn.written.Load()
			conn.until.Store(until)
		}
	}}
	req := (&http.Request{
		Method: method, URL: to, Header: header, Host: to.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(httptrace.WithClientTrace(ctx, &trace))
	if method != http.MethodGet {
		// Without GetBody it cannot be rewound: otherwise the transport would send
		// a request that has an Idempotency-Key again by itself. It is of a kind
		// that the transport knows, and writes together with the header.
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		// After the end of ctx the transport may be writing still.
		unsent := !got || conn != nil && ctx.Err() == nil && conn.written.Load() == before
		return reply{err: err, unsent: unsent}, reused
	}
	untrusted.CloseUnaskedUpgrade(resp)
	r = reply{status: resp.StatusCode, header: resp.Header}
	r.body, r.err = read(resp.Body, most)
	return r, reused
}

var errLong = errors.New("the answer is too long")

// read reads a body to its end, so that its connection can be used again, or
// closes the connection if there are more than most bytes.
func read(body io.ReadCloser, most int) ([]byte, error) {
	defer body.Close()
	if body == http.NoBody {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	if len(data) > most {
		return data[:most], errLong
	}
	return data, err
}

// broken is the outcome of a reply without a usable answer; ok is false when there is one.
func (r reply) broken() (a dispatch.Answer, ok bool) {
	var badCert *tls.CertificateVerificationError
	switch {
	case r.err == nil, r.status != 0 && errors.Is(r.err, errLong):
		return a, false
	case r.status != 0:
		return dispatch.Answer{Outcome: dispatch.Uncertain, Code: r.status, Detail: "the answer broke off: " + r.words(r.err.Error())}, true
	case !r.unsent:
		return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "no answer: " + r.words(r.err.Error())}, true
	case errors.As(r.err, &badCert), errors.Is(r.err, errToken):
		return dispatch.Answer{Outcome: dispatch.Misconfigured, Detail: r.words(r.err.Error())}, true
	}
	return dispatch.Answer{Outcome: dispatch.Busy, Detail: "not sent: " + r.words(r.err.Error())}, true
}
