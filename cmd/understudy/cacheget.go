package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
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
otherwise; without one the command waits, which is printed to standard error. The servers
are asked in turn: the next when one does not answer.

--after now asks for a fresh copy; a time that has passed, such as 2026-01-02T03:04:05Z or 10m
(ten minutes ago), for one that expires later than that.`,
		Example: `  understudy cache get customer-7 --server tcp://127.0.0.1:7801 --server tcp://127.0.0.1:7802
  UNDERSTUDY_CACHE=tcp://127.0.0.1:7801 understudy cache get customer-7 --after now -o json`,
		Args: exactly("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, o, err := f.complete(time.Now())
			if err != nil {
				return err
			}
			return a.cacheGet(c.Context(), cfg, args[0], o, f.output)
		},
	}
	fs := c.Flags()
	fs.StringArrayVar(&f.servers, "server", nil, "`ADDRESS` for clients of a peer, tcp://HOST:PORT; repeat it for more (default $UNDERSTUDY_CACHE, with commas between them)")
	fs.StringVar(&f.after, "after", "", "only a copy that expires after this `TIME`: now, 10m (ago) or 2026-01-02T03:04:05Z")
	fs.BoolVar(&f.refresh, "refresh", false, "have it fetched now, though a fresh copy is there")
	fs.DurationVar(&f.timeout, "timeout", callTimeout, "wait this long for the value")
	fs.StringVarP(&f.output, "output", "o", "raw", "output `format`: raw, or json with the value in Base64")
	fs.StringVar(&f.keyFile, "curve-key-file", "", "the CURVE key pair of this client, in this `FILE`; see cache keygen")
	fs.StringArrayVar(&f.keys, "curve-server", nil, "public key of a server, `ADDRESS=KEY`; repeat it for each")
	return c
}

func (f *cacheGetFlags) complete(now time.Time) (cfg client.Config, o client.Options, err error) {
	cfg = client.Config{Servers: f.servers, Timeout: f.timeout}
	if len(cfg.Servers) == 0 {
		for addr := range strings.SplitSeq(os.Getenv("UNDERSTUDY_CACHE"), ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				cfg.Servers = append(cfg.Servers, addr)
			}
		}
	}
	if len(cfg.Servers) == 0 {
		return cfg, o, usererr.Errorf("which servers? Give --server tcp://HOST:PORT, or set UNDERSTUDY_CACHE")
	}
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

func (a *app) cacheGet(ctx context.Context, cfg client.Config, key string, o client.Options, output string) error {
	cfg.Log = a.Log
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := a.tellWaiting(ctx, key)
	item, err := c.Get(ctx, key, o)
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

// cacheExitCode maps what a cache answers, over its own protocol or HTTP.
func cacheExitCode(err error) int {
	var answer *httpclient.Error
	var broken *url.Error
	switch {
	case errors.Is(err, client.ErrConfig), errors.Is(err, client.ErrBadRequest), errors.Is(err, client.ErrTooLarge):
		return exitUsage
	case errors.Is(err, client.ErrNotFound):
		return exitAbsent
	case errors.Is(err, client.ErrTimeout), errors.Is(err, client.ErrPartitioned), errors.Is(err, client.ErrOverloaded), errors.As(err, &broken):
		return exitUnreachable
	case !errors.As(err, &answer):
		return exitFailed
	}
	switch answer.Status {
	case http.StatusBadRequest, http.StatusRequestURITooLong:
		return exitUsage
	case http.StatusNotFound:
		return exitAbsent
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitFailed
}
