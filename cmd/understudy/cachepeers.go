package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) cachePeersCommand() *cobra.Command {
	var h *cacheHTTP
	c := &cobra.Command{
		Use:   "peers",
		Short: "Show the cluster as a peer sees it",
		Long: `Show the cluster as one peer sees it. A link is up, down (nothing is known of the other), or
dead (its address refuses connections: its process has ended). WHY says why nothing that a peer
sends can be used.

The members are configured: to add or remove one, change the list (peers in the file, --peer)
at every peer, one after another, and wait until LIST says "same" everywhere before the next
change. Peers whose lists differ by more than one member ignore each other.`,
		Example: `  understudy cache peers
  understudy cache peers --server http://10.0.0.2:7600 -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usererr.Errorf("%q is not a command of %q: members are configured (peers in the file, --peer); change the list at every peer, one member at a time", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				view, err := peer.CachePeers(ctx)
				if err != nil {
					return err
				}
				return printAs(a, view, a.printCluster)
			})
		},
	}
	h = a.cacheHTTP(c)
	return c
}

func (a *app) printCluster(v apitype.CacheCluster) error {
	state := fmt.Sprintf("%d of %d peers connected, %d are a majority", v.Connected, len(v.Peers), v.Majority)
	switch {
	case !v.Member:
		state += "; this peer is not a member"
	case v.Partitioned:
		state += "; PARTITIONED: this side must not fetch"
	case v.Abstaining:
		state += "; this peer has started recently and does not vote yet"
	}
	if _, err := fmt.Fprintln(a.stdout, state); err != nil {
		return err
	}
	if v.Trouble != "" {
		fmt.Fprintf(a.stdout, "trouble: %s\n", termtext.Text(v.Trouble))
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, p := range v.Peers {
		link, since, skew := p.Link, "", ""
		if p.Self {
			link = "this peer"
		}
		if !p.Since.IsZero() {
			since = termtext.Brief(max(0, time.Since(p.Since)))
		}
		if p.SkewMS != nil {
			skew = termtext.Brief(millis(*p.SkewMS))
		}
		rows = append(rows, row(p.URL, p.API, link, since, p.Kind, p.List, skew, orNothing(p.Dropped), termtext.Line(p.Why)))
	}
	return a.table("PEER\tAPI\tLINK\tFOR\tKIND\tLIST\tCLOCK\tDROPPED\tWHY", rows)
}

func (a *app) cacheWatchCommand() *cobra.Command {
	var h *cacheHTTP
	var prefix string
	c := &cobra.Command{
		Use:   "watch",
		Short: "Print what a peer does about its keys as it happens, until interrupted",
		Long: `Print what one peer does about its keys as it happens: elections, fetches, failures, and links
that come and go. Nothing is kept: what happens while the connection is broken is missed, which
is printed to standard error.`,
		Example: `  understudy cache watch --prefix customer-
  understudy cache watch -o json | jq 'select(.to == "fetching")'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			peer, err := h.client()
			if err != nil {
				return err
			}
			return a.watchCache(c.Context(), peer, prefix)
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "only keys that begin with `P`")
	h = a.cacheHTTP(c)
	return c
}

// watchCache comes back when the connection breaks; a first one that fails is a
// failure.
func (a *app) watchCache(ctx context.Context, peer *client.Client, prefix string) error {
	if _, err := peer.CachePeers(ctx); err != nil {
		return instance.Stopped(err)
	}
	for {
		err := peer.CacheEvents(ctx, prefix, a.printCacheEvent)
		var refused *client.Error
		var broken *url.Error
		switch {
		case ctx.Err() != nil:
			return nil
		case waitRetryAfter(ctx, err):
		case errors.As(err, &refused) && refused.Status < 500, errors.Is(err, errOutput):
			return err
		case !errors.As(err, &broken):
			fmt.Fprintf(a.stderr, "%s  %s\n", time.Now().Format("15:04:05"), termtext.Text(err.Error()))
		}
		if !backoff.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

// errOutput: nobody reads what is printed.
var errOutput = errors.New("output")

func (a *app) printCacheEvent(e apitype.CacheEvent) error {
	if a.json() {
		if err := a.printJSON(e); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
		return nil
	}
	line := e.Time.Local().Format("15:04:05.000")
	if e.Key != "" {
		line += "  " + e.Key
	}
	if e.From != "" || e.To != "" {
		line += fmt.Sprintf("  %s → %s", e.From, e.To)
	}
	if e.Peer != "" {
		line += "  " + e.Peer
	}
	if e.Term > 0 {
		line += fmt.Sprintf("  term %d", e.Term)
	}
	if _, err := fmt.Fprintln(a.stdout, termtext.Text(line+"  "+e.Why)); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}
