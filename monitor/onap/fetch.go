package onap

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/lease"
)

// DefaultFile is where the local configuration is expected.
const DefaultFile = "/app-config/application_config.yaml"

// ErrNoConfig: there is no configuration to be had; the error says what was tried.
var ErrNoConfig = errors.New("onap: no configuration")

// FetcherConfig says where a configuration may be. Of the environment it reads
// CBS_CLIENT_CONFIG_PATH (default [DefaultFile]), CONFIG_BINDING_SERVICE (a host, or
// host:port), HOSTNAME, DCAE_CA_CERTPATH and CBS_HTBT_JSON.
type FetcherConfig struct {
	// Env is the environment; os.LookupEnv by default.
	Env func(string) (string, bool)
	// Decode reads the local file, which is YAML; nil: only JSON.
	Decode Decode
	// File, when not "", is all that is read.
	File string
	// Last is the origin of the configuration in force: lesser ones do not replace it.
	Last string

	// Timeout of a request, default 10 s; Attempts, default 4; Backoff before the
	// second attempt, default 500 ms, doubled each time up to 10 s, less up to a half by chance.
	Timeout  time.Duration
	Attempts int
	Backoff  time.Duration
	// MaxBytes of a configuration, default 16 MiB.
	MaxBytes int64
	// Logger is told of what was tried in vain; nil: nobody.
	Logger *slog.Logger
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c FetcherConfig) Validate() error {
	if c.Timeout < 0 || c.Attempts < 0 || c.Backoff < 0 || c.MaxBytes < 0 {
		return invalid("fetcher: times and numbers cannot be negative")
	}
	return nil
}

// Fetcher fetches configurations. Safe for use by many goroutines.
type Fetcher struct {
	cfg FetcherConfig

	mu     sync.Mutex
	last   rank              // the best that has answered
	logged map[string]string // what was last said of an origin
}

// rank of an origin: a lower one is better.
type rank int

const (
	local rank = iota
	service
	fallback
	anything
)

// NewFetcher makes one.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Env == nil {
		cfg.Env = os.LookupEnv
	}
	cfg.Timeout, cfg.Backoff = cmp.Or(cfg.Timeout, 10*time.Second), cmp.Or(cfg.Backoff, 500*time.Millisecond)
	cfg.Attempts, cfg.MaxBytes = cmp.Or(cfg.Attempts, 4), cmp.Or(cfg.MaxBytes, 16<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	f := &Fetcher{cfg: cfg, last: anything, logged: map[string]string{}}
	for _, s := range f.sources() {
		if cfg.Last != "" && s.origin == cfg.Last {
			f.last = s.rank
		}
	}
	return f, nil
}

// source is one place where a configuration may be.
type source struct {
	rank   rank
	origin string
	read   func(context.Context) ([]byte, error)
	decode Decode
	// passes: if this is broken, and not only if it is missing, the next is tried.
	passes bool
}

func (f *Fetcher) sources() []source {
	file := func(r rank, path string, decode Decode, passes bool) source {
		return source{r, "file:" + path, func(context.Context) ([]byte, error) { return f.file(path) }, decode, passes}
	}
	if f.cfg.File != "" {
		return []source{file(local, f.cfg.File, f.cfg.Decode, false)}
	}
	out := []source{file(local, cmp.Or(f.env("CBS_CLIENT_CONFIG_PATH"), DefaultFile), f.cfg.Decode, true)}
	if host := f.env("CONFIG_BINDING_SERVICE"); host != "" {
		at := f.address(host)
		out = append(out, source{service, "cbs:" + at, func(ctx context.Context) ([]byte, error) { return f.get(ctx, at) }, nil, false})
	}
	if path := f.env("CBS_HTBT_JSON"); path != "" {
		out = append(out, file(fallback, path, nil, false))
	}
	return out
}

func (f *Fetcher) env(name string) string {
	value, _ := f.cfg.Env(name)
	return value
}

// address of the component's configuration at the Config Binding Service.
func (f *Fetcher) address(host string) string {
	scheme, port := "http", "10000"
	if f.env("DCAE_CA_CERTPATH") != "" {
		scheme, port = "https", "10443"
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	u := url.URL{Scheme: scheme, Host: host}
	return u.JoinPath("service_component", url.PathEscape(f.env("HOSTNAME"))).String()
}

// Fetch returns the configuration and where it came from ("file:…" or "cbs:…").
// [ErrNoConfig] if none could be had, [lease.ErrInvalid] if it is broken or empty:
// keep the last one.
func (f *Fetcher) Fetch(ctx context.Context) (Config, string, error) {
	f.mu.Lock()
	best := f.last
	f.mu.Unlock()
	tried := ErrNoConfig
	for _, s := range f.sources() {
		if s.rank > best {
			tried = fmt.Errorf("%w; %s is not used, because a better one has answered before", tried, s.origin)
			continue
		}
		data, err := s.read(ctx)
		var c Config
		if err == nil {
			c, err = f.parse(data, s.decode)
		}
		if err == nil {
			f.mu.Lock()
			f.last = min(f.last, s.rank)
			delete(f.logged, s.origin)
			f.mu.Unlock()
			c.Monitor.Origin = s.origin
			return c, s.origin, nil
		}
		if broken := errors.Is(err, lease.ErrInvalid); broken && !s.passes {
			return Config{}, s.origin, fmt.Errorf("%s: %w", s.origin, err)
		}
		if !errors.Is(err, fs.ErrNotExist) && f.isNews(s.origin, err.Error()) {
			f.cfg.Logger.WarnContext(ctx, "no configuration from here", "origin", s.origin, "error", err)
		}
		tried = fmt.Errorf("%w; %s: %w", tried, s.origin, err)
		if ctx.Err() != nil {
			break
		}
	}
	unset := slices.DeleteFunc([]string{"CONFIG_BINDING_SERVICE", "HOSTNAME"}, func(name string) bool { return f.env(name) != "" })
	if len(unset) > 0 && f.env("CBS_HTBT_JSON") == "" && f.cfg.File == "" {
		tried = fmt.Errorf("%w; not set in the environment: %s, nor CBS_HTBT_JSON, the path of a file", tried, strings.Join(unset, " and "))
	}
	return Config{}, "", tried
}

// isNews reports whether something else than this was last said of an origin: it is tried again and again.
func (f *Fetcher) isNews(origin, said string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.logged[origin] != said
	f.logged[origin] = said
	return news
}

func (f *Fetcher) parse(data []byte, decode Decode) (Config, error) {
	if decode != nil {
		root, err := decoded(data, decode)
		if err != nil {
			return Config{}, invalid("the configuration %w", err)
		}
		return parseObject(root, f.cfg.Env)
	}
	return Parse(data, f.cfg.Env)
}

func (f *Fetcher) file(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.bounded(file)
}

func (f *Fetcher) bounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, f.cfg.MaxBytes+1))
	if err == nil && int64(len(data)) > f.cfg.MaxBytes {
		return nil, invalid("the configuration has more than %d bytes", f.cfg.MaxBytes)
	}
	return data, err
}

// errAgain marks what may be well at another attempt.
var errAgain = errors.New("not now")

// get asks the Config Binding Service, again and again.
func (f *Fetcher) get(ctx context.Context, at string) ([]byte, error) {
	if f.env("HOSTNAME") == "" {
		return nil, errors.New("HOSTNAME, the component's name, is not set in the environment")
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	retry := backoff.Backoff{First: f.cfg.Backoff, Most: 10 * time.Second}
	for attempt := 1; ; attempt++ {
		data, err := f.once(ctx, client, at)
		if err == nil || !errors.Is(err, errAgain) || attempt >= f.cfg.Attempts {
			return data, err
		}
		if !retry.Wait(ctx) {
			return nil, fmt.Errorf("%w; the last attempt: %w", context.Cause(ctx), err)
		}
	}
}

func (f *Fetcher) once(ctx context.Context, client *http.Client, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.New("CONFIG_BINDING_SERVICE is not a valid host name")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
	case code == http.StatusNotFound:
		return nil, fmt.Errorf("it knows no component %q", f.env("HOSTNAME"))
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return nil, fmt.Errorf("%w: it answered %d", errAgain, code)
	default:
		return nil, fmt.Errorf("it answered %d", code)
	}
	data, err := f.bounded(resp.Body)
	if err != nil && !errors.Is(err, lease.ErrInvalid) {
		return nil, fmt.Errorf("%w: its answer broke off: %w", errAgain, err)
	}
	return data, err
}

// client is made again for each fetch: the certificate may have been replaced.
func (f *Fetcher) client() (*http.Client, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if path := f.env("DCAE_CA_CERTPATH"); path != "" {
		pem, err := f.file(path)
		if err != nil {
			return nil, fmt.Errorf("DCAE_CA_CERTPATH: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("DCAE_CA_CERTPATH: no certificate in PEM form is in that file")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
