package main

import (
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/cache/origin"
	"github.com/understudy-ha/understudy/internal/server"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

type cacheServeFlags struct {
	settings.Cache
	peers, curvePeers, headers []string
	originCmd                  string
	origin                     settings.Origin
	http                       settings.Server // where HTTP is served, and how it is protected
}

func (a *app) cacheServeCommand() *cobra.Command {
	var f cacheServeFlags
	c := &cobra.Command{
		Use:   "serve --url tcp://H:P --api tcp://H:P --peer URL,API… [--origin-cmd 'PROG {key}' | --origin-url URL] [flags]",
		Short: "Run a peer of a cache: a slow value is fetched by one peer for all",
		Long: `Run a peer. For each key the peers elect one that fetches its value; the others get a
copy. A stale copy is served at once while one peer fetches a new one. While a majority of the
peers is connected, at most one of them fetches a key at a time.

When the process of a peer that fetches ends, another takes over at once; when it is silent,
within the announce timeout. Without a majority no peer fetches; existing copies are still served.

Peers talk to each other at --url, clients ask at --api, and any program asks over HTTP at --http:
GET /v1/cache/KEY. There is the page, too, and the other cache commands ask there. Addresses that other hosts
reach need CURVE keys ("cache keygen"), or --insecure. Callers over HTTP have the limits that a server
has by default.

With --origin-cmd the program's standard output is the value; exit 66 says that there is none.
With --origin-url {key} stands for the key, percent-encoded. A peer with neither is passive: it
votes and serves copies, and leaves fetches to the others.

SIGINT, SIGTERM and SIGHUP stop it: fetches under way are given up, and the others know at once.`,
		Example: `  # Three peers on one host; the second and third differ in --url, --api and --http:
  understudy cache serve --url tcp://127.0.0.1:7701 --api tcp://127.0.0.1:7801 --http 127.0.0.1:7601 \
    --peer tcp://127.0.0.1:7701,tcp://127.0.0.1:7801 --peer tcp://127.0.0.1:7702,tcp://127.0.0.1:7802 \
    --peer tcp://127.0.0.1:7703,tcp://127.0.0.1:7803 --origin-cmd './slow {key}' --ttl 10m
  curl http://127.0.0.1:7601/v1/cache/customer-7

  understudy cache serve --url tcp://10.0.0.1:7701 --api tcp://10.0.0.1:7801 --curve-key-file peer-1.key \
    --peer tcp://10.0.0.2:7701,tcp://10.0.0.2:7801 --curve-peer 'tcp://10.0.0.2:7701=PUBLIC-KEY' \
    --origin-url 'https://origin.example/items/{key}' --data /var/lib/understudy/cache`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.warnOfVariables()
			if err := f.complete(c.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP)
			defer stop()
			a.warnOfExposed(&f.Cache, &f.http)
			return server.RunCache(ctx, &a.Host, &f.Cache, &f.http, !c.Flags().Changed("http"))
		},
	}
	f.register(c)
	return c
}

func (f *cacheServeFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&f.peers, "peer", nil, "`URL,API` of a peer; repeat for each, this one may be among them")
	fs.StringVar(&f.originCmd, "origin-cmd", "", "fetch values with this `COMMAND`, run without a shell; {key} in it is the key")
	fs.StringArrayVar(&f.headers, "origin-header", nil, "send this header to the origin's URL, `'NAME: VALUE'`; repeat for more")
	fs.StringArrayVar(&f.curvePeers, "curve-peer", nil, "public key of a peer, `URL=KEY`; repeat for each other peer, including peers to be added later")
	fs.StringVar(&f.http.Listen, "http", settings.DefaultListen(), "serve HTTP, the page and /metrics on this `ADDRESS`, HOST:PORT; empty: not at all")
	strictyaml.MarkKey(fs, "http", &f.http, "listen")
	strictyaml.Bind(fs, &f.Cache)
	strictyaml.Bind(fs, &f.origin)
	strictyaml.Bind(fs, &f.http, "token_file", "tls_cert", "tls_key", "behind_tls")
	fs.Bool("join", false, "")
	_ = fs.MarkDeprecated("join", "it has no effect: a new peer waits by itself until the others list it") // the flag is there: no error
	strictyaml.Renamed(fs, "source-cmd", "origin-cmd")
	strictyaml.Renamed(fs, "source-header", "origin-header")
	strictyaml.More(fs, "origin-header", "curve-peer", "token-file", "tls-cert", "tls-key", "behind-tls")
}

// complete turns the flags into what the file would say, and checks it.
func (f *cacheServeFlags) complete(changed func(string) bool) error {
	if f.URL == "" || f.API == "" {
		return usererr.Errorf("--url and --api are missing: where do other peers and clients reach this one? Both are tcp://HOST:PORT")
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
			return usererr.Errorf("--curve-peer %q: use URL=KEY", text)
		}
		f.CurvePeers[url] = key
	}
	if f.originCmd != "" {
		words, err := origin.Split(f.originCmd)
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
				return usererr.Errorf("--origin-header %q: use 'NAME: VALUE'", h)
			}
			f.origin.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		f.Origin = &f.origin
	} else if changed("origin-header") || changed("origin-token-file") || changed("origin-ca-file") {
		return usererr.Errorf("--origin-header, --origin-token-file and --origin-ca-file belong to --origin-url")
	}
	if f.http.Listen == "" && (changed("token-file") || changed("tls-cert") || changed("tls-key") || changed("behind-tls") || changed("content-type")) {
		return usererr.Errorf("--token-file, --tls-cert, --tls-key, --behind-tls and --content-type belong to --http")
	}
	if err := f.http.ReadToken(); err != nil {
		return err
	}
	return f.Check()
}
