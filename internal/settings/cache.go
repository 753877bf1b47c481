package settings

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/source"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
)

// Cache is a peer of a cache, from the file or from flags.
type Cache struct {
	// URL is where the other peers reach this one, and its name; API is where
	// clients do. Both tcp://HOST:PORT.
	URL string `yaml:"url"`
	API string `yaml:"api"`
	// BindURL and BindAPI are where to listen, if that is elsewhere.
	BindURL string `yaml:"bind_url"`
	BindAPI string `yaml:"bind_api"`
	// Peers of the cluster; this one may be among them.
	Peers []CachePeer `yaml:"peers"`
	// Join: this peer is to be added to a cluster that runs.
	Join bool `yaml:"join"`
	// One of these is where the values come from; without one, from other peers.
	Exec   *CacheExec `yaml:"exec"`
	Origin *Origin    `yaml:"origin"`
	// Data is a directory that keeps copies across restarts. Default: none.
	Data string `yaml:"data"`

	// TTL is how long a value is fresh if the origin does not say. Default 1h.
	TTL strict.Duration `yaml:"ttl"`
	// FetchTimeout is how long the source may take. Default 1m.
	FetchTimeout strict.Duration `yaml:"fetch_timeout"`
	// Fetches is how many run here at once. Default 64.
	Fetches int `yaml:"fetches"`
	// Jitter is the part of the TTL that is taken off at random. Default 0.05.
	Jitter *float64 `yaml:"jitter"`
	// AnnounceTimeout is how long a silent peer that fetches is waited for. Default 2s.
	AnnounceTimeout strict.Duration `yaml:"announce_timeout"`

	// MaxBytes, MaxKeys, MaxKey, MaxValue and MaxWaiting are bounds. Default 256MiB,
	// 1000000, 1KiB, 16MiB and 10000.
	MaxBytes   strict.Size `yaml:"max_bytes"`
	MaxKeys    int         `yaml:"max_keys"`
	MaxKey     strict.Size `yaml:"max_key"`
	MaxValue   strict.Size `yaml:"max_value"`
	MaxWaiting int         `yaml:"max_waiting"`

	// SecretFile has the secret that peers authenticate their messages with.
	SecretFile string `yaml:"secret_file"`
	// CurveKeyFile has this peer's CURVE key pair, see cache keygen. CurvePeers are the
	// public keys of the other peers by their urls, those to be added later too, and
	// CurveClients those of clients.
	CurveKeyFile string            `yaml:"curve_key_file"`
	CurvePeers   map[string]string `yaml:"curve_peers"`
	CurveClients []string          `yaml:"curve_clients"`
	// Insecure allows addresses that other hosts reach without CURVE.
	Insecure bool `yaml:"insecure"`
	// Mixed: some peers are of the system that this one is compatible with.
	Mixed bool `yaml:"mixed"`
	// ContentType of the values over HTTP. Default application/octet-stream.
	ContentType string `yaml:"content_type"`
}

// CachePeer is a member of the cluster.
type CachePeer struct {
	URL string `yaml:"url"`
	API string `yaml:"api"`
}

// CacheExec is a program that has the values.
type CacheExec struct {
	Command []string `yaml:"command"`
}

// Origin is a URL that has the values.
type Origin struct {
	URL       string            `yaml:"url" secret:"url"`
	TokenFile string            `yaml:"token_file"`
	CAFile    string            `yaml:"ca_file"`
	Headers   map[string]string `yaml:"headers" secret:"all"`
	// HeaderFiles have the values of headers that are secrets.
	HeaderFiles map[string]string `yaml:"header_files"`
}

// members are the peers with this one among them.
func (c *Cache) members() []protocol.Member {
	out := make([]protocol.Member, 0, len(c.Peers)+1)
	own := protocol.Member{URL: c.URL, API: c.API}
	for _, p := range c.Peers {
		if m := (protocol.Member{URL: p.URL, API: p.API}); m != own {
			out = append(out, m)
		}
	}
	return append(out, own)
}

// timings are those that can be chosen; the announcements follow their timeout.
func (c *Cache) timings() protocol.Timings {
	return protocol.Timings{
		TTL: time.Duration(c.TTL), Fetch: time.Duration(c.FetchTimeout),
		Source: time.Duration(c.AnnounceTimeout), Announce: time.Duration(c.AnnounceTimeout) / 2,
	}
}

// Check refuses what can be refused before anything is opened; files are read.
func (c *Cache) Check() error {
	cfg, err := c.Peer(nil)
	if err != nil {
		return err
	}
	if err := api.CheckMediaType(c.ContentType); err != nil {
		return err
	}
	return cfg.Validate()
}

// Peer is what the configuration says for the peer, but its storage.
func (c *Cache) Peer(log *slog.Logger) (cache.Config, error) {
	out := cache.Config{
		Self: c.URL, Members: c.members(), Join: c.Join, BindURL: c.BindURL, BindAPI: c.BindAPI,
		Fetches: c.Fetches, Timings: c.timings(), Insecure: c.Insecure, Mixed: c.Mixed,
		MaxBytes: int64(c.MaxBytes), MaxKeys: c.MaxKeys, MaxKey: int(c.MaxKey), MaxValue: int(c.MaxValue), MaxWaiting: c.MaxWaiting,
		Log: log,
	}
	if c.URL == "" || c.API == "" {
		return out, usage.Errorf("url and api are missing: where do other peers and clients reach this one? Both are tcp://HOST:PORT")
	}
	if c.Jitter != nil {
		if *c.Jitter < 0 {
			return out, usage.Errorf("a jitter of %v: use 0 to 0.5", *c.Jitter)
		}
		if out.Jitter = *c.Jitter; out.Jitter == 0 {
			out.Jitter = -1 // the peer's word for none
		}
	}
	var err error
	if out.Source, err = c.source(); err != nil {
		return out, err
	}
	if c.SecretFile != "" {
		if out.Secret, err = SecretFile(c.SecretFile); err != nil {
			return out, err
		}
	}
	out.Curve, err = c.curve()
	return out, err
}

// source is where the values come from; nil: from other peers alone.
func (c *Cache) source() (cache.Source, error) {
	maxTTL := c.timings().WithDefaults().MaxTTL
	switch {
	case c.Exec != nil && c.Origin != nil:
		return nil, usage.Errorf("the values come from a program or from an origin, not from both")
	case c.Exec != nil:
		return source.Exec(source.ExecConfig{Command: c.Exec.Command, MaxValue: int(c.MaxValue)})
	case c.Origin == nil:
		return nil, nil
	}
	o := source.URLConfig{URL: c.Origin.URL, Header: http.Header{}, MaxValue: int(c.MaxValue), MaxTTL: maxTTL}
	headers, err := secretHeaders(c.Origin.Headers, c.Origin.HeaderFiles)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		o.Header[name] = []string{value}
	}
	if c.Origin.TokenFile != "" {
		if _, twice := o.Header["Authorization"]; twice {
			return nil, usage.Errorf("the header Authorization stands in headers, and is what token_file is for; use one of them")
		}
		token, err := SecretFile(c.Origin.TokenFile)
		if err != nil {
			return nil, err
		}
		o.Header["Authorization"] = []string{"Bearer " + string(token)}
	}
	if c.Origin.CAFile != "" {
		pem, err := os.ReadFile(c.Origin.CAFile)
		if err != nil {
			return nil, usage.Errorf("ca file: %v", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, usage.Errorf("ca file %s has no certificate", c.Origin.CAFile)
		}
		o.Client = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		}}
	}
	return source.URL(o)
}

// curve is who may talk to this peer; nil: everybody.
func (c *Cache) curve() (*cache.Curve, error) {
	if c.CurveKeyFile == "" {
		if len(c.CurveClients)+len(c.CurvePeers) > 0 {
			return nil, usage.Errorf("public keys of others are of no use without a key file of this peer; see: understudy cache keygen")
		}
		return nil, nil
	}
	key, err := ReadCurveKey(c.CurveKeyFile)
	if err != nil {
		return nil, err
	}
	out := &cache.Curve{Key: key, Peers: map[string][32]byte{}}
	for url, text := range c.CurvePeers {
		if out.Peers[url], err = zmtp.DecodeKey(text); err != nil {
			return nil, usage.Errorf("the key of peer %s: %v", url, err)
		}
	}
	for _, text := range c.CurveClients {
		public, err := zmtp.DecodeKey(text)
		if err != nil {
			return nil, usage.Errorf("the key of a client: %v", err)
		}
		out.Clients = append(out.Clients, public)
	}
	return out, nil
}
