package settings

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/origin"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// Cache is a peer of a cache, from the file or from flags.
type Cache struct {
	URL     string      `yaml:"url" help:"'ADDRESS' at which other peers reach this one, tcp://HOST:PORT; also its name"`
	API     string      `yaml:"api" help:"'ADDRESS' at which clients reach this one, tcp://HOST:PORT"`
	BindURL string      `yaml:"bind_url" more:"yes" help:"listen for peers on this 'ADDRESS' (default: url)"`
	BindAPI string      `yaml:"bind_api" more:"yes" help:"listen for clients on this 'ADDRESS' (default: api)"`
	Peers   []CachePeer `yaml:"peers" help:"members of the cluster; this peer may be among them"`
	_       struct{}    `gone:"join"`
	Origin  *Origin     `yaml:"origin" help:"fetch values from a URL"`
	Exec    *CacheExec  `yaml:"exec" help:"or fetch values with a program"`
	Data    string      `yaml:"data" help:"keep copies across restarts in this 'DIRECTORY' (default: in memory only)"`

	TTL             time.Duration `yaml:"ttl" default:"1h" help:"how long a value is fresh, from the start of its fetch, unless the origin says; at least 1s"`
	FetchTimeout    time.Duration `yaml:"fetch_timeout" default:"1m" help:"deadline of one fetch"`
	Fetches         int           `yaml:"fetches" more:"yes" default:"64" help:"fetches at once; more wait"`
	Jitter          *float64      `yaml:"jitter" more:"yes" default:"0.05" help:"shorten each TTL by a random share, at most this one (0 to 0.5)"`
	AnnounceTimeout time.Duration `yaml:"announce_timeout" more:"yes" default:"2s" help:"give up on a fetching peer that has been silent this long; at least 600ms, the same on every peer"`

	MaxBytes   strictyaml.Size `yaml:"max_bytes" default:"256MiB" help:"hold at most this many bytes of keys and values in memory"`
	MaxKeys    int             `yaml:"max_keys" more:"yes" default:"1000000" help:"hold at most this many keys"`
	MaxKey     strictyaml.Size `yaml:"max_key" more:"yes" default:"1KiB" help:"refuse longer keys"`
	MaxValue   strictyaml.Size `yaml:"max_value" more:"yes" default:"16MiB" help:"refuse larger values"`
	MaxWaiting int             `yaml:"max_waiting" more:"yes" default:"10000" help:"let at most this many requests wait"`

	SecretFile   string            `yaml:"secret_file" more:"yes" help:"authenticate messages between peers with the secret in this 'FILE', 16 to 1024 bytes, the same on every peer; it encrypts nothing"`
	CurveKeyFile string            `yaml:"curve_key_file" help:"encrypt and authenticate with the CURVE key pair in this 'FILE'; see \"cache keygen\""`
	CurvePeers   map[string]string `yaml:"curve_peers" help:"public keys of the other peers by URL, including peers to be added later"`
	CurveClients []string          `yaml:"curve_clients" flag:"curve-client" more:"yes" help:"public 'KEY' of a client that may ask; repeat for more"`
	Insecure     bool              `yaml:"insecure" more:"yes" help:"allow addresses that other hosts reach without CURVE keys"`
	Mixed        bool              `yaml:"mixed" more:"yes" help:"some peers run the system this one is compatible with: two fetches of a key can then overlap"`
	ContentType  string            `yaml:"content_type" more:"yes" default:"application/octet-stream" help:"media 'TYPE' of values over HTTP"`
}

// CachePeer is a member of the cluster.
type CachePeer struct {
	URL string `yaml:"url" help:"where other peers reach it"`
	API string `yaml:"api" help:"where clients reach it"`
}

// CacheExec is a program that has the values.
type CacheExec struct {
	Command []string `yaml:"command" help:"the program, run without a shell; {key} is the key, standard output is the value, exit 66 means that there is none"`
}

// Origin is a URL that has the values.
type Origin struct {
	URL         string            `yaml:"url" secret:"url" flag:"origin-url" flagwas:"source-url" help:"fetch values from this 'URL'; {key} is the key, percent-encoded; {key+} keeps slashes"`
	TokenFile   string            `yaml:"token_file" flag:"origin-token-file" flagwas:"source-token-file" more:"yes" help:"send the bearer token in this 'FILE'"`
	CAFile      string            `yaml:"ca_file" flag:"origin-ca-file" flagwas:"source-ca-file" more:"yes" help:"trust the certificates in this 'FILE', not the system's"`
	Headers     map[string]string `yaml:"headers" secret:"all" help:"more headers"`
	HeaderFiles map[string]string `yaml:"header_files" help:"secret headers: the file with the value of each"`
}

// Members are the peers with this one among them.
func (c *Cache) Members() []protocol.Member {
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
		TTL: c.TTL, FetchTimeout: c.FetchTimeout,
		AnnounceTimeout: c.AnnounceTimeout, Announce: c.AnnounceTimeout / 2,
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
		Self: c.URL, Members: c.Members(), BindURL: c.BindURL, BindAPI: c.BindAPI,
		Fetches: c.Fetches, Timings: c.timings(), Insecure: c.Insecure, Mixed: c.Mixed,
		MaxBytes: int64(c.MaxBytes), MaxKeys: c.MaxKeys, MaxKey: int(c.MaxKey), MaxValue: int(c.MaxValue), MaxWaiting: c.MaxWaiting,
		Logger: log,
	}
	if c.URL == "" || c.API == "" {
		return out, usererr.Errorf("url and api are missing: where do other peers and clients reach this one? Both are tcp://HOST:PORT")
	}
	if c.Jitter != nil {
		if *c.Jitter < 0 {
			return out, usererr.Errorf("a jitter of %v: use 0 to 0.5", *c.Jitter)
		}
		if out.Jitter = *c.Jitter; out.Jitter == 0 {
			out.Jitter = -1 // the peer's word for none
		}
	}
	var err error
	if out.Origin, err = c.origin(); err != nil {
		return out, err
	}
	if c.SecretFile != "" {
		secret, err := ReadSecret("secret_file", c.SecretFile)
		if err != nil {
			return out, err
		}
		out.Secret = []byte(secret)
	}
	out.Curve, err = c.curve()
	return out, err
}

// origin is where the values come from; nil: from other peers alone.
func (c *Cache) origin() (cache.Origin, error) {
	maxTTL := c.timings().WithDefaults().MaxTTL
	switch {
	case c.Exec != nil && c.Origin != nil:
		return nil, usererr.Errorf("the values come from a program or from an origin, not from both")
	case c.Exec != nil:
		return origin.Exec(origin.ExecConfig{Command: c.Exec.Command, MaxValue: int(c.MaxValue)})
	case c.Origin == nil:
		return nil, nil
	}
	o := origin.URLConfig{URL: c.Origin.URL, Header: http.Header{}, MaxValue: int(c.MaxValue), MaxTTL: maxTTL}
	headers, err := secretHeaders(c.Origin.Headers, c.Origin.HeaderFiles)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		o.Header[name] = []string{value}
	}
	if c.Origin.TokenFile != "" {
		if _, twice := o.Header["Authorization"]; twice {
			return nil, usererr.Errorf("the header Authorization stands in headers, and is what token_file is for; use one of them")
		}
		token, err := ReadSecret("token_file", c.Origin.TokenFile)
		if err != nil {
			return nil, err
		}
		o.Header["Authorization"] = []string{"Bearer " + token}
	}
	if c.Origin.CAFile != "" {
		trusted, err := target.Trust(c.Origin.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		o.Client = &http.Client{Transport: origin.Transport(trusted)}
	}
	return origin.URL(o)
}

// curve is who may talk to this peer; nil: everyone.
func (c *Cache) curve() (*cache.Curve, error) {
	if c.CurveKeyFile == "" {
		if len(c.CurveClients)+len(c.CurvePeers) > 0 {
			return nil, usererr.Errorf("public keys of others are of no use without a key file of this peer; see: understudy cache keygen")
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
			return nil, usererr.Errorf("the key of peer %s: %v", url, err)
		}
	}
	for _, text := range c.CurveClients {
		public, err := zmtp.DecodeKey(text)
		if err != nil {
			return nil, usererr.Errorf("the key of a client: %v", err)
		}
		out.Clients = append(out.Clients, public)
	}
	return out, nil
}
