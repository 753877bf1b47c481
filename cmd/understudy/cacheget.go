package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	httpclient "github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usererr"
)

type cacheGetFlags struct {
	servers, keys []string
	keyFile       string
	after, output string
	refresh       bool
	timeout       time.Duration
}

func (a *app) cacheGetCommand() *cobra.Command {
	var f cacheGetFlags
	c := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key; exit 3 if there is none",
		Long: `Print the value of a key as it is. Any copy will do, however stale, unless --after says
otherwise; without one the command waits, which is printed to standard error.

--server is the URL of a peer's HTTP, or the address for clients of a peer (tcp://HOST:PORT). Several such addresses are
asked in turn: the next when one does not answer.

--after now asks for a fresh copy; a time that has passed, such as 2026-01-02T03:04:05Z or 10m
(ten minutes ago), for one that expires later than that.`,
		Example: `  understudy cache get customer-7
  understudy cache get customer-7 --server tcp://127.0.0.1:7801 --server tcp://127.0.0.1:7802
  UNDERSTUDY_CACHE=tcp://127.0.0.1:7801 understudy cache get customer-7 --after now -o json`,
		Args: exactly("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			a.warnOfVariables()
			if len(f.servers) == 0 {
				var err error
				if f.servers, err = a.defaultPeers(); err != nil {
					return err
				}
			}
			cfg, o, err := f.complete(time.Now())
			if err != nil {
				return err
			}
			cfg.Logger = a.Log
			get := tcpGetter(cfg)
			if f.overHTTP() {
				get = httpGetter(cfg.Servers[0], a.tokenFile, f.timeout)
			}
			return a.cacheGet(c.Context(), get, args[0], o, f.output)
		},
	}
	fs := c.Flags()
	fs.StringArrayVar(&f.servers, "server", nil, "`URL` of a peer's HTTP, or tcp://HOST:PORT, its address for clients; repeat that for more (default $UNDERSTUDY_CACHE, with commas between them, else $UNDERSTUDY_SERVER, else http://"+settings.DefaultListen()+")")
	fs.StringVar(&f.after, "after", "", "only a copy that expires after this `TIME`: now, 10m (ago) or 2026-01-02T03:04:05Z")
	fs.BoolVar(&f.refresh, "refresh", false, "have it fetched now, though a fresh copy is there")
	fs.DurationVar(&f.timeout, "timeout", callTimeout, "wait this long for the value")
	fs.StringVarP(&f.output, "output", "o", "raw", "output `format`: raw, or json with the value in Base64")
	fs.StringVar(&f.keyFile, "curve-key-file", "", "the CURVE key pair of this client, in this `FILE`; see cache keygen")
	fs.StringArrayVar(&f.keys, "curve-server", nil, "public key of a server, `ADDRESS=KEY`; repeat it for each")
	return c
}

// defaultPeers are asked where no flag names any.
func (a *app) defaultPeers() (servers []string, err error) {
	for addr := range strings.SplitSeq(os.Getenv("UNDERSTUDY_CACHE"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			servers = append(servers, addr)
		}
	}
	if len(servers) > 0 {
		return servers, nil
	}
	peer, err := a.defaultPeer()
	return []string{peer}, err
}

func (f *cacheGetFlags) complete(now time.Time) (cfg client.Config, o client.Options, err error) {
	if f.overHTTP() && len(f.servers) > 1 {
		return cfg, o, usererr.Errorf("--server %s: over HTTP one peer is asked; several are asked at their addresses for clients, tcp://HOST:PORT", f.servers[0])
	}
	cfg = client.Config{Servers: f.servers, Timeout: f.timeout, MaxValue: largestValue}
	if f.output != "raw" && f.output != "json" {
		return cfg, o, usererr.Errorf("-o %q: the formats are raw and json", f.output)
	}
	if cfg.Timeout <= 0 {
		return cfg, o, usererr.Errorf("--timeout %v: it must be above 0", f.timeout)
	}
	o.Refresh = f.refresh
	if o.After, err = afterTime(f.after, now); err != nil {
		return cfg, o, err
	}
	cfg.Curve, err = f.curve()
	return cfg, o, err
}

// largestValue is what --max-value of a peer permits at most.
const largestValue = 1 << 30

// overHTTP reports whether a URL of HTTP is among the servers.
func (f *cacheGetFlags) overHTTP() bool {
	return slices.ContainsFunc(f.servers, func(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") })
}

// cacheGetter asks a peer for a key, over its own protocol or HTTP.
type cacheGetter func(ctx context.Context, key string, o client.Options) (client.Item, error)

func tcpGetter(cfg client.Config) cacheGetter {
	return func(ctx context.Context, key string, o client.Options) (client.Item, error) {
		c, err := client.New(cfg)
		if err != nil {
			return client.Item{}, err
		}
		defer c.Close()
		return c.Get(ctx, key, o)
	}
}

func httpGetter(server, tokenFile string, wait time.Duration) cacheGetter {
	return func(ctx context.Context, key string, o client.Options) (client.Item, error) {
		token, err := tokenIn(tokenFile)
		if err != nil {
			return client.Item{}, err
		}
		peer, err := httpclient.New(httpclient.Config{URL: server, Token: token})
		if err != nil {
			return client.Item{}, usererr.Errorf("--server: %v", err)
		}
		v, err := peer.CacheGet(ctx, key, o.After, o.Refresh, min(wait, longestWait))
		return client.Item{Value: v.Value, Term: v.Term, Made: v.Made, Expire: v.Expire}, err
	}
}

// longestWait is what a server lets a request for a value wait.
const longestWait = 5 * time.Minute

// afterTime reads --after; the zero time takes any copy.
func afterTime(text string, now time.Time) (time.Time, error) {
	if text == "" || text == "now" {
		return map[string]time.Time{"now": now}[text], nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if d, wrong := time.ParseDuration(text); wrong == nil {
		t, err = now.Add(-d.Abs()), nil
	}
	switch {
	case err != nil:
		return t, usererr.Errorf("--after %q: use now, a duration such as 10m for ten minutes ago, or a time such as 2026-01-02T03:04:05Z", text)
	case t.After(now):
		return t, usererr.Errorf("--after %q lies ahead; to have the value fetched now, use --refresh", text)
	}
	return t, nil
}

func (f *cacheGetFlags) curve() (*client.Curve, error) {
	if f.keyFile == "" {
		if len(f.keys) > 0 {
			return nil, usererr.Errorf("--curve-server needs --curve-key-file")
		}
		return nil, nil
	}
	key, err := settings.ReadCurveKey(f.keyFile)
	if err != nil {
		return nil, err
	}
	out := &client.Curve{Key: key, Servers: map[string][32]byte{}}
	for _, text := range f.keys {
		addr, public, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usererr.Errorf("--curve-server %q: use ADDRESS=KEY", text)
		}
		if out.Servers[addr], err = zmtp.DecodeKey(public); err != nil {
			return nil, usererr.Errorf("--curve-server %s: %v", addr, err)
		}
	}
	return out, nil
}

func (a *app) cacheGet(ctx context.Context, get cacheGetter, key string, o client.Options, output string) error {
	stop := a.tellWaiting(ctx, key)
	item, err := get(ctx, key, o)
	stop()
	if err != nil {
		return err
	}
	if output == "raw" {
		_, err := a.stdout.Write(item.Value)
		return err
	}
	out := struct {
		Key    string     `json:"key"`
		Base64 []byte     `json:"key_base64,omitempty"` // of a key that is no UTF-8
		Value  []byte     `json:"value_base64"`
		Term   int64      `json:"term,omitempty"`
		Made   *time.Time `json:"made,omitempty"`
		Expire time.Time  `json:"expire"`
		Fresh  bool       `json:"fresh"`
	}{Key: key, Value: item.Value, Term: item.Term, Expire: item.Expire, Fresh: item.Expire.After(time.Now())}
	if !item.Made.IsZero() {
		out.Made = &item.Made
	}
	if out.Value == nil {
		out.Value = []byte{}
	}
	if !utf8.ValidString(key) {
		out.Base64 = []byte(key)
	}
	if err := a.printJSON(out); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
