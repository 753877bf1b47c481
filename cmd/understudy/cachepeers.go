package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
)

func (a *app) cachePeersCommand() *cobra.Command {
	var h cacheHTTP
	c := &cobra.Command{
		Use:   "peers [add URL,API | remove URL]",
		Short: "Show the cluster as a peer sees it; add or remove a member",
		Long: `Show the cluster as one peer sees it. A link is up, down (nothing is known of the other), or
dead (its address refuses connections: its process has ended).

"add" and "remove" change the members while the cluster runs, one at a time; a majority of
the present ones has to agree. Start a new peer with "cache serve --join" first.`,
		Example: `  understudy cache peers
  understudy cache peers add tcp://10.0.0.4:7701,tcp://10.0.0.4:7801
  understudy cache peers remove tcp://10.0.0.2:7701`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("%q is no command of %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				view, err := peer.CachePeers(ctx)
				if err != nil {
					return err
				}
				if a.json() {
					return a.printJSON(view)
				}
				return a.printCluster(view)
			})
		},
	}
	h.register(c)
	h.registerWait(c, 10*time.Second, "the peers to agree on a change")
	c.AddCommand(a.cachePeersAddCommand(&h), a.cachePeersRemoveCommand(&h))
	return c
}

func (a *app) printCluster(v client.CacheCluster) error {
	state := fmt.Sprintf("%d of %d peers connected, %d are a majority", v.Connected, len(v.Peers), v.Majority)
	switch {
	case !v.Member:
		state += "; this peer is not a member"
	case v.Partitioned:
		state += "; PARTITIONED: nobody here may fetch"
	case v.Abstaining:
		state += "; this peer has started lately and does not vote yet"
	}
	if _, err := fmt.Fprintf(a.stdout, "configuration %d: %s\n", v.Config, state); err != nil {
		return err
	}
	if v.Trouble != "" {
		fmt.Fprintf(a.stdout, "trouble: %s\n", plain.Text(v.Trouble))
	}
	fmt.Fprintln(a.stdout)
	var rows []string
	for _, p := range v.Peers {
		link, since, skew := p.Link, "", ""
		if p.Self {
			link = "this peer"
		}
		if p.Since != nil {
			since = plain.Brief(max(0, time.Since(*p.Since)))
		}
		if p.Skew != nil {
			skew = plain.Brief(*p.Skew)
		}
		rows = append(rows, row(p.URL, p.API, link, since, p.Kind, orNothing(p.Config), skew, orNothing(p.Dropped)))
	}
	return a.table("PEER\tAPI\tLINK\tFOR\tKIND\tCONFIG\tCLOCK\tDROPPED", rows)
}

func (a *app) cachePeersAddCommand(h *cacheHTTP) *cobra.Command {
	return &cobra.Command{
		Use: "add URL,API", Short: "Add a member; a majority of the present ones has to agree",
		Example: "  understudy cache peers add tcp://10.0.0.4:7701,tcp://10.0.0.4:7801", Args: exactly("URL,API"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := parseMember(args[0])
			if err != nil {
				return err
			}
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				config, err := peer.CacheAddPeer(ctx, client.CacheMember{URL: m.URL, API: m.API}, h.wait)
				return errors.Join(err, a.printMembers(config, err))
			})
		},
	}
}

func (a *app) cachePeersRemoveCommand(h *cacheHTTP) *cobra.Command {
	return &cobra.Command{
		Use: "remove URL", Short: "Remove a member; a majority of the present ones has to agree",
		Example: "  understudy cache peers remove tcp://10.0.0.2:7701", Args: exactly("URL"),
		RunE: func(c *cobra.Command, args []string) error {
			return h.ask(c.Context(), func(ctx context.Context, peer *client.Client) error {
				config, err := peer.CacheRemovePeer(ctx, args[0], h.wait)
				return errors.Join(err, a.printMembers(config, err))
			})
		},
	}
}

func (a *app) printMembers(c client.CacheMembers, failed error) error {
	switch {
	case failed != nil:
		return nil
	case a.json():
		return a.printJSON(c)
	}
	if _, err := fmt.Fprintf(a.stdout, "configuration %d has %d members\n\n", c.Number, len(c.Members)); err != nil {
		return err
	}
	var rows []string
	for _, m := range c.Members {
		rows = append(rows, row(m.URL, m.API))
	}
	return a.table("PEER\tAPI", rows)
}

func (a *app) cacheWatchCommand() *cobra.Command {
	var h cacheHTTP
	var prefix string
	c := &cobra.Command{
		Use:   "watch",
		Short: "Print what a peer does about its keys as it happens, until interrupted",
		Long: `Print what one peer does about its keys as it happens: elections, fetches, failures, and links
that come and go. Nothing is kept: what happens while the connection is broken is missed, and
that is told on standard error.`,
		Example: `  understudy cache watch --prefix customer-
  understudy cache watch -o json | jq 'select(.to == "sourcing")'`,
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
	h.register(c)
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
		case errors.As(err, &refused) && refused.Status < 500, errors.Is(err, errOutput):
			return err
		case !errors.As(err, &broken):
			fmt.Fprintf(a.stderr, "%s  %s\n", time.Now().Format("15:04:05"), plain.Text(err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// errOutput: nobody reads what is printed.
var errOutput = errors.New("output")

func (a *app) printCacheEvent(e client.CacheEvent) error {
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
	if _, err := fmt.Fprintln(a.stdout, plain.Text(line+"  "+e.Why)); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}
