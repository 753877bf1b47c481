package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) cacheCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "A cache of slow values, each fetched by one peer for all: serve, get, refresh, remove",
		Long: `Peers that fetch the value of a key from its slow origin once for all, and need no
database: "cache serve" runs one. The other commands ask a peer over HTTP: the one at --server, else at
$UNDERSTUDY_SERVER, else at http://` + settings.DefaultListen() + `, where "cache serve" listens by default. "cache get" can also
ask several peers at their addresses for clients (tcp://HOST:PORT), the next one when a peer does not answer.`,
		Example: `  understudy cache serve --url tcp://127.0.0.1:7701 --api tcp://127.0.0.1:7801 --origin-cmd './slow {key}'
  understudy cache get customer-7
  understudy cache keys --server http://10.0.0.2:7600`,
	}
	c.AddCommand(a.cacheServeCommand(), a.cacheGetCommand(), a.cacheRefreshCommand(), a.cacheRemoveCommand(),
		a.cacheKeysCommand(), a.cachePeersCommand(), a.cacheWatchCommand(), a.cacheKeygenCommand(), a.cacheRepairCommand())
	return c
}

// cacheHTTP is how commands ask a peer over HTTP.
type cacheHTTP struct {
	*app
	command *cobra.Command
	url     string // --http, the former name of --server
	wait    time.Duration
}

func (a *app) cacheHTTP(c *cobra.Command) *cacheHTTP {
	h := &cacheHTTP{app: a, command: c}
	c.PersistentFlags().StringVar(&h.url, "http", "", "former name of --server")
	_ = c.PersistentFlags().MarkHidden("http")
	return h
}

func (h *cacheHTTP) registerWait(c *cobra.Command, d time.Duration, what string) {
	c.PersistentFlags().DurationVar(&h.wait, "timeout", d, "wait this long for "+what)
}

// client checks the flags; nothing is sent yet.
func (h *cacheHTTP) client() (*client.Client, error) {
	if h.wait < 0 || h.wait > 5*time.Minute {
		return nil, usererr.Errorf("--timeout %v: use up to 5m", h.wait)
	}
	h.warnOfVariables()
	token, err := tokenIn(h.tokenFile)
	if err != nil {
		return nil, err
	}
	url := h.serverURL
	if !h.command.Flags().Changed("server") {
		if url = h.url; url == "" {
			url, err = h.defaultPeer()
		}
	}
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		return nil, usererr.Errorf("--server: %v", err)
	}
	return c, nil
}

// defaultPeer returns the URL of the peer that is asked over HTTP where no flag names one.
func (a *app) defaultPeer() (string, error) {
	const variable = "UNDERSTUDY_CACHE_HTTP"
	if url := os.Getenv(variable); url != "" {
		return url, checkServerURL(variable, url)
	}
	return cmp.Or(a.serverURL, "http://"+settings.DefaultListen()), a.serverErr
}

// ask lets f ask a peer within callTimeout beyond the wait.
func (h *cacheHTTP) ask(ctx context.Context, f func(context.Context, *client.Client) error) error {
	c, err := h.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.wait+callTimeout)
	defer cancel()
	return f(ctx, c)
}

func (a *app) cacheRefreshCommand() *cobra.Command {
	var h *cacheHTTP
	c := &cobra.Command{
		Use:   "refresh KEY",
		Short: "Have a value fetched now, though its copy is fresh",
		Long:  `Have a value fetched now, though a fresh copy is there, and wait for it. A running fetch counts.`,
		Example: `  understudy cache refresh customer-7
  understudy cache refresh customer-7 --server https://10.0.0.1:7600 --token-file token`,
		Args: exactly("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				defer a.tellWaiting(ctx, args[0])()
				item, err := peer.CacheRefresh(ctx, args[0], h.wait)
				if err != nil {
					return err
				}
				return a.print(item, "%s has %d bytes of term %d, fresh until %s", item.Key, item.Size, item.Term, when(item.Expire))
			})
		},
	}
	h = a.cacheHTTP(c)
	h.registerWait(c, 10*time.Second, "the value, at most 5m")
	return c
}

// tellWaiting says on standard error that a value is waited for, when that takes
// long. stop ends it.
func (a *app) tellWaiting(ctx context.Context, key string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	if short := []rune(key); len(short) > 64 {
		key = string(short[:64]) + "…"
	}
	go func() {
		defer close(done)
		for began := time.Now(); backoff.Sleep(ctx, progressEvery); {
			fmt.Fprintf(a.stderr, "waiting for %s, %s so far\n", termtext.Text(key), termtext.Brief(time.Since(began)))
		}
	}()
	return func() { cancel(); <-done }
}

func (a *app) cacheRemoveCommand() *cobra.Command {
	var h *cacheHTTP
	var prefix string
	var all bool
	c := &cobra.Command{
		Use:   "remove {KEY | --prefix P | --all}",
		Short: "Remove the copies of a key, a prefix, or everything, on every peer",
		Long: `Remove copies on every peer: of one key, of all keys with a prefix, or all. What was fetched
before is refused from then on, whichever peer still has it. A peer that cannot be reached
removes when it is back; how many have confirmed is printed.`,
		Example: `  understudy cache remove customer-7
  understudy cache remove --prefix customer-`,
		Args: func(c *cobra.Command, args []string) error {
			if prefix != "" && all {
				return usererr.Errorf("--prefix and --all exclude each other")
			}
			if prefix != "" || all {
				return noArgs(c, args)
			}
			if c.Flags().Changed("prefix") {
				return usererr.Errorf("--prefix is empty; to remove everything, write --all")
			}
			return exactly("KEY")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				var confirmed, of int
				var err error
				what := "every key"
				if len(args) == 1 {
					what = args[0]
					confirmed, of, err = peer.CacheRemove(ctx, args[0], h.wait)
				} else {
					if prefix != "" {
						what = "every key that begins with " + prefix
					}
					confirmed, of, err = peer.CacheRemoveAll(ctx, prefix, h.wait)
				}
				if err != nil {
					return err
				}
				return a.printRemoved(what, confirmed, of)
			})
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "remove all keys that begin with `P`")
	c.Flags().BoolVar(&all, "all", false, "remove every key")
	h = a.cacheHTTP(c)
	h.registerWait(c, callTimeout, "the peers to confirm, at most 10s")
	return c
}

func (a *app) printRemoved(what string, confirmed, of int) error {
	err := a.print(map[string]int{"confirmed": confirmed, "of": of}, "removed %s; %d of %d peers have confirmed", what, confirmed, of)
	if confirmed < of && !a.json() {
		fmt.Fprintln(a.stderr, "the others remove when they are back; until then they may give old copies to who asks them alone")
	}
	return err
}

func (a *app) cacheKeysCommand() *cobra.Command {
	var h *cacheHTTP
	var prefix, after string
	var limit int
	c := &cobra.Command{
		Use:   "keys",
		Short: "List the keys of a peer: what it does about them, age, size, failures",
		Long: `List the keys of one peer in order: those it has a copy of, and those it waits for. The states
are idle, follower (of the PEER that fetches, or wants to), candidate and fetching (this peer
fetches).`,
		Example: `  understudy cache keys --prefix customer-
  understudy cache keys -o json | jq -r 'select(.fresh | not).key'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			peer, err := h.client()
			if err != nil {
				return err
			}
			return printPages(c.Context(), a, limit, func(ctx context.Context, n int) ([]apitype.CacheKey, string, error) {
				page, err := peer.CacheKeys(ctx, prefix, after, n)
				if len(page.Keys) > 0 {
					after = page.Keys[len(page.Keys)-1].Key
				}
				return page.Keys, page.Next, err
			}, a.printCacheKeys)
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "only keys that begin with `P`")
	c.Flags().StringVar(&after, "after", "", "only keys after this `KEY`")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "list at most this many")
	h = a.cacheHTTP(c)
	return c
}

func (a *app) printCacheKeys(keys []apitype.CacheKey) error {
	return printList(a, keys, "KEY\tSTATE\tPEER\tTERM\tAGE\tFRESH FOR\tBYTES\tWAITING\tFAILURE", func(k apitype.CacheKey) string {
		age, left := "", ""
		if !k.Made.IsZero() {
			age = termtext.Brief(max(0, time.Since(k.Made)))
		}
		if !k.Expire.IsZero() {
			if left = termtext.Brief(time.Until(k.Expire)); !k.Fresh {
				left = "stale"
			}
		}
		return row(k.Key, k.State, k.Peer, k.Term, age, left, k.Size, orNothing(int64(k.Waiting)), termtext.Line(k.Failure))
	})
}

// parseMember reads URL,API.
func parseMember(text string) (protocol.Member, error) {
	url, addr, ok := strings.Cut(text, ",")
	m := protocol.Member{URL: strings.TrimSpace(url), API: strings.TrimSpace(addr)}
	if !ok {
		return m, usererr.Errorf("peer %q: use URL,API, as in tcp://10.0.0.2:7701,tcp://10.0.0.2:7801", text)
	}
	if err := m.Validate(); err != nil {
		return m, usererr.Errorf("%v", err)
	}
	return m, nil
}
