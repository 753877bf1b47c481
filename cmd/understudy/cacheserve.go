package main

import (
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/cache/source"
	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usage"
)

type cacheServeFlags struct {
	settings.Cache
	peers, curvePeers, headers []string
	sourceCmd                  string
	origin                     settings.Origin
	jitter                     float64
	http                       settings.Server // where HTTP is served, and under which protection
}

func (a *app) cacheServeCommand() *cobra.Command {
	var f cacheServeFlags
	c := &cobra.Command{
		Use:   "serve --url tcp://H:P --api tcp://H:P --peer URL,API… {--source-cmd 'PROG {key}' | --source-url URL} [flags]",
		Short: "Run a peer of a cache: a slow value is fetched by one peer for all",
		Long: `Run a peer. The peers elect, for each key, who fetches its value; every other gets a
copy. A stale copy is given at once while one peer fetches a new one. While a majority of the
peers is connected, at most one of them fetches a key at a time.

When the process of a peer that fetches ends, another takes over at once; when it is silent,
within the announce timeout. Without a majority nobody fetches, and what is there is still given.

Peers talk to each other at --url, clients ask at --api ("cache get"), and with --http any
program asks over HTTP: GET /v1/cache/KEY. There is the page, too. Addresses that other hosts
reach need CURVE keys ("cache keygen"), or --insecure. Callers over HTTP have the limits that a server
has by default.

With --source-cmd the program's standard output is the value; exit 66 says that there is none.
With --source-url {key} stands for the key, percent-encoded.

SIGINT, SIGTERM and SIGHUP stop it: fetches under way are given up, and the others know at once.`,
		Example: `  # Three peers on one host; the second and third differ in --url, --api and --http:
  understudy cache serve --url tcp://127.0.0.1:7701 --api tcp://127.0.0.1:7801 --http 127.0.0.1:7601 \
    --peer tcp://127.0.0.1:7701,tcp://127.0.0.1:7801 --peer tcp://127.0.0.1:7702,tcp://127.0.0.1:7802 \
    --peer tcp://127.0.0.1:7703,tcp://127.0.0.1:7803 --source-cmd './slow {key}' --ttl 10m
  curl http://127.0.0.1:7601/v1/cache/customer-7

  understudy cache serve --url tcp://10.0.0.1:7701 --api tcp://10.0.0.1:7801 --curve-key-file peer-1.key \
    --peer tcp://10.0.0.2:7701,tcp://10.0.0.2:7801 --curve-peer 'tcp://10.0.0.2:7701=PUBLIC-KEY' \
    --source-url 'https://origin.example/items/{key}' --data /var/lib/understudy/cache`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.complete(c.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			return server.RunCache(ctx, &a.Host, &f.Cache, &f.http)
		},
	}
	f.register(c)
	return c
}

func (f *cacheServeFlags) register(c *cobra.Command) {
	fs := c.Flags()
	f.MaxBytes, f.MaxKey, f.MaxValue = 256<<20, 1<<10, 16<<20
	fs.StringVar(&f.URL, "url", "", "`ADDRESS` at which other peers reach this one, tcp://HOST:PORT; also its name")
	fs.StringVar(&f.API, "api", "", "`ADDRESS` at which clients reach this one, tcp://HOST:PORT")
	fs.StringArrayVar(&f.peers, "peer", nil, "`URL,API` of a peer; repeat it for each, this one may be among them")
	fs.BoolVar(&f.Join, "join", false, "this peer is no member yet: it waits for \"cache peers add\" on one of the others")
	fs.StringVar(&f.BindURL, "bind-url", "", "listen for peers on this `ADDRESS` (default: that of --url)")
	fs.StringVar(&f.BindAPI, "bind-api", "", "listen for clients on this `ADDRESS` (default: that of --api)")

	fs.StringVar(&f.sourceCmd, "source-cmd", "", "fetch values with this `COMMAND`, run without a shell; {key} in it is the key")
	fs.StringVar(&f.origin.URL, "source-url", "", "fetch values from this `URL`; {key} in it is the key, percent-encoded; {key+} leaves slashes")
	fs.StringArrayVar(&f.headers, "source-header", nil, "send this header to the source's URL, `'NAME: VALUE'`; repeat it for more")
	fs.StringVar(&f.origin.TokenFile, "source-token-file", "", "send the token in this `FILE` to the source's URL, as Authorization: Bearer")
	fs.StringVar(&f.origin.CAFile, "source-ca-file", "", "trust the certificates in this `FILE` instead of the system's, for the source's URL")

	fs.StringVar(&f.Data, "data", "", "keep copies across restarts in this `DIRECTORY` (default: in memory only)")
	fs.DurationVar((*time.Duration)(&f.TTL), "ttl", time.Hour, "a value is fresh for so long, from the begin of its fetch, if its URL does not say; at least 1s")
	fs.DurationVar((*time.Duration)(&f.FetchTimeout), "fetch-timeout", time.Minute, "the source may take so long")
	fs.IntVar(&f.Fetches, "fetches", 64, "so many fetches at once; what is beyond waits")
	fs.Float64Var(&f.jitter, "jitter", 0.05, "take up to this part, 0 to 0.5, off the time to live, so that not everything expires together")
	fs.DurationVar((*time.Duration)(&f.AnnounceTimeout), "announce-timeout", 2*time.Second, "a peer that fetches and is silent for so long is given up, at least 600ms; the same on every peer")

	fs.Var(&f.MaxBytes, "max-bytes", "hold keys and values of at most so many bytes in memory, as in 256MiB")
	fs.IntVar(&f.MaxKeys, "max-keys", 1_000_000, "hold at most so many keys")
	fs.Var(&f.MaxKey, "max-key", "refuse longer keys, in bytes")
	fs.Var(&f.MaxValue, "max-value", "refuse larger values, in bytes")
	fs.IntVar(&f.MaxWaiting, "max-waiting", 10_000, "let at most so many requests wait")

	fs.StringVar(&f.SecretFile, "secret-file", "", "authenticate messages between peers with the secret in this `FILE`, 16 to 1024 bytes, the same on every peer")
	fs.StringVar(&f.CurveKeyFile, "curve-key-file", "", "encrypt and authenticate everything with the CURVE key pair in this `FILE`; see cache keygen")
	fs.StringArrayVar(&f.curvePeers, "curve-peer", nil, "public key of a peer, `URL=KEY`; repeat it for each other one, and for those to be added later")
	fs.StringArrayVar(&f.CurveClients, "curve-client", nil, "public `KEY` of a client that may ask; repeat it for more")
	fs.BoolVar(&f.Insecure, "insecure", false, "allow addresses that other hosts reach without CURVE keys")
	fs.BoolVar(&f.Mixed, "mixed", false, "some peers are of the system that this one is compatible with: two fetches of a key can overlap then")

	fs.StringVar(&f.http.Listen, "http", "", "serve HTTP, the page and /metrics on this `ADDRESS`, HOST:PORT (default: not at all)")
	fs.StringVar(&f.ContentType, "content-type", "application/octet-stream", "media `TYPE` of the values over HTTP")
	fs.StringVar(&f.http.TokenFile, "token-file", "", "requests over HTTP must carry the token in this `FILE`; needed for any address that is not loopback …")
	fs.StringVar(&f.http.TLSCert, "tls-cert", "", "… together with TLS: certificate `FILE`, PEM")
	fs.StringVar(&f.http.TLSKey, "tls-key", "", "its key `FILE`, PEM")
	fs.BoolVar(&f.http.BehindTLS, "behind-tls", false, "a proxy in front provides TLS")
}

// complete turns the flags into what the file would say, and checks it.
func (f *cacheServeFlags) complete(changed func(string) bool) error {
	if f.URL == "" || f.API == "" {
		return usage.Errorf("--url and --api are missing: where do other peers and clients reach this one? Both are tcp://HOST:PORT")
	}
	for _, text := range f.peers {
		m, err := parseMember(text)
		if err != nil {
			return err
		}
		f.Peers = append(f.Peers, settings.CachePeer{URL: m.URL, API: m.API})
	}
	f.CurvePeers = map[string]string{}
	for _, text := range f.curvePeers {
		url, key, ok := strings.Cut(text, "=")
		if !ok {
			return usage.Errorf("--curve-peer %q: use URL=KEY", text)
		}
		f.CurvePeers[url] = key
	}
	if f.sourceCmd != "" {
		words, err := source.Split(f.sourceCmd)
		if err != nil {
			return err
		}
		f.Exec = &settings.CacheExec{Command: words}
	}
	if f.origin.URL != "" {
		f.origin.Headers = map[string]string{}
		for _, h := range f.headers {
			name, value, ok := strings.Cut(h, ":")
			if !ok {
				return usage.Errorf("--source-header %q: use 'NAME: VALUE'", h)
			}
			f.origin.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		f.Origin = &f.origin
	} else if changed("source-header") || changed("source-token-file") || changed("source-ca-file") {
		return usage.Errorf("--source-header, --source-token-file and --source-ca-file belong to --source-url")
	}
	if changed("jitter") {
		f.Jitter = &f.jitter
	}
	if f.http.Listen == "" && (changed("token-file") || changed("tls-cert") || changed("tls-key") || changed("behind-tls") || changed("content-type")) {
		return usage.Errorf("--token-file, --tls-cert, --tls-key, --behind-tls and --content-type belong to --http")
	}
	if err := f.http.ReadToken(); err != nil {
		return err
	}
	return f.Check()
}
