package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
)

func (a *app) sourceDeclareCommand() *cobra.Command {
	var labels []string
	c := &cobra.Command{
		Use:   "declare CHECK SOURCE…",
		Short: "Make sources known before their first beat",
		Long: `Make sources known before their first beat: one that never beats raises an alarm, a whole limit
after it was declared. A source that is known gets these labels, and no others; the output says what changed.`,
		Example: `  understudy source declare nightly-backup db-1 db-2 --label site=north
  xargs understudy source declare fleet <hosts.txt`,
		Args: atLeast("CHECK", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			set, err := parseLabels(labels)
			if err != nil {
				return err
			}
			declared := make([]monitor.Declaration, 0, len(args)-1)
			for _, source := range args[1:] {
				d := monitor.Declaration{Check: args[0], Source: source, Labels: set}
				if err := d.Validate(); err != nil {
					return err
				}
				declared = append(declared, d)
			}
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return a.declare(ctx, c, declared)
			})
		},
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "give them this label, `NAME=VALUE`; repeat it for more")
	return c
}

// declare says of each source what it changed. It sends them one by one, because an answer says only how many of all
// are new.
func (a *app) declare(ctx context.Context, c *client.Client, sources []monitor.Declaration) error {
	for _, d := range sources {
		before, added, err := declareOne(ctx, c, d)
		if err != nil {
			return err
		}
		did, changes := "declared", []string{}
		if added == 0 {
			changes = declarationChanges(before, d.Labels)
			did = "known already, and unchanged"
		}
		if len(changes) > 0 {
			did = "changed"
		}
		text := did + ": " + d.Source
		if len(changes) > 0 {
			text += " (" + strings.Join(changes, "; ") + ")"
		}
		out := map[string]any{"check": d.Check, "source": d.Source, "added": added > 0, "changes": changes}
		if err := a.print(out, "%s", text); err != nil {
			return err
		}
	}
	return nil
}

// declareOne declares a source, and returns what was known of it.
func declareOne(ctx context.Context, c *client.Client, d monitor.Declaration) (before apitype.Source, added int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	known, err := c.Sources(ctx, client.SourceQuery{Check: d.Check, Source: d.Source, Limit: 1})
	if err != nil {
		return before, 0, err
	}
	if len(known.Sources) > 0 {
		before = known.Sources[0]
	}
	added, err = c.Declare(ctx, apitype.Declaration{Check: d.Check, Source: d.Source, Labels: d.Labels})
	return before, added, err
}

// declarationChanges are what declaring a known source changes: it may have been learned, and it gets these labels.
func declarationChanges(before apitype.Source, labels map[string]string) []string {
	out := []string{}
	if !before.Declared {
		out = append(out, "it was learned from its heartbeats")
	}
	names := slices.Collect(maps.Keys(labels))
	names = slices.AppendSeq(names, maps.Keys(before.Labels))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		was, had := before.Labels[name]
		is, has := labels[name]
		switch {
		case !had:
			out = append(out, fmt.Sprintf("label %s=%s added", name, is))
		case !has:
			out = append(out, fmt.Sprintf("label %s=%s removed", name, was))
		case was != is:
			out = append(out, fmt.Sprintf("label %s: %s, was %s", name, is, was))
		}
	}
	return out
}

func parseLabels(texts []string) (map[string]string, error) {
	out := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usererr.Errorf("--label %q: use NAME=VALUE", text)
		}
		out[name] = value
	}
	return out, nil
}

func (a *app) sourcePauseCommand() *cobra.Command {
	var note string
	var span time.Duration
	c := &cobra.Command{
		Use:   "pause CHECK [SOURCE…]",
		Short: "Raise no alarms for sources, or for all of a check, until they are resumed",
		Long: `Raise no alarms for sources for a while, or for all sources of a check if none is named. An open alarm
ends when the source beats again. A pause ends with "source resume", or by itself with --for; then the source has one
whole limit to beat. The history keeps who paused it and why.`,
		Example: `  understudy source pause nightly-backup db-1 --for 2h --note "new disk"
  understudy source pause nightly-backup`,
		Args: atLeast("CHECK"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case span < 0 || span > monitor.MaxInterval:
				return usererr.Errorf("--for %v: use up to %v", span, monitor.MaxInterval)
			case span > 0 && len(args) == 1:
				return usererr.Errorf("--for belongs to sources; a check is paused until \"source resume %s\"", args[0])
			}
			return a.actOnSources(c.Context(), "pause", args,
				func(ctx context.Context, c *client.Client) error {
					return c.PauseCheck(ctx, args[0], operator(), termtext.Text(note))
				},
				func(ctx context.Context, c *client.Client, source string) error {
					return c.Pause(ctx, args[0], source, span, operator(), termtext.Text(note))
				})
		},
	}
	c.Flags().DurationVar(&span, "for", 0, "end the pause by itself after this `TIME`, such as 2h; 0: never")
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history and for operators who look at the source")
	return c
}

func (a *app) sourceResumeCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "resume CHECK [SOURCE…]",
		Short: "Resume sources, or all sources of a check, that were paused",
		Long: `Resume sources that were paused, or all sources of a check if none is named. They have one whole limit
to beat. A source that was paused by itself stays paused when its check is resumed.`,
		Example: `  understudy source resume nightly-backup db-1
  understudy source resume nightly-backup`,
		Args: atLeast("CHECK"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.actOnSources(c.Context(), "resume", args,
				func(ctx context.Context, c *client.Client) error {
					return c.ResumeCheck(ctx, args[0], operator(), termtext.Text(note))
				},
				func(ctx context.Context, c *client.Client, source string) error {
					return c.Resume(ctx, args[0], source, operator(), termtext.Text(note))
				})
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history")
	return c
}

func (a *app) sourceRetireCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "retire CHECK SOURCE…",
		Short: "Retire sources that will send no more heartbeats",
		Long: `Retire sources that will send no more heartbeats: their alarms end, and no new ones are raised. A
heartbeat brings a source back. An instance of the monitor does it within a moment.`,
		Example: `  understudy source retire fleet web-17 --note "scrapped"
  understudy source list --check fleet --state down -o json | jq -r .source | xargs understudy source retire fleet`,
		Args: atLeast("CHECK", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.actOnEach(c.Context(), "retire", "source", args[1:], func(ctx context.Context, c *client.Client, source string) error {
				return c.Retire(ctx, args[0], source, operator(), termtext.Text(note))
			})
		},
	}
	c.Flags().StringVar(&note, "note", "", "`WHY`, for the history and for operators who look at the source")
	return c
}

// actOnSources does one thing with each source of a check that is named, or with the check itself if none is.
func (a *app) actOnSources(ctx context.Context, verb string, args []string, check func(context.Context, *client.Client) error,
	source func(ctx context.Context, c *client.Client, source string) error,
) error {
	if len(args) == 1 {
		return a.actOnEach(ctx, verb, "check", args, func(ctx context.Context, c *client.Client, _ string) error { return check(ctx, c) })
	}
	return a.actOnEach(ctx, verb, "source", args[1:], source)
}

func (a *app) sourceRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove CHECK SOURCE",
		Short: "Remove a source that has no open alarm",
		Long: `Remove a source that has no open alarm ("source retire" ends one). A source that still sends heartbeats is learned
again, unless its check is fixed. The history records who asked.`,
		Example: "  understudy source remove nightly-backup db-1",
		Args:    exactly("CHECK", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.removeByAPI(c.Context(), "remove", "source", args[1], func(ctx context.Context, c *client.Client) error {
				return c.RemoveSource(ctx, args[0], args[1], operator())
			})
		},
	}
}
